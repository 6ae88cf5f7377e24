"""Creates and removes sessions like playbooks do: the only file of the benchmark that uses internals for that."""

from __future__ import annotations

import time
import uuid
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._docker import containers, networks
from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.environment import session_environment
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationErrors
from ansible_collections.backendai.cluster.plugins.module_utils._session import apply, check, claim
from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import RenderedFiles
from ansible_collections.backendai.cluster.plugins.module_utils._session.facts import (
    AgentSettings,
    FactsQuery,
    collect_facts,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.remove import remove_claimed
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision, decide
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import parse_pools
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import (
    SessionSpec,
    parse_spec,
)
from tests.bench.agent_program.parts import PartTimes

PREFIX = "bench-many-"
CLAIM_SECONDS, CHECK_SECONDS = 600, 60

# Parts included in the steps of a session: name, module and function.
INNER_PARTS: tuple[tuple[str, Any, str], ...] = (
    ("keys", claim, "_ensure_keys"),
    ("rules", apply, "sync_ruleset"),
    ("network", networks, "create_network"),
    ("containers", containers, "apply_containers"),
    ("containers", containers, "remove_containers"),
    ("network", networks, "remove_networks"),
)


def time_inner_parts(times: PartTimes) -> None:
    """Measure the time of the inner parts."""
    for name, module, function in INNER_PARTS:
        setattr(module, function, times.wrap(f"  {name}", getattr(module, function)))


class Sessions:
    """The benchmark's sessions on this agent."""

    def __init__(self, request: dict[str, Any], times: PartTimes) -> None:
        self._agent, self._options, self._times = request["agent"], request["session"], times
        self._pools = parse_pools(ValidationErrors(), request["session"])
        names = list(AgentSettings._fields)
        self._settings = AgentSettings(**{name: request["settings"][f"agent_{name}"] for name in names})
        self._default_network = request["settings"]["agent_default_network"]
        self._client = connect(request["settings"]["agent_docker_host"])
        self._store = Store(request["settings"]["agent_state_path"])

    def spec(self, number: int) -> SessionSpec:
        """Return the request for one session."""
        return parse_spec(ValidationErrors(), {**self._options, "name": f"{PREFIX}{number:04}"})

    def plan(self, spec: SessionSpec, facts: AgentFacts) -> SessionPlan:
        """Return the plan of a session, given what this agent has."""
        readings = ClusterState({self._agent: facts}, {})
        decision = decide(spec, readings, self._pools, str(uuid.uuid4()), "bench", time.time())
        if not isinstance(decision, Decision):
            raise SystemExit(f"no room for {spec.name}: {decision.reason}")
        return decision.plan

    def create(self, number: int) -> None:
        """Create one session. Raises if it is refused or fails its check."""
        nonce = uuid.uuid4().hex
        spec = self.spec(number)
        with self._times.measure("survey"):
            facts = collect_facts(self._client, self._store, self._settings, FactsQuery(spec.images), self._agent)
        with self._times.measure("plan"):
            plan = self.plan(spec, facts)
        with self._times.measure("claim"):
            request = claim.ClaimRequest(plan, self._agent, nonce, CLAIM_SECONDS)
            keys = claim.claim(self._client, self._store, self._settings, request, check_mode=False).keys
        with self._times.measure("apply"):
            part = apply.ApplyRequest(plan, self._agent, nonce, _contents(plan, keys), self._default_network)
            apply.apply_claimed(self._client, self._store, part, check_mode=False)
        with self._times.measure("check"):
            check.check_and_commit(self._client, self._store, plan.id, nonce, CHECK_SECONDS)

    def remove(self, session_id: str) -> None:
        """Remove one session."""
        with self._times.measure("remove"):
            remove_claimed(self._client, self._store, session_id, None, check_mode=False)

    def remove_all(self) -> None:
        """Remove every session of this benchmark."""
        for session_id in self.ids():
            self.remove(session_id)

    def ids(self) -> list[str]:
        """Return the ids of this benchmark's sessions, in the order of their names."""
        plans = [stored.plan for stored in self._store.sessions() if stored.plan.name.startswith(PREFIX)]
        return [plan.id for plan in sorted(plans, key=lambda plan: plan.name)]


def _contents(plan: SessionPlan, keys: dict[str, Any]) -> RenderedFiles:
    """Return the files that the templates would produce."""
    hosts = "".join(f"{kernel.address} {kernel.hostname}\n" for kernel in plan.kernels)
    names = " ".join(kernel.hostname for kernel in plan.kernels)
    environments = {kernel.hostname: session_environment(plan, kernel) for kernel in plan.kernels}
    ssh_config = f"Host {names}\n    User work\n    IdentityFile ~/.ssh/id_ed25519\n    StrictHostKeyChecking yes\n"
    return RenderedFiles(f"127.0.0.1 localhost\n{hosts}", ssh_config, environments, keys, ())

"""Create and remove single-node sessions one after the other on an agent, with the collection's own code, and time it.

This file runs on the agent, in one archive with that code; ``tests.bench.many_sessions`` packs and sends it. It prints
one line of JSON for each session that it has created or removed: the seconds of each part.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._docker import containers, networks
from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.environment import session_environment
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._session import apply as slices
from ansible_collections.backendai.cluster.plugins.module_utils._session import check, claim
from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import Contents
from ansible_collections.backendai.cluster.plugins.module_utils._session.remove import remove_claimed
from ansible_collections.backendai.cluster.plugins.module_utils._session.survey import Questions, Settings, survey
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import Readings
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision, decide
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import parse_pools
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import comparable, parse_spec

PREFIX = "bench-many-"
SECONDS = 60
YARDSTICK = 1 << 24

WITHIN: tuple[tuple[str, Any, str], ...] = (
    ("keys", claim, "_keys"),
    ("rules", slices, "isolate"),
    ("network", networks, "create_network"),
    ("containers", containers, "apply_containers"),
    ("containers", containers, "remove_containers"),
    ("network", networks, "remove_networks"),
)
"""Parts within the steps of a session: what they are called, and the function that does them."""


class Watch:
    """The seconds that parts of one piece of work take, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def over(self, name: str) -> Iterator[None]:
        """Add the time of a block to a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def print(self, kind: str) -> None:
        """Print the parts as one line and begin anew."""
        print(json.dumps({"kind": kind, "seconds": self.seconds}), flush=True)
        self.seconds = {}


class Sessions:
    """What creates and removes sessions here, as one run of a playbook after the other does."""

    def __init__(self, given: dict[str, Any], watch: Watch) -> None:
        self._agent, self._variables, self._watch = given["agent"], given["session"], watch
        self._pools = parse_pools(given["session"])
        names = [field.name for field in dataclasses.fields(Settings)]
        self._settings = Settings(**{name: given["settings"][f"agent_{name}"] for name in names})
        self._client, self._store = connect("unix:///var/run/docker.sock"), Store("/var/lib/backendai")

    def create(self, number: int) -> None:
        """Create one session. Raises where it is refused or does not prove itself."""
        nonce = uuid.uuid4().hex
        spec = parse_spec({**self._variables, "session_name": f"{PREFIX}{number:04}"})
        with self._watch.over("survey"):
            facts = survey(self._client, self._store, self._settings, Questions(spec.images), self._agent)
        with self._watch.over("plan"):
            readings = Readings({self._agent: facts}, {})
            decision = decide(spec, readings, self._pools, str(uuid.uuid4()), "bench", time.time())
        if not isinstance(decision, Decision):
            raise SystemExit(f"no room for session {number}: {decision.reason}")
        plan = decision.plan
        with self._watch.over("claim"):
            wanted = claim.Claim(plan, comparable(spec, plan.id), self._agent, nonce, 600)
            keys = claim.claim(self._client, self._store, self._settings, wanted, dry=False).keys
        with self._watch.over("slice"):
            asked = slices.Asked(plan, self._agent, nonce, _contents(plan, keys), "backendai-default")
            slices.apply_claimed(self._client, self._store, asked, dry=False)
        with self._watch.over("check"):
            check.prove(self._client, self._store, plan.id, nonce, SECONDS, commit=True)

    def yardstick(self) -> None:
        """Do what costs the same however many sessions there are: how fast the machine is at this moment."""
        with self._watch.over("  yardstick"):
            hashlib.sha256(bytes(YARDSTICK)).digest()

    def remove(self, session_id: str) -> None:
        """Remove one session."""
        with self._watch.over("slice"):
            remove_claimed(self._client, self._store, session_id, None, dry=False)

    def there(self) -> list[str]:
        """Return the ids of this benchmark's sessions, in the order of their names."""
        held = [one.plan for one in self._store.sessions() if one.plan.name.startswith(PREFIX)]
        return [plan.id for plan in sorted(held, key=lambda plan: plan.name)]


def _contents(plan: SessionPlan, keys: dict[str, Any]) -> Contents:
    """Return what the templates would give."""
    hosts = "".join(f"{kernel.address} {kernel.hostname}\n" for kernel in plan.kernels)
    names = " ".join(kernel.hostname for kernel in plan.kernels)
    environments = {
        kernel.hostname: "".join(f"{name}={value}\n" for name, value in session_environment(plan, kernel).items())
        for kernel in plan.kernels
    }
    ssh_config = f"Host {names}\n    User work\n    IdentityFile ~/.ssh/id_ed25519\n    StrictHostKeyChecking yes\n"
    return Contents(f"127.0.0.1 localhost\n{hosts}", ssh_config, environments, keys, ())


def _timed(watch: Watch, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **options: Any) -> Any:
        with watch.over(name):
            return act(*args, **options)

    return wrapped


def main() -> None:
    """Create as many sessions as asked, remove them all, and leave nothing, whatever happens in between."""
    given = json.loads(sys.argv[1])
    watch = Watch()
    for name, module, function in WITHIN:
        setattr(module, function, _timed(watch, f"  {name}", getattr(module, function)))
    sessions = Sessions(given, watch)
    try:
        for session_id in sessions.there():
            sessions.remove(session_id)
        watch.seconds = {}
        for number in range(given["count"]):
            sessions.yardstick()
            sessions.create(number)
            watch.print("created")
        for session_id in sessions.there():
            sessions.yardstick()
            sessions.remove(session_id)
            watch.print("removed")
    finally:
        for session_id in sessions.there():
            sessions.remove(session_id)


if __name__ == "__main__":
    main()

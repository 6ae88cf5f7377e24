"""Builders of test values: tests give what matters, the rest has defaults."""

from __future__ import annotations

import base64
import dataclasses
import functools
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._host.deadline import Deadline, read_uptime
from ansible_collections.backendai.cluster.plugins.module_utils._host.local_session import LocalSession
from ansible_collections.backendai.cluster.plugins.module_utils._host.processes import boot_id
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import PinnedResources
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import (
    ContainerState,
    HeldSession,
    PublicKeys,
    by_state,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import ImageIdentity
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import to_plain
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import Kernel, SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationErrors
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard.mesh import wireguard_underlay
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Placement
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_plan import make_plan
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import unplanned_record
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import (
    NetworkPools,
    parse_pools,
    parse_run,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import SessionSpec, parse_spec
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import parse_options

GIB = 1 << 30
USER = "alice"
NOW = 1_800_000_000.0
DIGEST = f"sha256:{'a' * 64}"
IMAGE = "lab/python:1"
BOOTED = time.time() - read_uptime()
SESSION_ID = "5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
NONCE = "0f3c1d2e4b6a4f5e9d0a5f0c6a523c0e"
POOLS = NetworkPools("10.128.0.0/9", 4096, 16777215, 4789, 30000, 32767, 30000, 31000)
REPOSITORY = Path(__file__).parents[2]
ANSIBLE_PLAYBOOK = (sys.executable, "-m", "ansible", "playbook")
DEFAULTS: dict[str, Any] = yaml.safe_load((REPOSITORY / "roles/session/defaults/main.yml").read_text())


def variables(**changes: Any) -> dict[str, Any]:
    """Return the variables of a run: the role's defaults, a name and an image, with ``session_<change>`` replaced."""
    required = {"session_name": "train-llm", "session_image": IMAGE}
    return {**DEFAULTS, **required, **{f"session_{option}": value for option, value in changes.items()}}


def options(**changes: Any) -> tuple[ValidationErrors, dict[str, Any]]:
    """Return the options of a run with these changes, converted to their types, and the problems."""
    problems = ValidationErrors()
    return problems, parse_options(problems, variables(**changes))


def spec(**changes: Any) -> SessionSpec:
    """Return a validated request with these options changed."""
    problems, values = options(**changes)
    request = parse_spec(problems, values)
    problems.raise_if_any()
    return request


def refusal(**changes: Any) -> str:
    """Return the error message for a request with these options."""
    problems, values = options(**changes)
    parse_spec(problems, values)
    parse_run(problems, values)
    parse_pools(problems, values)
    assert problems
    return str(problems)


def public_key(number: int) -> str:
    """Return the public key of WireGuard of the agent with that number."""
    return base64.b64encode(bytes([number]) * 32).decode()


def encrypted_underlay(number: int, host: str = "") -> Underlay:
    """Return the underlay with WireGuard of an agent, by default at 192.0.2.<number>."""
    return wireguard_underlay(Underlay(host or f"192.0.2.{number}", "eth0", 1500), public_key(number), 51820)


def agent_facts(name: str, cpu: int = 8, mem: int = 16 * GIB, **changes: Any) -> AgentFacts:
    """Return the facts of an empty agent; its underlay address ends in the last character of its name.

    What is changed may be given as typed values or as plain data.
    """
    address = f"192.0.2.{int(name[-1], 36)}"
    ordinary = AgentFacts(
        name=name,
        resource_group="default",
        schedulable=True,
        architecture="amd64",
        engine="26.1.4",
        kit="0123456789ab",
        program="5e" * 32,
        online_cpus=tuple(range(cpu)),
        capacity={"cpu": cpu, "mem": mem},
        allocated={},
        devices=(),
        warnings=(),
        containers=0,
        max_containers=0,
        underlay=Underlay(address, "eth0", 1500),
        addresses=(address,),
        udp_ports={},
        tcp_ports=frozenset(),
        reserved_ports={},
        allow_host_network=False,
        has_infiniband=False,
        infiniband=False,
        networks=(),
        vnis=(),
        images={IMAGE: ImageIdentity(**image_data())},
        unusable_images={},
        image_disk=None,
        unusable_paths={},
        path_groups={},
        closed_storage=(),
        sessions=(),
        damaged_sessions=(),
        cordon=None,
        labels=frozenset(),
        obstacles=(),
        topology=(),
        topology_levels=(),
    )
    return AgentFacts.from_dict(name, {**ordinary.to_dict(), **to_plain(changes)}) if changes else ordinary


def agent_data(name: str, cpu: int = 8, mem: int = 16 * GIB, **changes: Any) -> dict[str, Any]:
    """Return the result of ``agent_info`` for an agent with these facts."""
    return agent_facts(name, cpu, mem, **changes).to_dict()


def image_data(number: int = 1, registry: str = "") -> dict[str, str]:
    """Return an image as in ``agent_info``: a loaded one, or one from the repository of ``registry``."""
    image = {"id": f"sha256:{number}", "digest": f"sha256:{number}", "reference": "", "content": ""}
    return {**image, "digest": DIGEST, "reference": f"{registry}@{DIGEST}"} if registry else image


def plan(
    counts: Mapping[str, int] | None = None, agents: Sequence[AgentFacts] | None = None, **changes: Any
) -> SessionPlan:
    """Return the plan of a session with that many containers on each agent; two and two without ``counts``."""
    counts = counts or {"agent1": 2, "agent2": 2}
    request = spec(**{"cluster_size": sum(counts.values()), "cluster_mode": "multi-node", **changes})
    available_agents = agents or [agent_facts(name) for name in counts]
    hosts = tuple(name for name, count in counts.items() for _container in range(count))
    return make_plan(request, Placement(hosts), available_agents, POOLS, SESSION_ID, USER, NOW)


def bare_plan(name: str, created_at: float, requests: Mapping[str, Sequence[dict[str, int]]]) -> SessionPlan:
    """Return a plan of which only the requests of its containers matter, by agent."""
    placed = [(agent, request) for agent, listed in requests.items() for request in listed]
    kernels = tuple(
        Kernel(
            f"id-{name}-{rank}", "sub", rank, rank, f"sub{rank}", agent, IMAGE, request, None, None, f"{name}-{rank}"
        )
        for rank, (agent, request) in enumerate(placed)
    )
    return SessionPlan(
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
        name=name,
        user=USER,
        cluster_mode="multi-node",
        requested_cluster_mode="multi-node",
        resource_group="default",
        command="",
        failure_policy="none",
        mounts=(),
        network=None,
        kernels=kernels,
        underlays={},
        agent_addresses=(),
        created_at=float(created_at),
    )


def bare_session(of: SessionPlan, **changes: Any) -> HeldSession:
    """Return a session as any of its agents has it, of which only the plan matters."""
    known: dict[str, Any] = {"nonce": "", "plan_digest": of.digest, "batch": False, "committed": True}
    known |= {"expired": False, "states": ()}
    return HeldSession(id=of.id, name=of.name, created_at=of.created_at, **{**known, **changes})


def held_session(
    of: SessionPlan, agent: str, stopped: Mapping[str, tuple[str, int | None]] | None = None, **changes: Any
) -> HeldSession:
    """Return a healthy session as in the facts of one of its agents, which was asked for its keys.

    ``stopped`` are (status, exit code) of containers that are not healthy, by hostname. ``containers`` are all of
    them.
    """
    hostnames = [kernel.hostname for kernel in of.kernels_on(agent)]
    states = {hostname: (stopped or {}).get(hostname, ("running", None)) for hostname in hostnames}
    containers = {hostname: ContainerState(status, "sha256:1", code) for hostname, (status, code) in states.items()}
    healthy = HeldSession(
        id=of.id,
        name=of.name,
        created_at=of.created_at,
        nonce="nonce-1",
        plan_digest=of.digest,
        batch=bool(of.command),
        committed=True,
        expired=False,
        states=by_state(changes.pop("containers", containers)),
        public_keys={hostname: public_keys(of)[hostname] for hostname in hostnames},
    )
    return dataclasses.replace(healthy, **changes)


def holders(of: SessionPlan, **changes: Any) -> dict[str, AgentFacts]:
    """Return the facts of the agents of a healthy session, by name."""
    return {name: agent_facts(name, sessions=[held_session(of, name, **changes)]) for name in of.agents}


def readings(*names: str, left_out: Any = None, recorded: Any = (), **facts: AgentFacts) -> ClusterState:
    """Return the readings of default agents (``names``), of others (``facts``), and of left-out ones.

    ``recorded`` are the plans of sessions of which the control node has a record.
    """
    agents = {**{name: agent_facts(name) for name in names}, **facts}
    return ClusterState(agents, left_out or {}, {made.id: made for made in recorded})


def occupied(**facts: AgentFacts) -> ClusterState:
    """Return the readings of agents where a session of the record has taken all that is allocated, on each another."""
    recorded, agents = [], {}
    for name, agent in facts.items():
        requests = [agent.allocated, *([{}] * (agent.containers - 1))]
        holder = bare_plan(f"holder-{name}", NOW, {name: requests})
        recorded.append(holder)
        agents[name] = dataclasses.replace(agent, sessions=(*agent.sessions, bare_session(holder)))
    return readings(recorded=recorded, **agents)


def result(facts: AgentFacts) -> dict[str, Any]:
    """Return the result of ``agent_info`` on an agent with these facts."""
    return {"agent": facts.to_dict(), "error": None}


def held(of: SessionPlan, agent: str = "agent1", **changes: Any) -> LocalSession:
    """Return a committed session as held by one of its agents, with one core for each of its containers.

    ``expires_at`` may be given in seconds since the epoch.
    """
    if isinstance(changes.get("expires_at"), float):
        changes["expires_at"] = Deadline(boot_id(), changes["expires_at"] - BOOTED)
    pinned = {kernel.hostname: PinnedResources([core]) for core, kernel in enumerate(of.kernels_on(agent))}
    all_keys = public_keys(of)
    keys = {kernel.hostname: all_keys[kernel.hostname] for kernel in of.kernels_on(agent)}
    return dataclasses.replace(LocalSession(of, agent, "nonce-1", None, pinned, keys), **changes)


def own_labels(hostname: str, session_id: str = SESSION_ID) -> dict[str, str]:
    """Return the labels of a container as the claim of :func:`held` has made it."""
    of = {labels.OWNER: labels.OWNER_VALUE, labels.SESSION_ID: session_id, labels.HOSTNAME: hostname}
    return {**of, labels.NONCE: "nonce-1"}


def public_keys(of: SessionPlan) -> dict[str, PublicKeys]:
    """Return recognisable public keys of all containers."""
    return {
        kernel.hostname: PublicKeys(f"ssh-ed25519 USER-{kernel.hostname}", f"ssh-ed25519 HOST-{kernel.hostname}")
        for kernel in of.kernels
    }


def requested(number: int = 1, asked: SessionSpec | None = None, **changes: Any) -> QueueEntry:
    """Return a pending session with its whole request, the ``number``-th to arrive."""
    session_spec = asked or spec(name=f"session-{number}")
    entry = queued(
        number, name=session_spec.name, priority=session_spec.priority, resource_group=session_spec.resource_group
    )
    record = unplanned_record(session_spec, session_spec.name, "PENDING", changes.get("id", entry.id))
    return dataclasses.replace(entry, **{"spec": dataclasses.asdict(session_spec), "record": record, **changes})


@functools.cache
def _default_request() -> dict[str, Any]:
    return to_plain(dataclasses.asdict(spec()))


def record(**changes: Any) -> dict[str, Any]:
    """Return the record of a session without a plan, with these fields changed."""
    return {**unplanned_record(None, None, "PENDING", SESSION_ID), **changes}


def queued(number: int = 1, **changes: Any) -> QueueEntry:
    """Return a pending session, the ``number``-th to arrive."""
    ordinary: dict[str, Any] = {
        "id": f"{number:08x}-3c0e-4f5e-9d0a-0f3c1d2e4b6a",
        "name": f"session-{number}",
        "state": "PENDING",
        "user": "alice",
        "resource_group": "default",
        "priority": 10,
        "spec": _default_request(),
        "record": record(),
        "enqueued_at": NOW + number,
        "updated_at": NOW + number,
    }
    return QueueEntry(**{**ordinary, **changes})

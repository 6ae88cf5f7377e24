"""Sessions that fill simulated agents one after the other, in the state folders of agents and in the queue."""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import ContainerState
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Placement
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_plan import make_plan
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import RUNNING, QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import session_record
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import SessionSpec
from tests.large.agents import CONTAINERS, LargeLab, SimulatedAgent
from tests.large.engine import IMAGES
from tests.unit.builders import IMAGE, NOW, POOLS, USER, agent_facts, held, public_keys, spec

#: Numbers of containers, one session after the other: two on average.
SIZES = (1, 2, 3, 2)


def make_sessions(lab: LargeLab, agents: Sequence[SimulatedAgent], count: int, cores: int) -> None:
    """Store that many sessions, at most until all agents are full, as if the queue of the lab had started them."""
    lab.queue.mkdir(mode=0o700)
    facts = {agent.name: _facts(agent) for agent in agents}
    by_name = {agent.name: agent for agent in agents}
    for request, hosts in itertools.islice(_requests(list(by_name), cores), count):
        session_id = str(uuid.uuid5(uuid.NAMESPACE_OID, request.name))
        chosen = [facts[name] for name in dict.fromkeys(hosts)]
        plan = make_plan(request, Placement(hosts), chosen, POOLS, session_id, USER, NOW)
        for name in plan.agents:
            Store(str(by_name[name].state)).save(held(plan, name))
        _save_entry(lab.queue, request, plan)


def _requests(agents: Sequence[str], cores: int) -> Iterator[tuple[SessionSpec, tuple[str, ...]]]:
    """Yield requests, each with the agents of its containers, until all agents are full."""
    places = iter([name for name in agents for _container in range(CONTAINERS)])
    resources = {"cpu": cores, "mem": "64m"}
    for number, size in enumerate(itertools.cycle(SIZES), 1):
        hosts = tuple(itertools.islice(places, size))
        if not hosts:
            return
        options = {"name": f"session-{number:03}", "cluster_size": len(hosts), "resources": resources}
        yield spec(**options, cluster_mode="multi-node" if len({*hosts}) > 1 else "single-node"), hosts


def _facts(agent: SimulatedAgent) -> AgentFacts:
    """Return what a plan needs to know of an agent."""
    address = str(agent.address)
    return dataclasses.replace(
        agent_facts("agent1"), name=agent.name, underlay=Underlay(address, "eth0", 1500), addresses=(address,)
    )


def _save_entry(queue: Path, request: SessionSpec, plan: SessionPlan) -> None:
    digest = IMAGES[IMAGE]["Id"]
    keys = {hostname: pair.host for hostname, pair in public_keys(plan).items()}
    containers = {kernel.hostname: ContainerState("running", digest) for kernel in plan.kernels}
    record = session_record(plan, RUNNING, containers, None, keys)
    entry = QueueEntry(
        id=plan.id,
        name=plan.name,
        state=RUNNING,
        user=plan.user,
        resource_group=plan.resource_group,
        priority=request.priority,
        spec=dataclasses.asdict(request),
        record={**record, "created_at": plan.created_at},
        enqueued_at=plan.created_at,
        updated_at=plan.created_at,
        plan=plan,
    )
    (queue / f"{plan.id}.json").write_text(entry.to_json())

"""Every figure of the benchmark: its part, its meaning and its bounds."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Better = Literal["lower", "higher"]

# The parts of the benchmark and their titles in the order in which they run.
PARTS = {
    "code": "Size of the code",
    "planner": "Planner",
    "create": "Creating, repairing and ending a session of eight containers",
    "list": "Listing sessions",
    "command": "The command of users",
    "long_queue": "Beside a long queue",
    "ten_creates": "Creating at once",
    "start_up": "Start of a container",
    "network": "Network between two agents",
}


@dataclasses.dataclass(frozen=True)
class Figure:
    """One figure; ``wanted`` and ``moonshot`` are bounds that it should reach, or None."""

    part: str
    what: str
    unit: str = "ratio"
    better: Better = "lower"
    wanted: float | None = None
    moonshot: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of this figure in a report, without its value."""
        bounds = {"wanted": self.wanted, "moonshot": self.moonshot}
        defined_bounds = {name: bound for name, bound in bounds.items() if bound is not None}
        return {**defined_bounds, "better": self.better, "unit": self.unit, "what": self.what}


_WORKLOADS = {"one_agent": "one agent", "three_agents": "three agents"}
_COMMANDS = {
    "docker_run": "parallel docker run over SSH",
    "community_docker": "a loop of community.docker",
    "create": "create_session",
    "again": "create_session again",
    "terminate": "terminate_session",
}
_CPU_BOUNDS = {"create": (8, 5.5), "again": (3.5, 2.5), "terminate": (4, 3)}
_MACHINE = "CPU time of the whole machine"
# The bounds are for a machine on which an empty playbook takes one second of it.
_PLAYBOOKS = "CPU time of the whole machine / that of an empty playbook"
_IMAGES = {"python": "lab/python:1", "busybox": "lab/busybox:1"}
_ENGINES = {"engine_20": "engine 20.10", "engine_26": "engine 26.1"}


def _code() -> dict[str, Figure]:
    whole = "of plugins, roles, playbooks, extensions and the manager's program"
    return {
        "lines_plugins": Figure("code", "Lines of Python of all plugins.", "lines", wanted=20000),
        "modules": Figure("code", "Modules of the collection.", "modules", wanted=22),
        "statements": Figure("code", f"Statements of Python {whole}.", "statements"),
        "lines_yaml_shell_jinja": Figure(
            "code", f"Lines of YAML, shell and Jinja, neither blank nor comments, {whole}.", "lines"
        ),
        "lines_docstrings_comments": Figure("code", f"Lines of docstrings and comments {whole}.", "lines"),
    }


def _planner() -> dict[str, Figure]:
    placed = "Of 5,000 sessions on 1,000 nodes, half to 95 % of GPUs taken:"
    queue = "2,000 waiting sessions, 1,000 full agents:"
    late = "with all past their patience / otherwise"
    return {
        "placements_not_on_one_agent": Figure(
            "planner", f"{placed} placed on several agents though one had room.", "sessions", wanted=0
        ),
        "placements_on_surplus_agents": Figure(
            "planner", f"{placed} placed on more agents than necessary.", "sessions", wanted=0
        ),
        "placements_refused_with_room": Figure(
            "planner", f"{placed} refused though there was room.", "sessions", wanted=0
        ),
        "decision_1000_agents": Figure(
            "planner", "CPU time of the slowest kind of decision over 1,000 agents.", "ms", wanted=20
        ),
        "queue_first": Figure("planner", f"{queue} CPU time of the first pass over the queue.", "s", wanted=5),
        "queue_unchanged": Figure("planner", f"{queue} CPU time of a pass when nothing has changed.", "s", wanted=1),
        "queue_due_first": Figure("planner", f"{queue} the first pass {late}.", wanted=2, moonshot=1),
        "queue_due_unchanged": Figure(
            "planner", f"{queue} a pass when nothing has changed {late}.", wanted=2, moonshot=1
        ),
    }


def _create() -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for name, place in _WORKLOADS.items():
        create = f"create_session / (parallel docker run over SSH + an empty playbook), eight containers on {place}."
        tasks = f"A loop of community.docker / create_session, eight containers on {place}."
        again = f"create_session again with nothing to change / create_session, each less an empty playbook, {place}."
        figures[f"create_{name}"] = Figure("create", create, wanted=1.6, moonshot=1.3)
        harder = create.replace("an empty playbook", "a play without a task")
        figures[f"create_no_task_{name}"] = Figure("create", harder, wanted=2.1, moonshot=1.7)
        figures[f"tasks_{name}"] = Figure("create", tasks, better="higher", wanted=2, moonshot=3)
        figures[f"again_{name}"] = Figure("create", again, wanted=0.35, moonshot=0.25)
    for command, title in _COMMANDS.items():
        bound, moonshot = _CPU_BOUNDS.get(command, (None, None))
        text = f"{_MACHINE}: {title}, three agents."
        figures[f"cpu_{command}"] = Figure("create", text, "s", wanted=bound, moonshot=moonshot)
    for command, (bound, moonshot) in _CPU_BOUNDS.items():
        text = f"{_PLAYBOOKS}: {_COMMANDS[command]}, three agents."
        figures[f"playbooks_{command}"] = Figure("create", text, wanted=bound, moonshot=moonshot)
    figures["cpu_empty_playbook"] = Figure("create", f"{_MACHINE}: an empty playbook.", "s")
    figures["cpu_no_task"] = Figure("create", f"{_MACHINE}: a play without a task.", "s")
    return figures


def _playbooks() -> dict[str, Figure]:
    ten = "ten create_session at once with room for six, until all have ended."
    queue = "with 2,000 waiting sessions / with an empty queue"
    return {
        "list": Figure("list", "list_sessions / an empty playbook, three agents.", wanted=2, moonshot=1.5),
        "cpu_list": Figure("list", f"{_MACHINE}: list_sessions, three agents.", "s", wanted=2, moonshot=1.5),
        "playbooks_list": Figure("list", f"{_PLAYBOOKS}: list_sessions, three agents.", wanted=2, moonshot=1.5),
        "command_create": Figure("command", "backendai create / create_session, four containers.", wanted=1.2),
        "command_list": Figure("command", "backendai list / list_sessions, three agents.", wanted=1.2),
        "long_queue_create": Figure("long_queue", f"create_session {queue}.", wanted=1.5),
        "long_queue_list": Figure("long_queue", f"list_sessions {queue}.", wanted=1.5),
        "ten_creates": Figure("ten_creates", f"Wall time: {ten}", "s", wanted=90, moonshot=45),
        "cpu_ten_creates": Figure("ten_creates", f"{_MACHINE}: {ten}", "s"),
    }


def _start_up() -> dict[str, Figure]:
    text = "How much longer a session's container takes to start than a bare one"
    return {
        f"start_{name}_{engine}": Figure("start_up", f"{text}, {image}, {version}.", "s", wanted=0.08, moonshot=0.02)
        for name, image in _IMAGES.items()
        for engine, version in _ENGINES.items()
    }


def _network() -> dict[str, Figure]:
    def higher(text: str, bound: float | None = None) -> Figure:
        return Figure("network", text, better="higher", wanted=bound)

    def lower(text: str, bound: float | None = None) -> Figure:
        return Figure("network", text, wanted=bound)

    return {
        "network_stream": higher("Throughput of one TCP stream, session / Swarm.", 1.1),
        "network_streams": higher("Throughput of four TCP streams, session / Swarm.", 1.05),
        "network_round_trip": lower("Round trip of one byte over TCP, session / Swarm.", 0.85),
        "network_attach": lower("Time to make a network with its first container, session / Swarm.", 0.4),
        "network_join": lower("Time for a running container to join that network, session / Swarm."),
        "network_stream_of_underlay": higher("Throughput of one TCP stream, session / underlay."),
        "firewall_stream": higher("Throughput of one TCP stream of a session, with / without the firewall.", 0.98),
    }


FIGURES: dict[str, Figure] = {**_code(), **_planner(), **_create(), **_playbooks(), **_start_up(), **_network()}

# The comparison in the README. Each line names its figures, so that it cannot differ from the report.
COMPARISON = (
    (
        "Eight containers on one agent: `create_session` takes {create_one_agent} times as long as parallel"
        " `docker run` over SSH (no network, names or SSH) and an empty playbook; a loop of `community.docker`"
        " {tasks_one_agent} times as long as `create_session`."
    ),
    (
        "The same on three agents: {create_three_agents} and {tasks_three_agents} times."
        " Only `create_session` joins the agents by a network, and tests it."
    ),
    (
        "TCP throughput between two agents: {network_stream} of a Docker Swarm overlay's,"
        " {network_stream_of_underlay} of the underlay's."
        " The firewall leaves {firewall_stream} of it."
    ),
    (
        "Round trip between two agents: {network_round_trip} of a Swarm overlay's."
        " Making the network with its first container: {network_attach} of Swarm's time."
    ),
    "Ten `create_session` at the same moment, with room for six: {ten_creates} until all runs have ended.",
)


def of_part(part: str) -> set[str]:
    """Return the names of the figures that a part measures."""
    return {name for name, figure in FIGURES.items() if figure.part == part}

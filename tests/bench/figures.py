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
    "many_agents": "Many agents",
    "ten_creates": "Creating at once",
    "start_up": "Start of a container",
    "many_sessions": "Many sessions on one agent",
    "network": "Network between two agents",
    "gateway": "Requests through the gateway",
    "training": "Training on CPUs",
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


def reaches(value: float, bound: float, better: str) -> bool:
    """Return whether a value is as good as a bound."""
    return value <= bound if better == "lower" else value >= bound


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
_TABLES = "with the rules of 200 other sessions / without the tables"
_PATHS = {
    "underlay": "the underlay",
    "swarm": "a Docker Swarm overlay",
    "session": "a session's network",
    "wireguard": "a session's network over WireGuard",
}


def _code() -> dict[str, Figure]:
    return {
        "lines_plugins": Figure("code", "Lines of Python of all plugins.", "lines", wanted=20000),
        "modules": Figure("code", "Modules of the collection.", "modules", wanted=22),
    }


def _planner() -> dict[str, Figure]:
    def count(text: str) -> Figure:
        return Figure(
            "planner", f"Of 20,000 sessions on 1,205 nodes, 95 % of GPUs taken: {text}.", "sessions", wanted=0
        )

    def time(agents: str, bound: float) -> Figure:
        return Figure("planner", f"CPU time of the slowest kind of decision over {agents} agents.", "ms", wanted=bound)

    def mixed(which: str, wanted: float, moonshot: float) -> Figure:
        return Figure(
            "planner",
            f"{which} of the CPU times of 300 decisions about 3 to 8 unlike roles on 40 to 200 agents.",
            "ms",
            wanted=wanted,
            moonshot=moonshot,
        )

    return {
        "placements_not_on_one_agent": count("placed on several agents though one had room"),
        "placements_on_surplus_agents": count("placed on more agents than necessary"),
        "placements_refused_with_room": count("refused though there was room"),
        "decisions_per_second": Figure(
            "planner", "Such placements per second of CPU time.", "1/s", "higher", wanted=1000
        ),
        "decision_mixed_p50": mixed("The median", 10, 5),
        "decision_mixed_p99": mixed("The 99th percentile", 300, 100),
        "decision_mixed_worst": mixed("The slowest", 2000, 1000),
        "decision_10000_agents": time("10,000", 100),
        "decision_100000_agents": time("100,000", 1000),
        "facts_memory": Figure("planner", "Memory of the facts of 100,000 agents.", "GiB", wanted=1),
        **_waiting(),
    }


def _waiting() -> dict[str, Figure]:
    where = "10,000 waiting sessions, 1,213 full agents"

    def passes(what: str, wanted: float, moonshot: float) -> Figure:
        return Figure("planner", f"{where}: CPU time of {what}.", "s", wanted=wanted, moonshot=moonshot)

    def due(what: str) -> Figure:
        return Figure("planner", f"{where}: {what} with all past their patience / otherwise.", wanted=2, moonshot=1)

    return {
        "queue_first": passes("the first pass over the queue", 30, 5),
        "queue_unchanged": passes("a pass when nothing has changed", 1, 0.1),
        "queue_due_first": due("the first pass"),
        "queue_due_unchanged": due("a pass when nothing has changed"),
        "queue_lock": passes("the longest work under the queue's lock", 2, 0.2),
    }


def _create() -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for name, place in _WORKLOADS.items():
        create = f"create_session / (parallel docker run over SSH + an empty playbook), eight containers on {place}."
        tasks = f"A loop of community.docker / create_session, eight containers on {place}."
        again = f"create_session again with nothing to change / create_session, each less an empty playbook, {place}."
        figures[f"create_{name}"] = Figure("create", create, wanted=1.6, moonshot=1.3)
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
    for command, title in _COMMANDS.items():
        for name, place in _WORKLOADS.items():
            figures[f"seconds_{command}_{name}"] = Figure("create", f"Wall time: {title}, {place}.", "s")
    figures["seconds_empty_playbook"] = Figure("create", "Wall time: an empty playbook.", "s")
    return figures


def _list() -> dict[str, Figure]:
    return {
        "list": Figure("list", "list_sessions / an empty playbook, three agents.", wanted=2, moonshot=1.5),
        "cpu_list": Figure("list", f"{_MACHINE}: list_sessions, three agents.", "s", wanted=2, moonshot=1.5),
        "playbooks_list": Figure("list", f"{_PLAYBOOKS}: list_sessions, three agents.", wanted=2, moonshot=1.5),
        "seconds_list": Figure("list", "Wall time: list_sessions, three agents.", "s"),
    }


def _command() -> dict[str, Figure]:
    return {
        "command_create": Figure("command", "backendai create / create_session, four containers.", wanted=1.2),
        "command_list": Figure("command", "backendai list / list_sessions, three agents.", wanted=1.2),
        "seconds_command_cached": Figure("command", "Wall time: backendai list --cached.", "s", wanted=0.5),
    }


def _long_queue() -> dict[str, Figure]:
    where = "with 10,000 waiting sessions / with an empty queue"
    names = {"create": "create_session", "list": "list_sessions", "schedule": "schedule_sessions"}
    return {f"long_queue_{name}": Figure("long_queue", f"{text} {where}.", wanted=2) for name, text in names.items()}


def _many_agents() -> dict[str, Figure]:
    where = "with 200 simulated agents and their 500 sessions"
    control = "Peak memory of the control node's processes"
    return {
        "create_many_agents": Figure(
            "many_agents", f"create_session from cached facts, eight containers: {where} / without them.", wanted=1.5
        ),
        "list_many_agents": Figure(
            "many_agents", f"Wall time: list_sessions {where}, all on this machine.", "s", wanted=10
        ),
        "cpu_list_many_agents": Figure("many_agents", f"{_MACHINE}: list_sessions {where}.", "s"),
        "list_many_agents_memory": Figure("many_agents", f"{control}: list_sessions {where}.", "MiB", wanted=300),
    }


def _ten_creates() -> dict[str, Figure]:
    text = "ten create_session at once with room for six, until all have ended."
    return {
        "ten_creates": Figure("ten_creates", f"Wall time: {text}", "s", wanted=90, moonshot=45),
        "cpu_ten_creates": Figure("ten_creates", f"{_MACHINE}: {text}", "s"),
    }


def _start_up() -> dict[str, Figure]:
    return {
        f"start_{name}_{engine}": Figure(
            "start_up",
            f"How much longer a session's container takes to start than a bare one, {image}, {version}.",
            "s",
            wanted=0.15,
        )
        for name, image in _IMAGES.items()
        for engine, version in _ENGINES.items()
    }


def _many_sessions() -> dict[str, Figure]:
    actions = {"created": "Creating", "removed": "Removing"}
    return {
        f"many_sessions_{kind}": Figure(
            "many_sessions", f"{action} the last 20 of 100 sessions on one agent / the first 20.", wanted=1.2
        )
        for kind, action in actions.items()
    } | {
        "many_sessions_timer": Figure(
            "many_sessions", "schedule_sessions when nothing is due / list_sessions, 100 sessions.", wanted=1.2
        )
    }


def _network() -> dict[str, Figure]:
    def higher(text: str, bound: float | None = None) -> Figure:
        return Figure("network", text, better="higher", wanted=bound)

    def lower(text: str, bound: float | None = None) -> Figure:
        return Figure("network", text, wanted=bound)

    figures = {
        "network_stream": higher("Throughput of one TCP stream, session / Swarm.", 1.1),
        "network_streams": higher("Throughput of four TCP streams, session / Swarm.", 1.05),
        "network_round_trip": lower("Round trip of one byte over TCP, session / Swarm.", 0.85),
        "network_attach": lower("Time to make a network with its first container, session / Swarm.", 0.4),
        "network_join": lower("Time for a running container to join that network, session / Swarm."),
        "network_stream_of_underlay": higher("Throughput of one TCP stream, session / underlay."),
        "firewall_stream": higher("Throughput of one TCP stream of a session, with / without the firewall.", 0.98),
        "firewall_streams": higher("Throughput of four TCP streams of a session, with / without the firewall.", 0.98),
        "firewall_round_trip": lower("Round trip of one byte in a session, with / without the firewall."),
        "firewall_cpu_per_packet": lower(f"{_MACHINE} per packet of a session, with / without the firewall.", 1.03),
        "many_sessions_stream": higher(f"Throughput of one TCP stream of a session, {_TABLES}.", 0.97),
        "many_sessions_cpu_per_packet": lower(f"{_MACHINE} per packet of a session, {_TABLES}.", 1.03),
    }
    for path, title in _PATHS.items():
        figures[f"gbps_{path}"] = Figure("network", f"Throughput of one TCP stream over {title}.", "Gb/s", "higher")
    for path, title in _PATHS.items():
        figures[f"microseconds_{path}"] = Figure("network", f"Round trip of one byte over {title}.", "µs")
    return figures


def _gateway() -> dict[str, Figure]:
    rate = "Requests per second of CPU time, over one connection, each with a browser's cookie"
    return {
        "gateway": Figure("gateway", "Requests: the gateway / HAProxy without rules.", better="higher", wanted=0.8),
        "gateway_requests": Figure("gateway", f"{rate}: the gateway.", "requests/s", "higher"),
        "gateway_requests_empty": Figure("gateway", f"{rate}: HAProxy without rules.", "requests/s", "higher"),
    }


def _training() -> dict[str, Figure]:
    swarm = "three agents / the same over Docker Swarm's overlay"
    higher: Better = "higher"
    reduce = f"All-reduce of 64 MB over Gloo: {swarm}."
    return {
        "training_reduce_of_swarm": Figure("training", reduce, better=higher, wanted=1.05),
        "training_steps_of_swarm": Figure("training", f"Steps with DistributedDataParallel: {swarm}.", better=higher),
        "training_steps_of_one_agent": Figure(
            "training", "Steps with DistributedDataParallel: three agents / three containers of one.", better=higher
        ),
    }


FIGURES: dict[str, Figure] = {
    **_code(),
    **_planner(),
    **_create(),
    **_list(),
    **_command(),
    **_long_queue(),
    **_many_agents(),
    **_ten_creates(),
    **_start_up(),
    **_many_sessions(),
    **_network(),
    **_gateway(),
    **_training(),
}

# The comparison in the README. Each line names its figures, so that it cannot differ from the report.
COMPARISON = (
    (
        "Eight containers on one agent: `create_session` {seconds_create_one_agent}, a loop of `community.docker`"
        " {seconds_community_docker_one_agent}, parallel `docker run` over SSH (no network, names or SSH)"
        " {seconds_docker_run_one_agent}."
    ),
    (
        "The same on three agents: {seconds_create_three_agents}, {seconds_community_docker_three_agents} and"
        " {seconds_docker_run_three_agents}. Only `create_session` joins the agents by a network, and tests it."
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
    (
        "Ten `create_session` at the same moment, with room for six: {ten_creates} until all runs have ended."
        " A decision over 10,000 agents: {decision_10000_agents} of CPU time."
    ),
)


def of_part(part: str) -> set[str]:
    """Return the names of the figures that a part measures."""
    return {name for name, figure in FIGURES.items() if figure.part == part}

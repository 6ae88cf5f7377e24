# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables and reports for people, at any width, or for a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .text import age, clock, duration, part, printable, remaining, slot_name, slots, wrapped

_PIPE_WIDTH = 10_000
_NAMED = 3
"""How many containers that do not run are named."""

_GAP = 2
"""How many columns of a terminal are between two of a table."""


def make_console(*, stderr: bool = False) -> Console:
    """Return where text is shown; what goes to a pipe is not cut."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


def render_table(console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Show rows with headings; on a narrow terminal, cells are folded."""
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)


def session_table(
    console: Console, records: Sequence[Mapping[str, Any]], *, everybody: bool, history: bool = False
) -> None:
    """Show sessions, the oldest first; a narrow terminal lacks the columns for which it has no room.

    With ``history``, how long they ran and their exit codes take the place of when they end.
    """
    ages = ["RAN", "EXIT"] if history else ["ENDS"]
    always = ["NAME", *(["USER"] if everybody else []), "STATUS", "SIZE"]
    headings = [*always, "CPU/GPU", "AGE", *ages, "MODE", "GPU", "AGENTS"]
    cells = [_cells(record) for record in sorted(records, key=lambda record: record.get("created_at") or 0.0)]
    shown, room = {*always}, console.width + _GAP - sum(_width(cells, heading) for heading in always)
    for heading in ("CPU/GPU", "AGE", *ages, "MODE", "AGENTS", "GPU"):
        room -= _width(cells, heading)
        if room < 0:
            break
        shown.add(heading)
    chosen = [heading for heading in headings if heading in shown]
    render_table(console, chosen, [[row[heading] for heading in chosen] for row in cells])


def _width(cells: Sequence[Mapping[str, str]], heading: str) -> int:
    return max(map(len, (heading, *(printable(row[heading]) for row in cells)))) + _GAP


def _cells(record: Mapping[str, Any]) -> dict[str, str]:
    total = (record.get("resources") or {}).get("total") or {}
    accelerators = sum(value for name, value in total.items() if name not in ("cpu", "mem", "shmem"))
    agents = dict.fromkeys(str(kernel.get("agent")) for kernel in record.get("kernels") or ())
    place = record.get("queue_position")
    # Of a session without a record only its parts on agents are known, not how many there should be.
    unsure = "?" if record.get("recorded") is False else ""
    status = f"{record.get('status')}{unsure}{f' ({place})' if place else ''}"
    return {
        "NAME": str(record.get("name")),
        "USER": _owner(record),
        "STATUS": status,
        "SIZE": str(record.get("cluster_size") or "-"),
        "CPU/GPU": f"{total.get('cpu', 0)}/{accelerators}",
        "AGE": age(record.get("created_at")),
        "ENDS": remaining(record.get("ends_at")),
        "RAN": age(record.get("started_at"), record.get("ended_at")),
        "EXIT": "-" if record.get("exit_code") is None else str(record["exit_code"]),
        "MODE": _mode(record) or "-",
        "GPU": _models(record) or "-",
        "AGENTS": ",".join(agents) or "-",
    }


def _mode(record: Mapping[str, Any]) -> str:
    """Return the mode of a session, and the number of its containers; empty if it has one."""
    size = record.get("cluster_size") or 1
    return f"{str(record.get('cluster_mode') or '-').capitalize()} · {size}" if size > 1 else ""


def _containers(record: Mapping[str, Any]) -> str:
    """Return how many containers a session has, and where they are."""
    size, agents = record.get("cluster_size") or 0, {kernel.get("agent") for kernel in record.get("kernels") or ()}
    if size < 2:
        return str(size or "")
    where = f" on {len(agents)} agent{'' if len(agents) == 1 else 's'}" if agents else ""
    return f"{size}, {record.get('cluster_mode')}{where}"


def _models(record: Mapping[str, Any]) -> str:
    return ", ".join(str(model).removeprefix("NVIDIA ") for model in record.get("gpu_models") or ())


def _use(record: Mapping[str, Any]) -> str:
    """Return what a session uses; empty if it was not measured."""
    use = record.get("use")
    if not isinstance(use, Mapping):
        return ""
    cores = (record.get("resources") or {}).get("total", {}).get("cpu")
    gpus = ", ".join(f"{percent} %" for percent in use.get("gpus") or ())
    return f"{use.get('cpu')} of {cores} core{'' if cores == 1 else 's'}{f'; GPUs {gpus}' if gpus else ''}"


def _owner(record: Mapping[str, Any]) -> str:
    """Return whose a session is: of one that only agents know, nobody's."""
    if record.get("recorded") is False:
        return "(no record)"
    return f"{record.get('user')}{' (gone)' if record.get('owner_gone') else ''}"


def describe_session(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of ``show``."""
    yield f"{record.get('name')} is {record.get('status')}."
    yield from (f"  {line}" for line in explain(record))
    resources, created = record.get("resources") or {}, record.get("created_at")
    facts = {
        "id": record.get("id"),
        "user": _owner(record),
        "image": record.get("image"),
        "containers": _containers(record),
        "each container": slots(resources.get("container") or {}),
        "in all": slots(resources.get("total") or {}),
        "GPU": _models(record),
        "used now": _use(record),
        "resource group": record.get("resource_group"),
        "created": f"{clock(created)}, {age(created)} ago" if created else "",
        "folders": ", ".join(_folder(mount) for mount in record.get("mounts") or ()),
        "apps": ", ".join(str(app.get("name")) for app in record.get("apps") or ()),
    }
    yield from (f"  {name:<16}{value}" for name, value in facts.items() if value)
    for kernel in record.get("kernels") or ():
        where = "  ".join(str(kernel.get(field) or "-") for field in ("agent", "address", "status"))
        yield f"  {kernel.get('hostname'):<16}{where}"


def _folder(mount: Mapping[str, Any]) -> str:
    return f"{mount.get('target')}{' (read only)' if mount.get('read_only') else ''}"


def next_steps(record: Mapping[str, Any], access: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how a session that runs is used, and ended; ``access`` is how gateways lead to it."""
    name = record.get("name")
    linked = dict.fromkeys(str(app.get("name")) for link in access for app in link.get("apps") or () if app.get("url"))
    # What was asked for, before what comes without asking.
    apps = [app for app in linked if app != "terminal"] or [*linked]
    more = f" (or {', '.join(app for app in linked if app != apps[0])})" if len(linked) > 1 else ""
    opened = f"open {apps[0]}{more} with backendai open {name} {apps[0]}; " if apps else ""
    yield f"Log in with backendai ssh {name}; {opened}end it with backendai end {name}."


def explain(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a session is as it is, and what to do."""
    name, status = record.get("name"), record.get("status")
    pending = record.get("pending") or {}
    if status == "PENDING":
        place = record.get("queue_position")
        where = f", at place {place} of its resource group" if place else ""
        yield f"It waits{where}: {pending.get('reason') or 'for the next run of the timer'}"
        yield from (f"It lacks {lacking}." for lacking in [_shortfall(pending.get("shortfall"))] if lacking)
        yield from _prospects(pending)
    elif status == "RUNNING":
        yield from _life(record)
        yield from _storage(record.get("closed_storage"))
    elif status == "DEGRADED":
        yield f"A part of it does not work: {record.get('error') or _failed(record)}"
        yield f"backendai repair {name} repairs it."
        yield from _life(record)
        yield from _storage(record.get("closed_storage"))
    elif status == "CREATING":
        yield "It is being created, or a run that did was interrupted; the timer's next run decides."
    else:
        yield f"It has ended: {record.get('reason') or record.get('error') or 'no reason is known'}"
        if record.get("exit_code") is not None:
            yield f"Its command ended with {record['exit_code']}; backendai logs {name} shows what it printed."
        yield from _life(record)


def _failed(record: Mapping[str, Any]) -> str:
    """Return which containers of a session do not run."""
    kernels = [kernel for kernel in record.get("kernels") or () if kernel.get("status") != "running"]
    # Of agents that say nothing there is an error. One that answers and does not know a container has none.
    states = [str(kernel.get("status")).replace("unknown", "missing") for kernel in kernels]
    named = [
        f"{kernel.get('hostname')} on {kernel.get('agent')} is {state}"
        for kernel, state in zip(kernels, states, strict=True)
    ]
    more = f", and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return f"{', '.join(named[:_NAMED])}{more}" if named else "a container has failed"


def _life(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield since when a session has run and when its time is up, or how long it ran, as far as that is known."""
    since, ended, ends = (record.get(name) for name in ("started_at", "ended_at", "ends_at"))
    if since and ended:
        yield f"It ran for {duration(ended - since)}, until {clock(ended)}."
    elif since:
        yield f"It has run for {age(since)}, since {clock(since)}."
    elif record.get("status") == "RUNNING":
        yield "It runs."
    if ends:
        yield f"Its time is up in {remaining(ends)}, at {clock(ends)}."


def _storage(services: Any) -> Iterator[str]:
    """Yield which storage services the containers of a session do not reach."""
    for service in services if isinstance(services, list) else ():
        if isinstance(service, Mapping):
            yield (
                f"Its containers on {service.get('agent')} do not reach {service.get('description')}; operators open it"
                " with agent_open_storage."
            )


def announce_wait(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about a new session that waits: for what, why, and what may be done."""
    name, pending, place = record.get("name"), record.get("pending") or {}, record.get("queue_position")
    lacking, end = _shortfall(pending.get("shortfall")), pending.get("next_end_at")
    where = [f"place {place}"] if place else []
    where += [f"the next end is at {clock(end)} by its limit"] if end else []
    yield f"{name} waits{f' for {lacking}' if lacking else ''}{': ' if where else ''}{', '.join(where)}."
    yield f"  {pending.get('reason') or 'The next run of the timer looks at it'}"
    yield from (f"  {line}" for line in _prospects({**pending, "next_end_at": None}))
    yield f"It starts by itself; backendai why {name} says how it stands, backendai end {name} cancels it."


def _prospects(pending: Mapping[str, Any]) -> Iterator[str]:
    """Yield what may be expected of a session that waits."""
    outlook = str(pending.get("outlook") or "")
    if outlook:
        yield f"{outlook[0].upper()}{outlook[1:]}."
    if pending.get("next_end_at"):
        yield f"The next end is at {clock(pending['next_end_at'])} by its limit."


def _shortfall(shortfall: Any) -> str:
    """Return what a session that waits lacks."""
    amounts = shortfall if isinstance(shortfall, Mapping) else {}
    return slots({str(slot): value for slot, value in amounts.items() if isinstance(value, int)})


def show_logs(console: Console, report: Mapping[str, Any]) -> None:
    """Show the logs of containers and apps."""
    several = len(report.get("kernels") or ()) > 1
    for kernel in report.get("kernels") or ():
        code = kernel.get("exit_code")
        if several or kernel.get("apps"):
            ended = "" if code is None else f" with code {code}"
            console.out(f"== {kernel.get('hostname')} on {kernel.get('agent')}: {kernel.get('status')}{ended} ==")
        for line in kernel.get("log") or ():
            console.out(printable(str(line).rstrip("\r")))
        for app, log in (kernel.get("apps") or {}).items():
            console.out(f"== {kernel.get('hostname')}, app {printable(str(app))} ==")
            for line in log:
                console.out(printable(str(line).rstrip("\r")))
        if kernel.get("error"):
            console.out(f"== {kernel.get('hostname')}: {printable(str(kernel['error']))} ==")


def show_agents(console: Console, data: Mapping[str, Any]) -> None:
    """Show what is free and what there is of each slot, by agent, and what would start now in each resource group."""
    agents = data.get("agents") or ()
    names = dict.fromkeys(str(slot) for agent in agents for slot in agent.get("total") or {})
    rows = [
        [
            str(agent.get("name")),
            str(agent.get("resource_group") or "-"),
            str(agent.get("status")),
            *(_free_of_total(agent, slot) for slot in names),
        ]
        for agent in agents
    ]
    headings = [f"FREE {slot_name(slot).upper()}" for slot in names]
    render_table(console, ["AGENT", "GROUP", "STATUS", *headings], rows)
    for agent in agents:
        gpus = ", ".join(f"{kind.get('count')} × {kind.get('model')}" for kind in agent.get("gpus") or ())
        if gpus:
            _say(console, f"{agent.get('name')}: {gpus}")
        if agent.get("problem"):
            _say(console, f"{agent.get('name')}: {agent['problem']}")
    for group in data.get("groups") or ():
        for largest in group.get("largest_sessions") or ():
            size, one = largest.get("containers") or 0, largest.get("on_one_agent") or 0
            each = slots(largest.get("resources") or {})
            largest_now = f"the largest session that would start now is {size} × ({each}), or {one} on one agent"
            text = largest_now if size else f"no container with {each} would start now"
            _say(console, f"{group.get('resource_group')}: {text}")


def _say(console: Console, text: str) -> None:
    for line in wrapped(printable(text), console.width):
        console.out(line)


def _free_of_total(agent: Mapping[str, Any], slot: str) -> str:
    free, total = ((agent.get(side) or {}).get(slot) for side in ("free", "total"))
    return "-" if total is None else part(slot, free or 0, "/", total)


def show_limits(console: Console, data: Mapping[str, Any]) -> None:
    """Show what a user may have, has, and could have now."""
    held, life, default = data["held"], data["max_lifetime"], ", ".join(data["default_apps"])
    per_gpu = ", ".join(f"{slot} {value}" for slot, value in data["per_gpu"].items())
    rows = [
        ("images", data["images"]),
        (
            "folders",
            [
                f"{each['name']}: {each['target']}{', read only' if each['read_only'] else ''}"
                for each in data["folders"]
            ]
            or ["none"],
        ),
        ("resource groups", data["resource_groups"]),
        ("network drivers", data["drivers"]),
        ("longest life", [duration(life) if life else "no bound"]),
        ("priority", [f"0 to {data['max_priority']}"]),
        ("apps", [f"{', '.join(data['known_apps'])}, or your own; {data['max_apps']} of a session"]),
        ("", [f"{default} in each session; others by create --app NAME"] if default else ["by create --app NAME"]),
        ("with each GPU", [per_gpu or "as much cpu and mem as agents have for each of their GPUs"]),
        (
            "sessions",
            [f"{held['running']} of {data['max_sessions']} run, {held['waiting']} of {data['max_waiting']} wait"],
        ),
        ("containers", [f"{held['containers']} of {data['max_containers']}"]),
        ("you hold", [slots(held["resources"]) or "nothing"]),
        *((f"free in {group['resource_group']}", [_free(group)]) for group in data["free"] or ()),
        *([("free", ["not known: the agents could not be listed"])] if data["free"] is None else []),
    ]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, lines in rows:
        for at, line in enumerate(lines):
            table.add_row(*(Text(printable(cell)) for cell in ("" if at else name, str(line))))
    console.print(table)


def _free(group: Mapping[str, Any]) -> str:
    free, total = group["free"], group["total"]
    return ", ".join(f"{slot_name(slot)} {part(slot, free.get(slot, 0), ' of ', total[slot])}" for slot in total)

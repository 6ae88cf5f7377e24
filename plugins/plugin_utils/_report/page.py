# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of sessions and agents: one file of HTML that loads nothing.

Its data is JSON in the page, which the script shows as text: nothing of it is markup. A policy in the page allows its
own script and style only, by their digests.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import jinja2
from markupsafe import Markup

from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.printable import printable, printable_data
from ...module_utils._model.quantity import describe_slot

_NEXT = {
    "PENDING": "It starts by itself as soon as there is room for it.",
    "CREATING": "Its containers are started and tested.",
    "DEGRADED": "repair_session repairs it.",
    "ERROR": "Remove the cause, then create it again.",
}
"""What comes next, by status; the other statuses need no words."""


@dataclasses.dataclass(frozen=True)
class PageSources:
    """The parts of the page: a Jinja template, and the style and the script that it includes."""

    template: str
    style: str
    script: str


def render_page(
    sources: PageSources,
    records: Iterable[Mapping[str, Any]],
    agents: Mapping[str, AgentFacts],
    unavailable: Mapping[str, str],
    timer: Mapping[str, Any],
    now: float,
) -> str:
    """Return the page of these records, of unavailable agents with the reason, agents with facts, and the timer."""
    names = [*sorted(unavailable), *sorted(agents)]
    sessions = [_session(record) for record in records]
    hosts = [_agent(name, agents[name]) if name in agents else _unavailable(name, unavailable[name]) for name in names]
    data = printable_data({"now": now, "timer": timer, "sessions": sessions, "agents": hosts})
    page = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(sources.template)
    return page.render(
        sessions=data["sessions"],
        agents=data["agents"],
        style=Markup(sources.style),
        script=Markup(sources.script),
        style_digest=_digest(sources.style),
        script_digest=_digest(sources.script),
        data=Markup(_embeddable(data)),
    )


def _digest(text: str) -> str:
    """Return the digest of a script or style as a content security policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _embeddable(data: object) -> str:
    """Return data as JSON that no HTML parser takes for markup."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _session(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a session, without empty fields."""
    status, size = record["status"], record["cluster_size"]
    resources, network = record.get("resources") or {}, record.get("network") or {}
    shown = {
        "id": record["id"],
        "name": record["name"] or record["id"] or "-",
        "status": status,
        "mode": str(record["cluster_mode"] or "").capitalize() if size and size > 1 else "",
        "size": size,
        "group": record["resource_group"],
        "total": _amounts(resources.get("total", {})),
        "each": _amounts(resources.get("container", {})) if size and size > 1 else "",
        "network": ", ".join(str(network[key]) for key in ("driver", "subnet") if network.get(key)),
        "kernels": [_kernel(kernel) for kernel in record["kernels"]],
        "apps": [f"{app['name']} ({app['protocol']}, port {app['port']})" for app in record["apps"]],
        "why": _why(record),
        "next": _next_step(record),
    }
    times = ("created_at", "started_at", "ended_at", "ends_at")
    for name in ("user", "image", "exit_code", "queue_position", *times):
        value = record.get(name)
        shown[name] = int(value) if name in times and value is not None else value
    return {name: value for name, value in shown.items() if value not in (None, "", [])}


def _kernel(kernel: Mapping[str, Any]) -> list[str]:
    """Return hostname, agent, address and, unless it runs, the status of a container."""
    status = kernel.get("status") or "unknown"
    return [kernel["hostname"], kernel["agent"], kernel["address"] or "", *([status] if status != "running" else [])]


def _why(record: Mapping[str, Any]) -> str:
    """Return why a session waits, is degraded, or has ended."""
    reason = (record["pending"] or {}).get("reason") or record.get("reason") or record["error"]
    if reason or record["status"] != "DEGRADED":
        return str(reason or "")
    failed = [kernel for kernel in record["kernels"] if kernel.get("status") not in ("running", "unknown")]
    unknown = sorted({kernel["agent"] for kernel in record["kernels"] if kernel.get("status") == "unknown"})
    reasons = [f"{kernel['hostname']} on {kernel['agent']}: {kernel['status']}" for kernel in failed]
    reasons += [f"nothing is known of its containers on {', '.join(unknown)}"] if unknown else []
    return "; ".join(reasons)


def _next_step(record: Mapping[str, Any]) -> str:
    """Return what comes next, in sentences; an error of a degraded session says it itself."""
    if record["status"] == "DEGRADED" and record["error"]:
        return ""
    position = record.get("queue_position")
    place = f" It is number {position} in the queue." if position else ""
    return _NEXT.get(record["status"], "") + place


def _agent(name: str, facts: AgentFacts) -> dict[str, Any]:
    """Return what the page shows of an agent: of each slot, its name, what is taken, and what there is."""
    return {
        "name": name,
        "group": facts.resource_group,
        "containers": facts.containers,
        "note": _note(facts),
        "slots": [
            [slot, _share(facts, slot), f"{describe_slot(slot, facts.free[slot])} of {describe_slot(slot, there)} free"]
            for slot, there in facts.capacity.items()
            if there
        ],
    }


def _note(facts: AgentFacts) -> str:
    if facts.schedulable:
        return ""
    return "takes no new sessions" + (f": {facts.cordon.description}" if facts.cordon else "")


def _share(facts: AgentFacts, slot: str) -> int:
    """Return how much of a slot is taken, in percent."""
    return min(100, round(100 * facts.allocated.get(slot, 0) / facts.capacity[slot]))


def _unavailable(name: str, reason: str) -> dict[str, Any]:
    return {"name": name, "group": "", "containers": 0, "note": printable(reason), "away": True, "slots": []}


def _amounts(slots: Mapping[str, int]) -> str:
    """Return slots for people, such as ``8 CPU, 64 GiB, 2 cuda.device``; they break only between slots."""
    texts = [f"{describe_slot(slot, amount)} {_NAMES.get(slot, slot)}".strip() for slot, amount in slots.items()]
    return ", ".join(text.replace(" ", "\u00a0") for text in texts)


_NAMES = {"cpu": "CPU", "mem": "", "shmem": "shared memory"}

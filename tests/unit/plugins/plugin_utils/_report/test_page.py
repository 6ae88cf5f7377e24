"""The page of sessions and agents: what it says, and that data is never markup."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import ContainerState
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Unschedulable
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.page import PageSources, render_page
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import (
    ended_record,
    session_record,
    unplanned_record,
)
from tests.unit.builders import GIB, NOW, REPOSITORY, SESSION_ID, agent_facts, plan, spec

FOLDER = REPOSITORY / "roles/session/templates/page"
SOURCES = PageSources(*((FOLDER / name).read_text() for name in ("page.html.j2", "page.css", "page.js")))
ALL_RUN = {name: ContainerState("running", None) for name in ("main1", "sub1", "sub2", "sub3")}
HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>&\x1b[2J\u202e\u2028"
SHOWN = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>&\\x1b[2J\\u202e\\u2028"


def page(*records: dict[str, Any], agents: Any = (), unavailable: Any = (), timer: Any = ()) -> str:
    return render_page(SOURCES, records, dict(agents), dict(unavailable), dict(timer), NOW)


def data_of(html: str) -> dict[str, Any]:
    """Return the data of a page, as its script reads it."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def session_of(record: dict[str, Any]) -> dict[str, Any]:
    (session,) = data_of(page(record))["sessions"]
    return dict(session)


def test_session_has_its_containers_resources_and_times() -> None:
    made = plan(apps=[{"name": "jupyter", "port": 8888}], resources={"cpu": 2, "mem": "4g", "shmem": "512m"})
    assert session_of(session_record(made, "RUNNING", ALL_RUN)) == {
        "id": SESSION_ID,
        "name": "train-llm",
        "status": "RUNNING",
        "mode": "Multi-node",
        "size": 4,
        "group": "default",
        "total": "8\u00a0CPU, 16\u00a0GiB, 2\u00a0GiB\u00a0shared\u00a0memory",
        "each": "2\u00a0CPU, 4\u00a0GiB, 512\u00a0MiB\u00a0shared\u00a0memory",
        "network": f"vxlan, {made.network.subnet if made.network else ''}",
        "kernels": [[kernel.hostname, kernel.agent, kernel.address] for kernel in made.kernels],
        "apps": ["jupyter (http, port 8888)"],
        "user": "alice",
        "image": "lab/python:1",
        "created_at": int(NOW),
        "started_at": int(NOW),
    }


def test_slots_of_any_name_are_shown() -> None:
    record = session_record(plan(), "RUNNING", ALL_RUN)
    resources = {"container": {"{x}": 1}, "total": {"{x}": 4}}
    assert session_of({**record, "resources": resources})["total"] == "4\u00a0{x}"
    large = {"container": {}, "total": {"mem": 20_481 << 29}}
    assert session_of({**record, "resources": large})["total"] == "10240.5\u00a0GiB"


def test_one_container_is_neither_single_node_nor_multi_node() -> None:
    session = session_of(session_record(plan({"agent1": 1}), "RUNNING", ALL_RUN))
    assert (session["size"], session["total"]) == (1, "1\u00a0CPU, 1\u00a0GiB")
    assert not session.keys() & {"mode", "each"}


def test_waiting_session_says_why_and_what_comes_next() -> None:
    waiting = unplanned_record(spec(), "train-llm", "PENDING", SESSION_ID, no_room=Unschedulable("no room", {}))
    session = session_of({**waiting, "queue_position": 3})
    assert (session["why"], session["next"]) == (
        "no room",
        "It starts by itself as soon as there is room for it. It is number 3 in the queue.",
    )


@pytest.mark.parametrize(
    ("states", "error", "why"),
    [
        ({"sub1": ContainerState("exited", None, 1)}, None, "sub1 on agent1: exited"),
        ({"sub1": ContainerState("exited", None, 1)}, "its agents disagree", "its agents disagree"),
        ({"sub2": None, "sub3": None}, None, "nothing is known of its containers on agent2"),
    ],
)
def test_degraded_session_says_which_containers_failed(states: dict[str, Any], error: str | None, why: str) -> None:
    containers = {name: state for name, state in {**ALL_RUN, **states}.items() if state}
    session = session_of(session_record(plan(), "DEGRADED", containers, error))
    assert session["why"] == why
    assert session.get("next") == (None if error else "repair_session repairs it.")
    assert [kernel[3] for kernel in session["kernels"] if len(kernel) > 3] == [
        state.status if state else "unknown" for state in states.values()
    ]


def test_ended_session_has_reason_and_exit_code() -> None:
    ended = ended_record(session_record(plan(), "RUNNING"), "TERMINATED", "the command ended", 3, NOW, NOW + 60)
    session = session_of(ended)
    assert (session["why"], session["exit_code"], session["ended_at"]) == ("the command ended", 3, int(NOW) + 60)
    assert "next" not in session


def test_agents_have_bars_of_what_is_taken() -> None:
    busy = agent_facts("agent2", cpu=8, mem=16 * GIB, allocated={"cpu": 6, "mem": 16 * GIB}, containers=2)
    draining = dataclasses.replace(agent_facts("agent1", capacity={"cpu": 4, "cuda.device": 0}), schedulable=False)
    html = page(agents={"agent2": busy, "agent1": draining}, unavailable={"agent0": "no route to host"})
    agents = {agent.pop("name"): agent for agent in data_of(html)["agents"]}
    assert agents == {
        "agent0": {"group": "", "containers": 0, "note": "no route to host", "away": True, "slots": []},
        "agent1": {
            "group": "default",
            "containers": 0,
            "note": "takes no new sessions",
            "slots": [["cpu", 0, "4 of 4 free"]],
        },
        "agent2": {
            "group": "default",
            "containers": 2,
            "note": "",
            "slots": [["cpu", 75, "2 of 8 free"], ["mem", 100, "0 of 16 GiB free"]],
        },
    }


def test_markup_and_control_characters_are_data() -> None:
    record = {**unplanned_record(None, HOSTILE, "ERROR", SESSION_ID, error=HOSTILE), "user": HOSTILE}
    html = page(record, unavailable={HOSTILE: HOSTILE})
    data = data_of(html)
    (session,), (agent,) = data["sessions"], data["agents"]
    assert {session[key] for key in ("name", "why", "user")} | {agent[key] for key in ("name", "note")} == {SHOWN}
    assert html.count("<script") == html.count("</script") == 2
    assert not re.search("<img|<!--|[\x1b\u202e\u2028]", html)


def test_page_allows_its_own_script_and_style_only() -> None:
    html = page(session_record(plan(), "RUNNING"))
    parts = {
        "style": re.findall(r"<style>(.*?)</style>", html, re.DOTALL),
        "script": re.findall(r"<script>(.*?)</script>", html, re.DOTALL),
    }
    for kind, (content,) in parts.items():
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in html
    assert "default-src 'none'" in html
    assert re.findall(r"(?:src|href)=\"(?!data:)|url\(|@import|\bhttps?://(?!www\.w3\.org/2000/svg)", html) == []


def test_page_is_a_table_without_its_script() -> None:
    html = page(session_record(plan(), "RUNNING"), unplanned_record(None, "<b>", "ERROR", error="a & b"))
    (table,) = re.findall(r"<noscript>.*?<table>(.*?)</table>", html, re.DOTALL)
    assert "<td>train-llm</td><td>RUNNING</td><td>alice</td><td>4</td><td></td>" in table
    assert "<td>&lt;b&gt;</td><td>ERROR</td><td></td><td></td><td>a &amp; b</td>" in table


def test_the_page_says_why_an_agent_takes_no_new_sessions() -> None:
    cordon = {"reason": "disk", "by": "carol", "since": NOW}
    html = page(agents={"agent1": agent_facts("agent1", schedulable=False, cordon=cordon)}, unavailable={})
    (agent,) = data_of(html)["agents"]
    assert agent["note"] == "takes no new sessions: cordoned by carol (disk)"


def test_page_says_when_the_timer_ran_and_how_long_that_may_be_ago() -> None:
    timer = {"host": "manager1", "ran_at": NOW, "late_at": NOW + 300, "problem": ""}
    assert data_of(page(timer=timer))["timer"] == timer
    assert data_of(page())["timer"] == {}

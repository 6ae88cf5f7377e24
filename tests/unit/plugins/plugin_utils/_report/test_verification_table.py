"""The rendered report of a verified session."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._report.verification_table import (
    render_matrix,
    render_verification,
)

WELL = {"name": True, "tcp": True, "frame": True, "ssh": True, "ssh_error": None}
NOTHING = dict.fromkeys(WELL)
MOUNT = {"target": "/data", "compared": "marker", "same": True, "differing": [], "unknown": [], "marker_left": False}


def pair(source: str, target: str, **changes: Any) -> dict[str, Any]:
    return {"from": source, "to": target, **WELL, **changes}


def report(**changes: Any) -> dict[str, Any]:
    healthy: dict[str, Any] = {
        "session": {"name": "train-llm"},
        "error": None,
        "agents": {},
        "drift": [],
        "pairs": [],
        "mounts": [],
    }
    return {**healthy, "pairs": [pair("main1", "main1")], **changes}


def test_the_table_has_what_fails() -> None:
    rows = [
        pair("main1", "main1"),
        pair("main1", "sub1"),
        pair("main1", "sub2", tcp=False, frame=False, ssh=None),
        pair("sub1", "main1", name=False),
        pair("sub1", "sub1", ssh=False, ssh_error="no"),
        pair("sub1", "sub2"),
        *(pair("sub2", target, **NOTHING) for target in ("main1", "sub1", "sub2")),
    ]
    assert render_matrix(rows) == [
        "from   main1  sub1  sub2",
        "main1  ok     ok    tcp,mtu",
        "sub1   name   ssh   ok",
        "sub2   ?      ?     ?",
    ]


def test_a_healthy_session_is_a_table_and_a_verdict() -> None:
    assert render_verification(report()) == ["from   main1", "main1  ok", "Session train-llm is healthy."]


def test_everything_that_is_wrong_has_a_line() -> None:
    failing = report(
        error="the session 'train-llm' is not healthy: ….",
        agents={"agent3": "no route to host"},
        drift=[
            {"agent": "agent1", "subject": "link bax-1", "actual": "mtu 1400", "expected": "mtu 1450"},
            {"agent": "agent1", "subject": "neighbour 10.128.0.9 on bax-1", "actual": "02:ba", "expected": None},
            {"agent": "agent2", "subject": "container backendai-train-llm-sub2", "actual": None, "expected": "running"},
        ],
    )
    assert render_verification(failing)[2:] == [
        "agent3 is unavailable: no route to host.",
        "agent1: link bax-1: mtu 1400 -> mtu 1450",
        "agent1: neighbour 10.128.0.9 on bax-1: 02:ba -> removed",
        "agent2: container backendai-train-llm-sub2: missing -> running",
        "Session train-llm is not healthy.",
    ]


def test_pairs_that_fail_alike_share_a_line() -> None:
    names = ("main1", "sub1", "sub2")
    dead = {"tcp": False, "frame": False, "ssh": None}
    pairs = [pair(source, other, **(dead if other == "sub2" != source else {})) for source in names for other in names]
    pairs[3] = pair("sub1", "main1", ssh=False, ssh_error="Permission denied")
    assert render_verification(report(pairs=pairs))[4:-1] == [
        "main1, sub1 -> sub2: tcp, mtu",
        "sub1 -> main1: ssh: Permission denied",
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "the same in all containers (compared by a marker file of main1)"),
        (
            {"compared": "names"},
            (
                "the same in all containers"
                " (main1 could not create a marker file: compared by the names in the top folder)"
            ),
        ),
        (
            {"differing": ["sub1", "sub2"]},
            "differs from main1 in sub1, sub2 (compared by a marker file of main1)",
        ),
        (
            {"compared": None, "unknown": ["main1"]},
            "unknown for main1 (user work of main1 cannot read it, or was not checked)",
        ),
        (
            {"differing": ["sub1"], "unknown": ["sub2"], "marker_left": True},
            (
                "differs from main1 in sub1; unknown for sub2; the marker file could not be removed"
                " (compared by a marker file of main1)"
            ),
        ),
    ],
    ids=["same", "names", "apart", "unknown", "all of it"],
)
def test_a_mount_says_how_it_was_compared(changes: dict[str, Any], line: str) -> None:
    assert render_verification(report(mounts=[{**MOUNT, **changes}]))[2] == f"mount /data: {line}"

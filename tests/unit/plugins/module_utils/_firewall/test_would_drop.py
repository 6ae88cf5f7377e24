"""What report mode has counted: read from nft, and written back into new tables."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import FirewallError
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.would_drop import (
    WouldDrop,
    parse_would_drop,
    read_would_drop,
    render_elements,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.reported_traffic import ReportedTraffic


def element(packets: int, *key: str | int) -> dict[str, Any]:
    return {"elem": {"val": {"concat": [*key]}, "counter": {"packets": packets, "bytes": 60 * packets}}}


def counting(chain: str, packets: int) -> dict[str, Any]:
    return {"rule": {"chain": chain, "expr": [{"counter": {"packets": packets, "bytes": 0}}]}}


LISTING = {
    "nftables": [
        {"metainfo": {"version": "1.0.6"}},
        {"table": {"name": "backendai"}},
        {"set": {"name": "agents", "elem": ["192.0.2.1"]}},
        {"set": {"name": "reported_ports4", "elem": [element(3, "192.0.2.9", "tcp", 22)]}},
        {"set": {"name": "reported_ports6", "elem": [element(9, "2001:db8::9", "udp", 161)]}},
        {"set": {"name": "reported_others4", "elem": [element(1, "192.0.2.9", "vrrp")]}},
        {"set": {"name": "reported_others6"}},
        {"set": {"name": "reported_routed_ports4", "elem": [element(2, "192.0.2.9", "tcp", 80, "10.1.0.2")]}},
        {"set": {"name": "dropped_storage4", "elem": [element(8, "172.18.0.2", "tcp", 2049, "192.0.2.7")]}},
        {"rule": {"chain": "report_ingress", "expr": [{"limit": {}}, {"log": {}}]}},
        counting("report_ingress", 5),
        counting("report_routed", 2),
        counting("drop_ingress", 1000),
    ]
}


def test_entries_are_listed_by_their_packets_and_the_rest_is_counted() -> None:
    found = parse_would_drop(LISTING)
    assert found.traffic == [
        ReportedTraffic("2001:db8::9", "udp", 161, None, 9),
        ReportedTraffic("192.0.2.9", "tcp", 22, None, 3),
        ReportedTraffic("192.0.2.9", "tcp", 80, "10.1.0.2", 2),
        ReportedTraffic("192.0.2.9", "vrrp", None, None, 1),
    ]
    assert found.unlisted == 7
    assert found.storage == [ReportedTraffic("172.18.0.2", "tcp", 2049, "192.0.2.7", 8)]


def test_entries_are_written_back_with_their_counters() -> None:
    lines = render_elements(parse_would_drop(LISTING).elements).splitlines()
    assert lines == [
        "add element inet backendai reported_ports4 { 192.0.2.9 . tcp . 22 counter packets 3 bytes 180 }",
        "add element inet backendai reported_ports6 { 2001:db8::9 . udp . 161 counter packets 9 bytes 540 }",
        "add element inet backendai reported_others4 { 192.0.2.9 . vrrp counter packets 1 bytes 60 }",
        (
            "add element inet backendai reported_routed_ports4"
            " { 192.0.2.9 . tcp . 80 . 10.1.0.2 counter packets 2 bytes 120 }"
        ),
    ]


def test_what_was_dropped_before_storage_is_written_back_too() -> None:
    assert render_elements(parse_would_drop(LISTING).dropped) == (
        "add element inet backendai dropped_storage4"
        " { 172.18.0.2 . tcp . 2049 . 192.0.2.7 counter packets 8 bytes 480 }\n"
    )


def test_rules_that_do_not_report_have_nothing() -> None:
    assert parse_would_drop({"nftables": [counting("drop_ingress", 9)]}) == WouldDrop()


def program(folder: Path, text: str) -> None:
    (folder / "nft").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "nft").chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the program nft."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin:/bin")
    return tmp_path


def test_the_table_is_read_as_json(folder: Path) -> None:
    (folder / "listing").write_text(json.dumps(LISTING))
    program(folder, f'[ "$*" = "--json list table inet backendai" ] && cat {folder}/listing')
    assert read_would_drop() == parse_would_drop(LISTING)


def test_a_host_without_our_table_has_nothing(folder: Path) -> None:
    program(folder, "echo 'Error: No such file or directory' >&2; exit 1")
    assert read_would_drop() == WouldDrop()


def test_an_error_of_nft_is_passed_on(folder: Path) -> None:
    program(folder, "echo 'Error: Operation not permitted' >&2; exit 1")
    with pytest.raises(FirewallError, match="nft: Error: Operation not permitted"):
        read_would_drop()


def test_a_missing_nft_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FirewallError, match="nft is not installed on this host"):
        read_would_drop()

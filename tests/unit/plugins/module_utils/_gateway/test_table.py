"""The firewall table of a gateway, with the processes faked: what nft lists, and what is made of it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._core.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._core.gateway import Gateway
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.fault import GatewayFault
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.table import apply_table, plan_table, table_of

GATEWAY = Gateway("door", "", 443, 31001, 32000)
LISTING = """\
table inet backendai_gateway {{
\tset ssh_ports {{
\t\ttype inet_service
\t\telements = {{ {} }}
\t}}

\tchain input {{
\t\ttype filter hook input priority filter; policy accept;
\t\ttcp dport 31001-32000 tcp dport != @ssh_ports ct state new counter drop
\t}}
}}
"""
MISSING = "Error: No such file or directory\nlist table inet backendai_gateway\n"
TABLE = "firewall table inet backendai_gateway"


class Host:
    """What ``nft`` says of this host's table and of the wanted one, and what it was given."""

    def __init__(self, found: tuple[int, str], due: tuple[int, str]) -> None:
        self.found, self.due = found, due
        self.given: list[str] = []

    def __call__(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.given.append(str(options["input"]))
        code, text = self.found if "list" in command else self.due
        return subprocess.CompletedProcess(command, code, "" if code else text, text if code else "")


def on_host(monkeypatch: pytest.MonkeyPatch, found: tuple[int, str], due: tuple[int, str]) -> Host:
    host = Host(found, due)
    monkeypatch.setattr(subprocess, "run", host)
    return host


def test_the_table_names_the_ports_of_living_sessions() -> None:
    text = table_of([31007, 31002], GATEWAY)
    assert text.index("delete table inet backendai_gateway") < text.index("elements = { 31002, 31007 }")
    assert "tcp dport 31001-32000 tcp dport != @ssh_ports ct state new counter drop" in text
    assert "elements" not in table_of([], GATEWAY)


def test_the_order_of_ports_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    on_host(
        monkeypatch, (0, LISTING.format("31002, 31007,\n\t\t\t     31009")), (0, LISTING.format("31009, 31007, 31002"))
    )
    assert plan_table("x") is None


def test_ports_that_come_and_go_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    on_host(monkeypatch, (0, LISTING.format("31002")), (0, LISTING.format("31003")))
    assert plan_table("x") == Change(TABLE, "port 31002", "port 31003")


def test_a_table_that_was_lost_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    host = on_host(monkeypatch, (1, MISSING), (0, LISTING.format("31003")))
    change = plan_table("wanted")
    assert change is not None
    assert (change.before, "port 31003" in str(change.after)) == (None, True)
    apply_table("wanted")
    assert host.given == ["", "wanted", "wanted"]


def test_what_nft_refuses_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    on_host(monkeypatch, (0, ""), (1, "Error: syntax error\n  x\n"))
    for act in (plan_table, apply_table):
        with pytest.raises(GatewayFault, match=r"^nft: Error: syntax error x$"):
            act("x")
    on_host(monkeypatch, (1, "Operation not permitted"), (0, ""))
    with pytest.raises(GatewayFault, match=r"^nft: Operation not permitted$"):
        plan_table("x")


def test_a_missing_nft_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_command: Any, **_options: Any) -> None:
        raise FileNotFoundError(2, "No such file", "nft")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(GatewayFault, match=r"^nft is not installed on this host: run"):
        plan_table("x")

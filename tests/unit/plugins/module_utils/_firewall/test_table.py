"""The firewall table with fake processes: listings of nft and the changes that follow."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import (
    AGENTS_TABLE,
    FirewallError,
    Table,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change


@pytest.fixture(autouse=True)
def kernel() -> None:
    """Replace the fixture of the fake network: processes are faked here."""


LISTING = """\
table inet backendai {
\tset agents {
\t\ttype ipv4_addr
\t\tflags interval
\t\telements = { 192.0.2.1, 192.0.2.2,
\t\t\t     192.0.2.3 }
\t}

\tset routed6_4711 {
\t\ttypeof ip6 saddr
\t}

\tchain forward {
\t\ttype filter hook forward priority filter; policy accept;
\t\tiifname "bai-*" iifname . oifname != @session_bridges drop
\t\toifname "bai-*" iifname . oifname != @session_bridges drop
\t}
}
"""
MISSING = "Error: No such file or directory\nlist table inet backendai\n                ^^^^^^^^^\n"


class Host:
    """Output of the processes of a host, by program, and their input."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.given: list[tuple[Sequence[str], str]] = []

    def __call__(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.given.append((command, options["input"]))
        answer = self.answers[command[0]]
        if isinstance(answer, Exception):
            raise answer
        return answer


def result_of(out: str = "", err: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess((), 1 if err else 0, out, err)


def host(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> Host:
    """Set the results of ``nft`` and of ``unshare``, which lists the desired table."""
    result = Host(**{"unshare": result_of(LISTING), **answers})
    monkeypatch.setattr(subprocess, "run", result)
    return result


def drift(monkeypatch: pytest.MonkeyPatch, *edits: tuple[str, str]) -> list[Change]:
    """Return the changes for a table with some text replaced."""
    result = LISTING
    for old, new in edits:
        assert old in result
        result = result.replace(old, new)
    host(monkeypatch, nft=result_of(result))
    return AGENTS_TABLE.plan("wanted")


DYNAMIC = """\
table inet backendai {
\tset seen {
\t\ttype ipv4_addr
\t\tsize 65535
\t\tflags dynamic
\t\telements = { 172.18.0.2 ct count over 5, 172.18.0.3 ct count over 5 }
\t}
}
"""


def test_elements_that_packets_add_are_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = "\n".join(line for line in DYNAMIC.splitlines() if "elements" not in line)
    host(monkeypatch, nft=result_of(DYNAMIC), unshare=result_of(empty))
    assert AGENTS_TABLE.plan("wanted") == []


def test_an_equal_table_has_no_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drift(monkeypatch) == []


def test_the_desired_table_is_listed_in_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    result = host(monkeypatch, nft=result_of(LISTING))
    AGENTS_TABLE.plan("wanted")
    list_inet = ["nft", "--stateless", "list", "table", "inet", "backendai"]
    list_bridge = ["nft", "--stateless", "list", "table", "bridge", "backendai"]
    script = " && ".join(["nft --file -", " ".join(list_inet), " ".join(list_bridge)])
    assert result.given == [(["unshare", "--net", "sh", "-c", script], "wanted"), (list_inet, ""), (list_bridge, "")]


def test_table_of_a_container_is_read_and_replaced_in_its_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    result = host(monkeypatch, nsenter=result_of())
    table = Table("backendai", "provision_agents", ("ip",), pid=42)
    table.read()
    table.apply("wanted")
    enter = ["nsenter", "--target=42", "--net"]
    assert result.given == [
        ([*enter, "nft", "--stateless", "list", "table", "ip", "backendai"], ""),
        ([*enter, "nft", "--file", "-"], "wanted"),
    ]


def test_a_missing_table_is_one_change(monkeypatch: pytest.MonkeyPatch) -> None:
    host(monkeypatch, nft=result_of(err=MISSING))
    assert AGENTS_TABLE.read() == ""
    assert AGENTS_TABLE.plan("wanted") == [Change("firewall table inet backendai", None, "3 sets and chains")]


@pytest.mark.parametrize(
    ("edit", "change"),
    [
        (("192.0.2.2,", "192.0.2.9,"), Change("firewall set agents", "192.0.2.9", "192.0.2.2")),
        ((", 192.0.2.2,\n\t\t\t     192.0.2.3", ""), Change("firewall set agents", None, "192.0.2.2; 192.0.2.3")),
        (("192.0.2.3 }", "192.0.2.3, 0.0.0.0 }"), Change("firewall set agents", "0.0.0.0", None)),
        (("flags interval", "flags constant"), Change("firewall set agents", "flags constant", "flags interval")),
        (
            ('\t\toifname "bai-*" iifname . oifname != @session_bridges drop\n', ""),
            Change("firewall chain forward", None, 'oifname "bai-*" iifname . oifname != @session_bridges drop'),
        ),
        (
            ("\t\tiifname", "\t\taccept\n\t\tiifname"),
            Change("firewall chain forward", "accept", None),
        ),
        (
            ("priority filter", "priority 10"),
            Change(
                "firewall chain forward",
                "type filter hook forward priority 10; policy accept;",
                "type filter hook forward priority filter; policy accept;",
            ),
        ),
        (
            ("\tset agents", "\tflags dormant\n\tset agents"),
            Change("firewall table inet backendai", "flags dormant", None),
        ),
        (
            ("\tchain forward", "\tchain other {\n\t}\n\tchain forward"),
            Change("firewall chain other", "not ours", None),
        ),
        (
            ("\tset routed6_4711 {\n\t\ttypeof ip6 saddr\n\t}\n", ""),
            Change("firewall set routed6_4711", None, "1 lines"),
        ),
    ],
    ids=[
        "another element",
        "elements missing",
        "an element too many",
        "a set's flags",
        "a rule missing",
        "a rule too many",
        "another priority",
        "the table asleep",
        "a foreign chain",
        "a set missing",
    ],
)
def test_each_drift_is_detected_and_described(
    monkeypatch: pytest.MonkeyPatch, edit: tuple[str, str], change: Change
) -> None:
    assert drift(monkeypatch, edit) == [change]


def test_reordered_rules_are_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = drift(monkeypatch, ("\t\tiifname", "\t\tx"), ("\t\toifname", "\t\tiifname"), ("\t\tx", "\t\toifname"))
    assert len(swapped) == 1
    assert (swapped[0].before or "").split("; ")[2:] == (swapped[0].after or "").split("; ")[:1:-1]


def test_reordered_elements_are_not_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drift(monkeypatch, ("192.0.2.1, 192.0.2.2", "192.0.2.2, 192.0.2.1")) == []


def test_several_drifts_are_separate_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    result = drift(monkeypatch, ("192.0.2.2,", "192.0.2.9,"), ("\t\tiifname", "\t\taccept\n\t\tiifname"))
    assert [change.subject for change in result] == ["firewall set agents", "firewall chain forward"]


def test_the_table_is_replaced_by_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    result = host(monkeypatch, nft=result_of())
    AGENTS_TABLE.apply("wanted")
    assert result.given == [(["nft", "--file", "-"], "wanted")]


def test_a_check_does_not_apply_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    result = host(monkeypatch, nft=result_of())
    AGENTS_TABLE.check("wanted")
    assert result.given == [(["nft", "--file", "-", "--check"], "wanted")]


@pytest.mark.parametrize(
    "act",
    [
        AGENTS_TABLE.read,
        lambda: AGENTS_TABLE.plan("wanted"),
        lambda: AGENTS_TABLE.apply("wanted"),
        lambda: AGENTS_TABLE.check("wanted"),
    ],
)
def test_errors_of_nft_are_raised(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    host(monkeypatch, nft=result_of(err="Error: Operation not permitted\n  (you must be root)\n"))
    with pytest.raises(FirewallError, match=r"^nft: Error: Operation not permitted \(you must be root\)$"):
        act()


def test_a_ruleset_that_nft_rejects_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    host(monkeypatch, nft=result_of(LISTING), unshare=result_of(err="/dev/stdin:3:1-2: Error: syntax error\n"))
    with pytest.raises(FirewallError, match=r"^nft: /dev/stdin:3:1-2: Error: syntax error$"):
        AGENTS_TABLE.plan("wanted")


@pytest.mark.parametrize("playbook", ["provision_agents", "provision_gateways"])
def test_a_host_without_nft_has_a_helpful_error(monkeypatch: pytest.MonkeyPatch, playbook: str) -> None:
    host(monkeypatch, nft=FileNotFoundError(2, "No such file or directory", "nft"))
    with pytest.raises(
        FirewallError, match=rf"^nft is not installed on this host: run backendai\.cluster\.{playbook} "
    ):
        Table("backendai", playbook).read()

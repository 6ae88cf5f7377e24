"""The commands of iproute2 with faked processes: output and errors."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._network import iproute
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import (
    LinkOperation,
    LinkState,
    NetworkError,
    ProcessExitedError,
    apply_operations,
    show,
    show_inside,
)


class Ran:
    """Records the processes, each with the same result."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.result = subprocess.CompletedProcess((), code, out, err)
        self.seen: list[tuple[tuple[str, ...], str | None]] = []

    def __call__(self, command: tuple[str, ...], **options: Any) -> subprocess.CompletedProcess[str]:
        self.seen.append((tuple(command), options.get("input")))
        return self.result


def ran(monkeypatch: pytest.MonkeyPatch, code: int = 0, out: str = "", err: str = "") -> Ran:
    """Fake every process with this result."""
    processes = Ran(code, out, err)
    monkeypatch.setattr(subprocess, "run", processes)
    return processes


@pytest.mark.parametrize(
    ("out", "entries"),
    [("", []), ("[]", []), ('[{"a": 1}]', [{"a": 1}]), ('[{},{"a": 1}]', [{"a": 1}])],
    ids=["nothing", "empty list", "an entry", "an empty entry"],
)
def test_listing_returns_its_entries(monkeypatch: pytest.MonkeyPatch, out: str, entries: list[dict[str, int]]) -> None:
    ran(monkeypatch, out=out)
    assert show("ip", "-j", "link") == entries


@pytest.mark.parametrize("err", ['Device "bax-1" does not exist.\n', 'Cannot find device "bax-1"\n'])
def test_missing_device_is_an_empty_listing(monkeypatch: pytest.MonkeyPatch, err: str) -> None:
    ran(monkeypatch, code=1, err=err)
    assert show("ip", "-j", "link", "show", "dev", "bax-1") == []


def test_other_errors_are_raised_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    ran(monkeypatch, code=2, err="Operation not permitted\n")
    with pytest.raises(NetworkError, match=r"^ip -j link: Operation not permitted$"):
        show("ip", "-j", "link")


@pytest.mark.parametrize(
    ("pid", "ended"), [(0, True), (os.getpid(), False), (None, False)], ids=["ended", "runs", "of the host"]
)
def test_ended_container_raises_its_own_error(monkeypatch: pytest.MonkeyPatch, pid: int | None, ended: bool) -> None:
    ran(monkeypatch, code=1, err="nsenter: cannot open\n")
    with pytest.raises(NetworkError, match=r"^ip -j link: nsenter: cannot open$") as raised:
        show("ip", "-j", "link", pid=pid)
    assert isinstance(raised.value, ProcessExitedError) is ended


def test_listing_can_be_read_in_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = ran(monkeypatch)
    show("ip", "-j", "link", pid=42)
    assert processes.seen == [(("nsenter", "--target=42", "--net", "ip", "-j", "link"), "")]


def test_operations_run_one_process_per_tool_and_container(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = ran(monkeypatch)
    change = Change("link a", None, "present")
    apply_operations(
        [
            LinkOperation(change, ("link set c mtu 9",), pid=42),
            LinkOperation(change, ("link add a", "link set a up"), ("fdb add b",)),
            LinkOperation(change, ("link set d up",), pid=42),
        ]
    )
    assert processes.seen == [
        (("ip", "-batch", "-"), "link add a\nlink set a up\n"),
        (("bridge", "-batch", "-"), "fdb add b\n"),
        (("nsenter", "--target=42", "--net", "ip", "-batch", "-"), "link set c mtu 9\nlink set d up\n"),
    ]


def test_rules_of_a_container_are_loaded_before_its_links(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = ran(monkeypatch)
    change = Change("a", None, "present")
    apply_operations(
        [LinkOperation(change, ("link set c up",), pid=42), LinkOperation(change, pid=42, nft="table ip t")]
    )
    assert processes.seen == [
        (("nsenter", "--target=42", "--net", "nft", "--file", "-"), "table ip t\n"),
        (("nsenter", "--target=42", "--net", "ip", "-batch", "-"), "link set c up\n"),
    ]


def test_operations_of_an_ended_container_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    ran(monkeypatch, code=1, err="nsenter: cannot open\n")
    apply_operations([LinkOperation(Change("a", None, "present"), ("link set c up",), pid=0)])


def test_queries_in_a_container_are_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = ran(monkeypatch, out='[{"ifname":"eth0"},{}]\n[]\n')
    assert show_inside(42, "addr show", "route show default") == [[{"ifname": "eth0"}], []]
    command = ("nsenter", "--target=42", "--net", "ip", "-j", "-d", "-batch", "-")
    assert processes.seen == [(command, "addr show\nroute show default\n")]


def test_queries_in_an_ended_container_raise_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ran(monkeypatch, code=1, err="nsenter: cannot open\n")
    with pytest.raises(ProcessExitedError, match=r"nsenter: cannot open$"):
        show_inside(0, "addr show")


def test_no_operations_run_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = ran(monkeypatch)
    apply_operations([])
    assert processes.seen == []


def test_batch_error_names_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ran(monkeypatch, code=1, err="RTNETLINK answers: File exists\nCommand failed -:2\n")
    with pytest.raises(NetworkError, match=r"^bridge -batch -: RTNETLINK answers: File exists Command failed -:2$"):
        apply_operations([LinkOperation(Change("entry b", None, "present"), bridge=("fdb add",))])


def test_link_state_reads_each_listing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    entry: dict[str, Any] = {"ifname": "a", "dev": "a", "addr_info": [{"local": "::1"}]}
    other: dict[str, Any] = {"ifname": "b", "dev": "a", "addr_info": []}
    processes = ran(monkeypatch, out=json.dumps([entry, other]))
    look = LinkState()
    assert look.links == {"a": entry, "b": other}
    assert look.addresses == {"a": [{"local": "::1"}], "b": []}
    assert look.forwarding == {"a": [entry], "b": [other]}
    assert look.neighbours == {"a": [entry, other]}
    assert len(look.links) == 2
    assert [command for command, _text in processes.seen] == [
        ("ip", "-j", "-d", "link", "show"),
        ("ip", "-j", "addr", "show"),
        ("bridge", "-j", "fdb", "show"),
        ("ip", "-j", "neigh", "show", "nud", "permanent"),
    ]


@pytest.mark.parametrize(
    ("links", "ran"), [([{"ifname": "bax-1"}], [("link del dev bax-1",)]), ([], [])], ids=["present", "missing"]
)
def test_removal_of_a_link_is_repeatable(
    monkeypatch: pytest.MonkeyPatch, links: list[dict[str, Any]], ran: list[tuple[str, ...]]
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(iproute, "show", lambda *_command: links)
    monkeypatch.setattr(iproute, "apply_operations", lambda steps: commands.extend(step.ip for step in steps))
    iproute.remove_link("bax-1")
    assert commands == ran


class AddressInUse:
    """``ip -batch`` that refuses the second of two lines, ``times`` times."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.inputs: list[str] = []

    def __call__(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.inputs.append(options["input"])
        if not self.times:
            return subprocess.CompletedProcess(command, 0, "", "")
        self.times -= 1
        number = options["input"].splitlines().index("link add b") + 1
        error = f"RTNETLINK answers: Address already in use\nCommand failed -:{number}\n"
        return subprocess.CompletedProcess(command, 1, "", error)


LINES = LinkOperation(Change("b", None, "added"), ("link add a", "link add b", "link add c"))


def test_mac_of_a_former_namespace_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = AddressInUse(2)
    monkeypatch.setattr(subprocess, "run", kernel)
    monkeypatch.setattr(iproute.time, "sleep", lambda _seconds: None)
    apply_operations([LINES])
    rest = "link add b\nlink add c\n"
    assert kernel.inputs == [f"link add a\n{rest}", rest, rest]


def test_mac_that_stays_in_use_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", AddressInUse(-1))
    monkeypatch.setattr(iproute, "IN_USE_SECONDS", 0.0)
    with pytest.raises(NetworkError, match="Address already in use"):
        apply_operations([LINES])

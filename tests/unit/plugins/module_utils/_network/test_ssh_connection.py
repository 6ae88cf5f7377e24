"""The SSH connection to a host, from the own variable or that of an ancestor process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import processes
from ansible_collections.backendai.cluster.plugins.module_utils._network import host as module
from ansible_collections.backendai.cluster.plugins.module_utils._network.host import ssh_connection

CONNECTION = "203.0.113.7 51234 192.0.2.1 2222"
OTHER = "203.0.113.7 51299 192.0.2.1 2222"
FOUND = f"SSH_CONNECTION={CONNECTION}"
OURS, SUDO, SHELL, SSHD = 500, 400, 300, 200

Runs = Callable[..., Path]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Return a function that adds a process with its id, parent, program name and variables."""
    monkeypatch.setattr(processes, "PROC", tmp_path)
    monkeypatch.setattr(module.os, "getpid", lambda: OURS)
    monkeypatch.delenv("SSH_CONNECTION", raising=False)

    def run(process: int, parent: int, *variables: str, name: str = "python3") -> Path:
        folder = tmp_path / str(process)
        folder.mkdir()
        (folder / "stat").write_text(f"{process} ({name}) S {parent} {process} {process} 34816 7 4194304 1 2 3\n")
        (folder / "environ").write_bytes("".join(f"{variable}\0" for variable in variables).encode())
        return folder

    return run


def test_own_variable_is_used(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(OURS, SUDO)
    runs(SUDO, SHELL, f"SSH_CONNECTION={OTHER}")
    monkeypatch.setenv("SSH_CONNECTION", CONNECTION)
    assert ssh_connection() == CONNECTION


@pytest.mark.parametrize("own_variable", [None, ""], ids=["dropped", "emptied"])
def test_variable_dropped_by_sudo_is_read_from_an_ancestor(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, own_variable: str | None
) -> None:
    if own_variable is not None:
        monkeypatch.setenv("SSH_CONNECTION", own_variable)
    runs(OURS, SUDO)
    runs(SUDO, SHELL, "LANG=C.UTF-8", "SUDO_USER=alice", name="sudo")
    runs(SHELL, SSHD, "LANG=C.UTF-8", FOUND, "HOME=/home/alice", name="sh")
    assert ssh_connection() == CONNECTION


def test_nearest_ancestor_with_the_variable_is_used(runs: Runs) -> None:
    runs(OURS, SUDO)
    runs(SUDO, SHELL, FOUND)
    runs(SHELL, SSHD, f"SSH_CONNECTION={OTHER}")
    assert ssh_connection() == CONNECTION


@pytest.mark.parametrize(
    "name",
    ["sh", "a) b (c", "(sd-pam)", ") S 7 (", "))", "", "tmux: server", "Zażółć", "two\\nlines", "two\nlines"],
)
def test_program_names_may_contain_any_character(runs: Runs, name: str) -> None:
    runs(OURS, SUDO, name=name)
    runs(SUDO, SHELL, name=name)
    runs(SHELL, SSHD, FOUND, name=name)
    assert ssh_connection() == CONNECTION


@pytest.mark.parametrize(
    "variables",
    [
        ("MY_SSH_CONNECTION=no", "SSH_CONNECTIONS=no", "LINE=SSH_CONNECTION=no"),
        ("SSH_CONNECTION",),
        ("SSH_CONNECTION=",),
        (),
    ],
    ids=["others", "no value", "an empty value", "none"],
)
def test_similar_variables_are_ignored(runs: Runs, variables: tuple[str, ...]) -> None:
    runs(OURS, SUDO)
    runs(SUDO, SHELL, *variables)
    runs(SHELL, SSHD, FOUND)
    assert ssh_connection() == CONNECTION


def test_variables_that_are_no_text_are_ignored(runs: Runs) -> None:
    runs(OURS, SUDO)
    (runs(SUDO, SHELL) / "environ").write_bytes(b"NAME=caf\xe9\0" + FOUND.encode() + b"\0")
    assert ssh_connection() == CONNECTION


@pytest.mark.parametrize("exists", [False, True], ids=["missing", "unreadable"])
def test_process_with_unreadable_variables_is_skipped(runs: Runs, exists: bool) -> None:
    runs(OURS, SUDO)
    hidden = runs(SUDO, SHELL) / "environ"
    hidden.unlink()
    if exists:
        hidden.mkdir()
    runs(SHELL, SSHD, FOUND)
    assert ssh_connection() == CONNECTION


@pytest.mark.parametrize("exists", [False, True], ids=["missing", "unreadable"])
def test_search_ends_at_a_process_without_known_parent(runs: Runs, exists: bool) -> None:
    runs(OURS, SUDO)
    hidden = runs(SUDO, SHELL) / "stat"
    hidden.unlink()
    if exists:
        hidden.mkdir()
    runs(SHELL, SSHD, FOUND)
    assert ssh_connection() == ""


@pytest.mark.parametrize(("variables", "expected"), [((), ""), ((FOUND,), CONNECTION)], ids=["none", "its own"])
def test_search_ends_at_the_first_process(runs: Runs, variables: tuple[str, ...], expected: str) -> None:
    runs(OURS, SUDO)
    runs(SUDO, 1, "LANG=C.UTF-8")
    runs(1, SHELL, *variables, name="systemd")
    runs(SHELL, SSHD, f"SSH_CONNECTION={OTHER}")
    assert ssh_connection() == expected


def test_second_process_reads_the_first_process(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "getpid", lambda: 2)
    runs(2, 1)
    runs(1, 0, FOUND, name="sshd")
    assert ssh_connection() == CONNECTION


def test_first_process_of_a_container_has_no_parent(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "getpid", lambda: 1)
    runs(1, SHELL)
    runs(SHELL, SSHD, FOUND)
    assert ssh_connection() == ""


def test_parent_outside_the_container_has_pid_zero(runs: Runs) -> None:
    runs(OURS, 0)
    assert ssh_connection() == ""

"""A role is removed from a host, which is then as it was before."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import engine_removal, installation, removal
from ansible_collections.backendai.cluster.plugins.module_utils._host.host_record import (
    HostRecord,
    Installed,
    read_record,
    write_record,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.removal import UNKNOWN, Removal, RemovedRole
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import LockTimeoutError
from ansible_collections.backendai.cluster.plugins.module_utils._model.files import locked

ADDED = Installed(frozenset({"docker.io", "runc"}), frozenset({"box"}), frozenset({"docker"}))
FORWARD = "net.ipv4.ip_forward"
RECORD = HostRecord(
    added=ADDED,
    sysctls={FORWARD: "0"},
    units={"docker.service": "not-found", "box.service": "not-found"},
)


class FakeHost:
    """A host with what the record says that it got, and what was done to it."""

    def __init__(self) -> None:
        self.installed = ADDED | Installed(frozenset({"bash"}), frozenset({"root"}), frozenset({"root"}))
        self.sysctls = {FORWARD: "1"}
        self.needed: dict[str, str] = {}
        self.units = {"docker.service": "enabled", "box.service": "masked"}
        self.calls: list[str] = []
        self.dies = ""
        self.roles = ["agent"]

    def called(self, name: str) -> None:
        """Note a call; a host that dies there is killed after it."""
        self.calls.append(name)
        if name == self.dies:
            self.dies = ""
            raise KeyboardInterrupt

    def purge(self, packages: frozenset[str]) -> None:
        self.installed -= Installed(packages)
        self.called("purge")

    def remove_accounts(self, users: frozenset[str], groups: frozenset[str]) -> None:
        self.installed -= Installed(frozenset(), users, groups)
        self.called("accounts")

    def run_checked(self, command: list[str]) -> str:
        if command[0] == "sysctl":
            name, _equals, value = command[-1].partition("=")
            self.sysctls[name] = value
        elif "unmask" in command:
            self.units[command[-1]] = "not-found"
        self.called(" ".join([command[0], command[-1]]))
        return ""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """Return a host that answers in place of this one."""
    fake = FakeHost()
    answers: dict[str, Any] = {
        "read_installed": lambda: fake.installed,
        "read_sysctls": lambda _names: dict(fake.sysctls),
        "read_units": lambda _names: dict(fake.units),
        "keep_needed": lambda packages, protected: {name: name for name in packages & protected} or fake.needed,
        "owner_of": lambda _program: "docker.io" if "docker.io" in fake.installed.packages else "",
        "purge": fake.purge,
        "remove_accounts": fake.remove_accounts,
        "run_checked": fake.run_checked,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(installation, name, answer)
    monkeypatch.setattr(removal, "find_roles", lambda: fake.roles)
    monkeypatch.setattr(engine_removal, "clear_engine", lambda _tables: fake.called("engine"))
    return fake


class Agent:
    """The files of an agent below a folder, and its record."""

    def __init__(self, folder: Path, record: HostRecord | None = RECORD) -> None:
        self.state, self.record = folder / "state", folder / "state" / "before.json"
        self.shared, self.checks = folder / "programs", folder / "health.d"
        self.completions = folder / "completions"
        for path in (self.state / "sessions", self.shared, self.checks, self.completions):
            path.mkdir(parents=True)
        (self.state / "lock").touch()
        (self.checks / "disk").touch()
        if record:
            write_record(record, self.record)

    def remove(self, *foreign: str, check_mode: bool = False) -> Removal:
        """Remove the role from the host."""
        paths, shared = [str(self.state), str(self.checks / "disk")], [str(self.shared)]
        removed = RemovedRole("agent", paths, shared, [str(self.checks)], [str(self.completions)], foreign)
        run = Removal(removed, check_mode=check_mode)
        run.run(self.record)
        return run

    def is_gone(self) -> bool:
        """Return whether no file is left."""
        return not any(path.exists() for path in (self.state, self.shared, self.checks, self.completions))


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    """Return an agent with a record."""
    return Agent(tmp_path)


def test_all_that_came_with_the_role_goes_and_the_record_last(host: FakeHost, agent: Agent) -> None:
    removed = agent.remove()
    assert agent.is_gone()
    assert host.calls == ["engine", "purge", "systemctl box.service", "accounts", f"sysctl {FORWARD}=0"]
    assert host.installed == Installed(frozenset({"bash"}), frozenset({"root"}), frozenset({"root"}))
    assert removed.changes[-1].subject == f"file {agent.record}"
    assert removed.kept == []


def test_a_second_removal_changes_nothing(host: FakeHost, agent: Agent) -> None:
    agent.remove()
    calls = list(host.calls)
    again = agent.remove()
    assert (again.changes, again.kept, host.calls) == ([], [], calls)


def test_check_mode_changes_nothing_and_tells_all(host: FakeHost, agent: Agent) -> None:
    told = [change.subject for change in agent.remove(check_mode=True).changes]
    assert (agent.state / "lock").exists()
    assert host.calls == []
    assert told == [change.subject for change in agent.remove().changes]


@pytest.mark.parametrize("step", ["engine", "purge", "systemctl box.service", "accounts", f"sysctl {FORWARD}=0"])
def test_a_removal_that_was_killed_is_completed_by_the_next(host: FakeHost, agent: Agent, step: str) -> None:
    host.dies = step
    with pytest.raises(KeyboardInterrupt):
        agent.remove()
    assert read_record(agent.record) == RECORD
    agent.remove()
    assert agent.is_gone()
    assert host.installed.packages == {"bash"}
    assert (host.sysctls[FORWARD], host.units["box.service"]) == ("0", "not-found")


def test_an_engine_that_others_use_stays_with_what_it_needs(host: FakeHost, agent: Agent) -> None:
    kept = agent.remove("container web").kept
    assert "package docker.io: the engine has container web" in kept
    assert "engine" not in host.calls
    assert host.sysctls[FORWARD] == "1"
    assert "docker" in host.installed.groups
    assert agent.is_gone()


def test_a_package_that_another_needs_stays_and_is_named(host: FakeHost, agent: Agent) -> None:
    host.needed = {"runc": "podman"}
    assert "package runc: podman needs it" in agent.remove().kept
    assert host.installed.packages == {"bash", "runc"}


@pytest.mark.parametrize("record", [None, HostRecord(complete=False)])
def test_of_a_host_of_an_earlier_release_packages_are_kept_with_a_word(
    host: FakeHost, tmp_path: Path, record: HostRecord | None
) -> None:
    agent = Agent(tmp_path, record)
    removed = agent.remove()
    assert removed.kept == [UNKNOWN]
    assert host.installed.packages == {"bash", "docker.io", "runc"}
    assert not agent.shared.exists()
    assert not agent.record.exists()


def test_a_host_with_another_role_keeps_packages_programs_and_the_record(host: FakeHost, agent: Agent) -> None:
    host.roles = ["agent", "manager"]
    assert agent.remove().kept == ["packages and kernel settings: this host is manager, too"]
    assert agent.remove().kept == []
    assert read_record(agent.record) == RECORD
    assert agent.shared.exists()
    assert host.calls == []


@pytest.mark.usefixtures("host")
def test_a_check_of_the_operator_stays_and_is_named(agent: Agent) -> None:
    (agent.checks / "nhc").touch()
    assert agent.remove().kept == [f"{agent.checks}: nhc did not come with this collection"]
    assert [path.name for path in agent.checks.iterdir()] == ["nhc"]


@pytest.mark.usefixtures("host")
def test_a_folder_of_the_system_stays_without_a_word_if_others_use_it(agent: Agent) -> None:
    (agent.completions / "apt").touch()
    assert agent.remove().kept == []
    assert [path.name for path in agent.completions.iterdir()] == ["apt"]


def test_what_a_killed_installation_has_added_goes_too(host: FakeHost, tmp_path: Path) -> None:
    before = Installed(frozenset({"bash"}), frozenset({"root"}), frozenset({"root"}))
    agent = Agent(tmp_path, dataclasses.replace(RECORD, added=Installed(), before=before))
    agent.remove()
    assert host.installed == before


@pytest.mark.parametrize("dies", ["", "purge"])
def test_what_a_package_leaves_goes_with_it(
    host: FakeHost, agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    left = tmp_path / "left"
    left.mkdir()
    monkeypatch.setattr(installation, "LEFT_BY_PACKAGES", {"runc": (str(left),)})
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    host.dies = dies
    if dies:
        with pytest.raises(KeyboardInterrupt):
            agent.remove()
    host.needed = {"runc": "podman"} if not dies else {}
    agent.remove()
    assert left.exists() == (not dies)


@pytest.mark.usefixtures("host")
def test_a_removal_waits_for_the_one_of_a_killed_run(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "LOCK_SECONDS", 0.01)
    with locked(agent.state, 0), pytest.raises(LockTimeoutError, match="has held the lock"):
        agent.remove()
    assert (agent.state / "lock").exists()
    agent.remove()
    assert agent.is_gone()

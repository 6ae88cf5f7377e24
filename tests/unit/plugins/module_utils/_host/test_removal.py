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
from ansible_collections.backendai.cluster.plugins.module_utils._host.removal import (
    UNKNOWN,
    EngineContents,
    Removal,
    RemovedRole,
)
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
        self.needed: dict[str, list[str]] = {}
        self.engine: EngineContents | None = EngineContents("/var/lib/docker")
        self.owners = {"dockerd": "docker.io"}
        self.automatic: frozenset[str] = frozenset()
        self.locked = False
        self.rpm = False
        self.units = {"docker.service": "enabled", "box.service": "masked"}
        self.calls: list[str] = []
        self.dies = ""
        self.roles = ["agent"]
        self.cleared = ""

    def called(self, name: str) -> None:
        """Note a call; a host that dies there is killed after it."""
        self.calls.append(name)
        if name == self.dies:
            self.dies = ""
            raise KeyboardInterrupt

    def owner_of(self, program: str) -> str:
        owner = self.owners.get(program, "")
        return owner if owner in self.installed.packages else ""

    def clear(self, _tables: object, data_root: str) -> None:
        self.engine, self.cleared = None, data_root
        self.called("engine")

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
        elif "disable" in command:
            self.units[command[-1]] = "disabled"
            self.called("stop" if "--now" in command else "disable")
            return ""
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
        "keep_needed": lambda packages, protected: {name: [name] for name in packages & protected} or fake.needed,
        "owner_of": fake.owner_of,
        "read_automatic": lambda: fake.automatic,
        "root_is_locked": lambda: fake.locked,
        "purge": fake.purge,
        "remove_accounts": fake.remove_accounts,
        "run_checked": fake.run_checked,
        "uses_rpm": lambda: fake.rpm,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(installation, name, answer)
    monkeypatch.setattr(removal, "find_roles", lambda: fake.roles)
    monkeypatch.setattr(engine_removal, "clear_engine", fake.clear)
    return fake


class Agent:
    """The files of an agent below a folder, and its record."""

    def __init__(self, host: FakeHost, folder: Path, record: HostRecord | None = RECORD) -> None:
        self.host = host
        self.state, self.record = folder / "state", folder / "state" / "before.json"
        self.shared, self.checks = folder / "programs", folder / "health.d"
        self.completions = folder / "completions"
        for path in (self.state / "sessions", self.shared, self.checks, self.completions):
            path.mkdir(parents=True)
        (self.state / "lock").touch()
        (self.checks / "disk").touch()
        if record:
            write_record(record, self.record)

    def remove(self, *, role: str = "agent", check_mode: bool = False) -> Removal:
        """Remove a role from the host."""
        paths, shared = [str(self.state), str(self.checks / "disk")], [str(self.shared)]
        removed = RemovedRole(role, paths, shared, [str(self.checks)], [str(self.completions)])
        run = Removal(removed, lambda: self.host.engine, check_mode=check_mode)
        run.run(self.record)
        return run

    def is_gone(self) -> bool:
        """Return whether no file is left."""
        return not any(path.exists() for path in (self.state, self.shared, self.checks, self.completions))


@pytest.fixture
def agent(host: FakeHost, tmp_path: Path) -> Agent:
    """Return an agent with a record."""
    return Agent(host, tmp_path)


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
    # The engine does not answer any more.
    assert read_record(agent.record) == dataclasses.replace(RECORD, engine_folder="/var/lib/docker")
    agent.remove()
    assert agent.is_gone()
    assert host.installed.packages == {"bash"}
    assert (host.sysctls[FORWARD], host.units["box.service"]) == ("0", "not-found")


def test_an_engine_that_others_use_stays_with_what_it_needs(host: FakeHost, agent: Agent) -> None:
    host.engine = EngineContents("/var/lib/docker", ["container web"])
    kept = agent.remove().kept
    assert "package docker.io: the engine has container web" in kept
    assert "engine" not in host.calls
    assert host.sysctls[FORWARD] == "1"
    assert "docker" in host.installed.groups
    assert agent.is_gone()


def test_a_package_that_another_needs_stays_and_is_named(host: FakeHost, agent: Agent) -> None:
    host.needed = {"runc": ["podman"]}
    assert "package runc: podman needs it" in agent.remove().kept
    assert host.installed.packages == {"bash", "runc"}


@pytest.mark.parametrize("record", [None, HostRecord(complete=False)])
def test_of_a_host_of_an_earlier_release_packages_are_kept_with_a_word(
    host: FakeHost, tmp_path: Path, record: HostRecord | None
) -> None:
    agent = Agent(host, tmp_path, record)
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


@pytest.mark.parametrize("role", ["manager", "gateway"])
def test_the_last_role_of_the_host_asks_the_engine_too(host: FakeHost, agent: Agent, role: str) -> None:
    host.roles = ["agent", role]
    host.engine = EngineContents("/var/lib/docker", ["container web"])
    agent.remove()
    host.roles = [role]
    assert "package docker.io: the engine has container web" in agent.remove(role=role).kept
    assert "engine" not in host.calls
    assert "docker.io" in host.installed.packages


def test_an_engine_that_others_use_keeps_its_command_and_the_toolkit_of_gpus(host: FakeHost, tmp_path: Path) -> None:
    engine = Installed(frozenset({"docker.io", "docker-cli", "nvidia-container-toolkit"}))
    agent = Agent(host, tmp_path, dataclasses.replace(RECORD, added=ADDED | engine))
    host.installed |= engine
    host.owners |= {"docker": "docker-cli", "nvidia-container-runtime-hook": "nvidia-container-toolkit"}
    host.engine = EngineContents("/var/lib/docker", ["volume data"])
    kept = agent.remove().kept
    for name in engine.packages:
        assert f"package {name}: the engine has volume data" in kept
    assert engine.packages <= host.installed.packages


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("others", [False, True])
def test_data_of_the_engine_beside_files_of_others_is_named(
    host: FakeHost, agent: Agent, tmp_path: Path, *, killed: bool, others: bool
) -> None:
    data = tmp_path / "data"
    (data / "overlay2").mkdir(parents=True)
    (data / "image/overlay2").mkdir(parents=True)
    if others:
        (data / "results").touch()
    host.engine = EngineContents(str(data))
    if killed:
        # The engine is gone then, and only the record knows.
        host.dies = "engine"
        with pytest.raises(KeyboardInterrupt):
            agent.remove()
    kept = agent.remove().kept
    assert (
        kept
        == [f"folder {data}: the engine was set to keep its data there, beside results: remove what it has left"]
        * others
    )
    assert host.cleared == str(data)


def test_sudo_stays_if_root_has_no_password(host: FakeHost, tmp_path: Path) -> None:
    sudo = Installed(frozenset({"sudo"}))
    agent = Agent(host, tmp_path, dataclasses.replace(RECORD, added=ADDED | sudo))
    host.installed |= sudo
    host.locked = True
    assert agent.remove().kept == ["package sudo: root has no password, so without it nobody could become root"]
    assert host.installed.packages == {"bash", "sudo"}
    assert host.sysctls[FORWARD] == "0"


def test_a_package_that_was_replaced_is_named_unless_it_is_back(host: FakeHost, tmp_path: Path) -> None:
    agent = Agent(host, tmp_path, dataclasses.replace(RECORD, lost=frozenset({"bash", "busybox"})))
    assert agent.remove().kept == [
        "package busybox: others replaced it when they came; install it again if you need it"
    ]


def test_an_engine_that_was_started_by_hand_is_disabled_and_runs_on(host: FakeHost, tmp_path: Path) -> None:
    units = {"docker.service": "disabled", "box.service": "disabled"}
    agent = Agent(host, tmp_path, HostRecord(units=units))
    host.units = dict.fromkeys(units, "enabled")
    kept = agent.remove().kept
    assert kept == ["unit docker.service: disabled as before, but not stopped: others may have containers"]
    assert host.calls == ["stop", "disable"]
    assert host.units == units


@pytest.mark.usefixtures("host")
def test_a_state_folder_that_is_a_mount_point_is_emptied_and_stays(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = tmp_path / "record" / "before.json"
    agent.record.unlink()
    write_record(RECORD, apart)
    agent.record = apart
    (agent.state / "lost+found").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path in (agent.state, apart.parent))
    agent.remove()
    assert [path.name for path in agent.state.iterdir()] == ["lost+found"]
    assert [*apart.parent.iterdir()] == []
    assert agent.remove().changes == []


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
    wanted = Installed(frozenset({"docker.io"}), frozenset({"box"}), frozenset({"docker"}))
    record = dataclasses.replace(RECORD, added=Installed(), before=before, wanted=wanted)
    host.automatic = frozenset({"runc"})
    Agent(host, tmp_path, record).remove()
    assert host.installed == before


def test_what_the_operator_has_installed_after_a_killed_installation_stays(host: FakeHost, tmp_path: Path) -> None:
    before = Installed(frozenset({"bash"}), frozenset({"root"}), frozenset({"root"}))
    theirs = Installed(frozenset({"postgresql"}), frozenset({"postgres"}), frozenset({"postgres"}))
    wanted = Installed(frozenset({"docker.io"}))
    host.installed |= theirs
    Agent(host, tmp_path, dataclasses.replace(RECORD, added=Installed(), before=before, wanted=wanted)).remove()
    assert host.installed - theirs == before | Installed(frozenset({"runc"}), ADDED.users, ADDED.groups)
    assert theirs - host.installed == Installed()


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
    host.needed = {"runc": ["podman"]} if not dies else {}
    agent.remove()
    assert left.exists() == (not dies)


@pytest.mark.usefixtures("host")
def test_on_a_host_with_rpm_the_packages_stay_and_the_command_is_named(agent: Agent, host: FakeHost) -> None:
    host.rpm = True
    kept = agent.remove().kept
    assert "packages: remove those that you do not need: dnf remove docker.io runc" in kept
    assert host.installed.packages >= ADDED.packages
    assert not {"purge", "engine"}.intersection(host.calls)


def test_a_removal_waits_for_the_one_of_a_killed_run(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "LOCK_SECONDS", 0.01)
    with locked(agent.state, 0), pytest.raises(LockTimeoutError, match="has held the lock"):
        agent.remove()
    assert (agent.state / "lock").exists()
    agent.remove()
    assert agent.is_gone()

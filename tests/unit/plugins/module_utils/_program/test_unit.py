"""The commands of systemd units: sessions and rules are restored, and changes are logged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.foreign import find_firewalls, open_firewalls
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.isolation_policy import build_isolation_policy
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.openings import Opening
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import render
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState, Trial
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import FirewallError
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._program import unit
from ansible_collections.backendai.cluster.plugins.module_utils._program.unit import ENGINE_SECONDS, main
from ansible_collections.backendai.cluster.plugins.module_utils._session import ended_commands
from tests.unit import agent
from tests.unit.builders import SESSION_ID, held, own_labels, plan
from tests.unit.fake_docker import FakeDocker
from tests.unit.fake_network import FakeNetwork
from tests.unit.foreign_firewalls import Host, on_host
from tests.unit.uptime import Uptime, uptime_of_numbers

MADE = plan({"agent1": 2, "agent2": 2})
LINK = str(MADE.network and MADE.network.link)
ADDRESS = "unix:///engine.sock"

engine, kernel, store = agent.engine, agent.kernel, agent.store


def run(store: Store, *arguments: str) -> int:
    path = str(store.folder(SESSION_ID).parents[1])
    return main(["--state-path", path, "--docker-host", ADDRESS, *arguments])


def stop_main1(engine: FakeDocker) -> None:
    """Add a stopped container."""
    bears = own_labels("main1")
    engine.made.append({"Id": "id-main1", "Names": ["/backendai-train-llm-main1"], "Labels": bears, "State": "exited"})


@pytest.fixture(autouse=True)
def connected(monkeypatch: pytest.MonkeyPatch, engine: FakeDocker) -> None:
    """Connect the program to the fake engine."""
    monkeypatch.setattr(unit, "connect", lambda address: engine if address == ADDRESS else None)


# ---- sessions


def test_changes_are_logged_once(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.save(held(MADE))
    assert run(store) == 0
    assert f"<5>link {LINK}: missing -> vni" in capsys.readouterr().out
    assert run(store) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("arguments", [[], ["--start"]], ids=["heal", "boot"])
def test_containers_are_started_only_at_boot(store: Store, engine: FakeDocker, arguments: list[str]) -> None:
    store.save(held(MADE))
    stop_main1(engine)
    assert run(store, *arguments) == 0
    assert engine.calls == (["start id-main1"] if arguments else [])


@pytest.mark.parametrize("arguments", [[], ["--start"]], ids=["heal", "boot"])
def test_commands_that_nobody_waits_for_get_their_unit_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    started: list[str] = []
    monkeypatch.setattr(ended_commands, "start_units", started.extend)
    batch = plan({"agent1": 1}, command="python train.py")
    store.save(held(batch))
    store.kernel_folder(SESSION_ID, "main1").mkdir()
    assert (run(store, *arguments), started) == (0, [])
    store.start_marker(SESSION_ID).touch()
    assert (run(store, *arguments), started) == (0, [f"backendai-output@{SESSION_ID}.service"])


def test_engine_that_is_down_is_no_failure_and_asked_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(docker_host: str) -> NoReturn:
        asked.append(docker_host)
        raise DockerUnavailableError("the engine does not answer.")

    monkeypatch.setattr(unit, "connect", refuse)
    for session_id in (SESSION_ID, f"{SESSION_ID[:-1]}9"):
        store.save(dataclasses.replace(held(MADE), plan=dataclasses.replace(MADE, id=session_id)))
    assert run(store) == 0
    assert asked == [ADDRESS]


@pytest.mark.parametrize(
    ("changes", "failures", "code", "journal"),
    [
        ([Change("link x", "mtu 1", None)], [], 0, ("<5>link x: mtu 1 -> removed\n", "")),
        ([], ["x: no", "y: no"], 1, ("", "<3>x: no\n<3>y: no\n")),
        ([Change("link x", None, "up")], ["y: no"], 1, ("<5>link x: missing -> up\n", "<3>y: no\n")),
    ],
)
def test_failures_set_priority_and_exit_code(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: list[Change],
    failures: list[str],
    code: int,
    journal: tuple[str, str],
) -> None:
    monkeypatch.setattr(unit, "restore", lambda *_store, **_how: (changes, failures))
    assert (run(store), capsys.readouterr()) == (code, journal)


def test_unprovisioned_agent_is_reported(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.folder(SESSION_ID).parent.rmdir()
    assert run(store) == 1
    assert "is not ready (No such file or directory): run backendai.cluster.provision_agents" in capsys.readouterr().err


class Clock:
    """A clock that advances only in sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _seconds: float) -> None:
        self.now += 10


@pytest.mark.parametrize(
    ("up_at", "arguments", "failure"),
    [
        (30.0, ["--start"], ""),
        (9e9, ["--start"], "<3>train-llm: the engine does not answer.\n"),
        (30.0, [], "<3>train-llm: the engine does not answer.\n"),
    ],
    ids=["boot", "boot, and it never comes", "heal"],
)
def test_slow_engine_is_waited_for_at_boot_up_to_a_limit(
    store: Store,
    engine: FakeDocker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    up_at: float,
    arguments: list[str],
    failure: str,
) -> None:
    clock = Clock()
    monkeypatch.setattr(unit, "time", clock)

    def connect(_address: str) -> Any:
        if clock.now < up_at:
            raise DockerUnavailableError("the engine does not answer.")
        return engine

    monkeypatch.setattr(unit, "connect", connect)
    # Restoring calls the engine to remove expired claims.
    store.save(held(MADE, expires_at=None if arguments else 1.0))
    assert run(store, *arguments) == (1 if failure else 0)
    assert capsys.readouterr().err == failure
    assert clock.now <= (ENGINE_SECONDS if arguments else 0)


# ---- rules


OLD, NEW = Firewall(("192.0.2.7/32",)), Firewall(("192.0.2.0/24",))
MISSING = "<5>firewall table inet backendai: missing -> there\n"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if the program calls the engine or restores a session."""
    monkeypatch.delattr(unit, "connect")
    monkeypatch.delattr(unit, "restore")


@pytest.fixture
def uptime(tmp_path: Path) -> Iterator[Uptime]:
    """Return the uptime of the agent."""
    with uptime_of_numbers(tmp_path) as numbers:
        yield numbers


def rules(firewall: Firewall | None) -> str:
    return render(build_isolation_policy([(MADE, "agent1")], ()), firewall, ["eth0"])


@pytest.mark.usefixtures("alone")
def test_rules_option_applies_only_the_rules(
    store: Store, kernel: FakeNetwork, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(held(MADE))
    FirewallState(store).save(OLD, None)
    assert run(store, "--rules") == 0
    assert (kernel.links, kernel.table) == (set(), rules(OLD))
    assert capsys.readouterr() == (MISSING, "")
    assert run(store, "--rules") == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("alone")
def test_unconfirmed_trial_is_rolled_back_by_its_nonce(
    store: Store, kernel: FakeNetwork, uptime: Uptime, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(held(MADE))
    FirewallState(store).save(OLD, Trial(NEW, "mine", uptime.up + 60, uptime.boot, ""))
    assert run(store, "--withdraw", "another") == 0
    assert kernel.table == rules(NEW)
    assert run(store, "--withdraw", "mine") == 0
    assert kernel.table == rules(OLD)
    assert FirewallState(store).trial is None
    assert capsys.readouterr() == (MISSING * 2, "")


@pytest.mark.usefixtures("alone")
def test_a_trial_does_not_outlive_a_boot(
    store: Store, kernel: FakeNetwork, uptime: Uptime, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(held(MADE))
    FirewallState(store).save(OLD, Trial(NEW, "mine", uptime.up + 60, uptime.boot, ""))
    uptime.reboot(up=5.0)
    assert run(store, "--rules") == 0
    assert kernel.table == rules(OLD)
    assert (FirewallState(store).confirmed, FirewallState(store).trial) == (OLD, None)
    assert capsys.readouterr() == (MISSING, "")


OPENED = "ufw allow from 10.0.0.2 to any port 4789 proto udp comment 'backendai.cluster'"


def opened_on_trial(store: Store, uptime: Uptime, tmp_path: Path) -> Host:
    """Return a host whose ufw has a rule of ours on trial."""
    host = Host(tmp_path, "ufw")
    FirewallState(store).save(OLD, Trial(OLD, "mine", uptime.up + 60, uptime.boot, ""))
    with on_host(host):
        found = find_firewalls([Opening("udp", "4789", "10.0.0.2/32")], bridges=True)
        open_firewalls(store, found, check_mode=False)
    assert host.ufw == [OPENED]
    return host


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("way", ["timer", "reboot"])
def test_what_was_opened_elsewhere_is_closed_with_the_trial(
    store: Store, uptime: Uptime, tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    host = opened_on_trial(store, uptime, tmp_path)
    with on_host(host):
        assert run(store, "--withdraw", "another") == 0
        assert run(store, "--rules") == 0
        assert host.ufw == [OPENED]
        if way == "reboot":
            uptime.reboot(up=5.0)
        assert run(store, *(["--withdraw", "mine"] if way == "timer" else ["--rules"])) == 0
    assert host.ufw == []
    assert capsys.readouterr().out.endswith(f"<5>{OPENED}: present -> removed\n")


@pytest.mark.usefixtures("alone")
def test_a_firewall_of_others_that_fails_keeps_no_trial_of_our_own(
    store: Store, uptime: Uptime, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = opened_on_trial(store, uptime, tmp_path)
    FirewallState(store).save(OLD, Trial(NEW, "mine", uptime.up + 60, uptime.boot, ""))
    host.broken = "show"
    with on_host(host):
        assert run(store, "--withdraw", "mine") == 1
    assert FirewallState(store).trial is None
    assert capsys.readouterr().err == "<3>ufw failed: Error: COMMAND_FAILED\n"
    host.broken = ""
    with on_host(host):
        assert run(store, "--rules") == 0
    assert host.ufw == []


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("arguments", [["--rules"], ["--withdraw", "mine"]], ids=["rules", "withdraw"])
def test_nft_error_is_logged(
    store: Store,
    kernel: FakeNetwork,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    def fail(_wanted: str) -> None:
        raise FirewallError("nft: Error: Operation not permitted")

    monkeypatch.setattr(kernel, "apply_table", fail)
    assert run(store, *arguments) == 1
    assert capsys.readouterr() == ("", "<3>nft: Error: Operation not permitted\n")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("arguments", [["--rules"], ["--withdraw", "mine"]], ids=["rules", "withdraw"])
def test_unreadable_firewall_state_is_logged(
    store: Store, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    store.firewall_file.write_text("{")
    assert run(store, *arguments) == 1
    assert capsys.readouterr().err.startswith(f"<3>{store.firewall_file} is damaged (")


@pytest.mark.parametrize("arguments", [[], ["--start"], ["--rules"]], ids=["heal", "boot", "rules"])
def test_corrupt_firewall_state_closes_the_host_and_sessions_are_restored(
    store: Store, kernel: FakeNetwork, engine: FakeDocker, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    FirewallState(store).save(OLD, None)
    store.save(held(MADE))
    store.firewall_file.write_text("{")
    stop_main1(engine)
    assert run(store, *arguments) == 1
    assert kernel.table == rules(OLD)
    assert bool(kernel.links) is (arguments != ["--rules"])
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert errors.startswith(f"<3>{store.firewall_file} is damaged (")


def test_journal_has_one_safe_line_for_each_event(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [Change("file hosts", "10.0.0.1 a\n<0>\x1b[2Jb\n", "c")]
    monkeypatch.setattr(unit, "restore", lambda *_asked, **_how: (changes, ["x: \x1b]0;owned\x07\n<0>y"]))
    assert run(store) == 1
    assert capsys.readouterr() == (
        "<5>file hosts: 10.0.0.1 a <0>\\x1b[2Jb -> c\n",
        "<3>x: \\x1b]0;owned\\x07 <0>y\n",
    )


# ---- homes


def test_homes_of_ended_sessions_are_removed_and_what_is_left_is_logged(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.homes.make(SESSION_ID, "main1", 12345, 23456)
    store.homes.retire(SESSION_ID)
    assert run(store, "--remove-homes", "1g") == 0
    assert (store.homes.has_retired(), capsys.readouterr()) == (False, ("", ""))
    monkeypatch.setattr(unit, "remove_retired", lambda _homes, reserve: [f"x cannot be removed {reserve}"])
    assert run(store, "--remove-homes", "1g") == 1
    assert f"x cannot be removed {1 << 30}" in "".join(capsys.readouterr())
    assert run(store, "--remove-homes", "much") == 1

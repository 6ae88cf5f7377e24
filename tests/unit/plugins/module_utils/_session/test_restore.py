"""What an agent does by itself: links and rules, containers after an engine's start, nothing of what is not ready."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import EngineUnavailable
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import isolation_of, render
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState, Trial
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import FirewallError
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import NetworkError, Step
from ansible_collections.backendai.cluster.plugins.module_utils._session import links
from ansible_collections.backendai.cluster.plugins.module_utils._session import restore as restoring
from ansible_collections.backendai.cluster.plugins.module_utils._session.restore import main, restore
from tests.unit.builders import SESSION_ID, held, plan
from tests.unit.engine import Engine
from tests.unit.kernel import Kernel
from tests.unit.uptime import Uptime, uptime_of_numbers

MADE = plan({"agent1": 2, "agent2": 2})
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
LINK = str(MADE.network and MADE.network.link)


def stopped(engine: Engine, *hostnames: str, state: str = "exited") -> None:
    """Let these containers of the session be there."""
    for name in hostnames:
        bears = {labels.OWNER: labels.OWNER_VALUE, labels.SESSION_ID: SESSION_ID, labels.HOSTNAME: name}
        engine.made.append({"Id": f"id-{name}", "Names": [f"/{name}"], "Labels": bears, "State": state})


def run(store: Store, *arguments: str) -> int:
    path = str(store.folder(SESSION_ID).parents[1])
    return main(["--state-path", path, "--docker-host", "unix:///engine.sock", *arguments])


@pytest.fixture(autouse=True)
def connected(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    """Let the program reach the engine of lists."""
    monkeypatch.setattr(restoring, "connect", lambda _address: engine)


def test_links_and_rules_come_back_without_an_engine(
    store: Store, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(restoring, "connect")
    store.save(held(MADE))
    assert run(store) == 0
    assert (kernel.links, bool(kernel.table)) == ({LINK}, True)
    assert f"<5>link {LINK}: missing -> vni" in capsys.readouterr().out


def test_a_second_look_finds_nothing_to_do(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.save(held(MADE))
    run(store)
    capsys.readouterr()
    assert run(store) == 0
    assert capsys.readouterr() == ("", "")


def test_containers_come_back_after_their_links(store: Store, engine: Engine, kernel: Kernel) -> None:
    store.save(held(MADE))
    stopped(engine, "main1", "sub1")
    assert run(store, "--start") == 0
    assert kernel.links == {LINK}
    assert sorted(engine.calls) == ["start id-main1", "start id-sub1"]
    assert {(port.hostname, port.interface) for port in kernel.plugged} == {
        (hostname, interface) for hostname in ("main1", "sub1") for interface in ("eth0", "cluster0")
    }


def test_the_command_of_a_batch_session_is_not_run_again(store: Store, engine: Engine) -> None:
    store.save(held(dataclasses.replace(MADE, command="exec train")))
    store.kernel_folder(SESSION_ID, "main1").mkdir()
    store.go_file(SESSION_ID).touch()
    stopped(engine, "main1", "sub1")
    assert run(store, "--start") == 0
    assert engine.calls == ["start id-sub1"]


def test_a_session_that_has_not_proven_itself_is_left_to_its_run(store: Store, engine: Engine, kernel: Kernel) -> None:
    store.save(held(MADE, expires_at=9e12))
    stopped(engine, "main1")
    assert run(store, "--start") == 0
    assert (engine.calls, kernel.links) == ([], set())
    assert kernel.table


def test_a_claim_whose_time_is_over_is_removed(store: Store, engine: Engine) -> None:
    store.save(held(MADE, expires_at=1.0))
    stopped(engine, "main1", state="created")
    assert run(store) == 0
    assert engine.calls == ["remove id-main1"]
    assert store.sessions() == []


def test_a_session_that_ended_meanwhile_is_no_failure(
    store: Store, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = store.readable()
    monkeypatch.setattr(store, "readable", lambda: ([held(MADE)], seen[1]))
    engine: Any = None
    restoring.isolate(store, dry=False)
    assert restore(store, lambda: engine, start=True) == ([], [])
    assert kernel.links == set()


def test_what_fails_for_one_session_stops_no_other(
    store: Store, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = dataclasses.replace(MADE, id=OTHER_ID, name="broken")
    store.save(held(broken))
    store.save(held(MADE))
    batch = kernel.batch

    def fail(tool: str, lines: list[str], pid: int | None = None) -> None:
        if not kernel.links:
            kernel.links.add("tried")
            raise NetworkError("ip -batch: File exists")
        batch(tool, lines, pid)

    monkeypatch.setattr(kernel, "batch", fail)
    assert run(store) == 1
    assert kernel.links == {"tried", LINK}
    assert capsys.readouterr().err == "<3>broken: ip -batch: File exists\n"


def test_a_damaged_session_is_said_and_cut_off(
    store: Store, kernel: Kernel, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(held(MADE))
    other = store.folder(OTHER_ID)
    other.mkdir()
    (other / "session.json").write_text("{")
    assert run(store) == 1
    assert kernel.links == {LINK}
    assert f"<3>{other / 'session.json'} is damaged" in capsys.readouterr().err


def test_an_agent_that_was_never_provisioned_says_so(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.folder(SESSION_ID).parent.rmdir()
    assert run(store) == 1
    assert "is not ready (No such file or directory): run backendai.cluster.provision_agents" in capsys.readouterr().err


def test_an_engine_that_takes_its_time_is_waited_for_and_not_for_ever(
    store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(held(MADE))
    clock = [0.0]
    monkeypatch.setattr(restoring.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(restoring.time, "sleep", lambda _seconds: clock.__setitem__(0, clock[0] + 10))
    up_at = 30.0

    def connect(_address: str) -> Any:
        if clock[0] < up_at:
            raise EngineUnavailable("the engine does not answer.")
        return engine

    monkeypatch.setattr(restoring, "connect", connect)
    assert run(store, "--start") == 0
    up_at = 9e9
    assert run(store, "--start") == 1
    assert capsys.readouterr().err == "<3>train-llm: the engine does not answer.\n"


def test_a_session_that_a_run_is_at_work_on_is_left_to_the_next_time(store: Store, kernel: Kernel) -> None:
    store.save(held(MADE))
    with store.session_lock(SESSION_ID):
        assert run(store) == 0
    assert kernel.links == set()
    assert run(store) == 0
    assert kernel.links == {LINK}


def test_whoever_was_plugged_into_a_lost_bridge_is_plugged_in_again(
    store: Store, engine: Engine, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(held(MADE))
    stopped(engine, "main1", state="running")
    engine.made[0]["Pid"] = 42
    change = Change("bridge bai-5f0c6a523c", None, "mtu 1450")
    monkeypatch.setattr(links, "plan_bridge", lambda _bridge, _look: [Step(change)])
    assert run(store) == 0
    assert {port.interface for port in kernel.plugged} == {"eth0", "cluster0"}


def test_what_lives_comes_before_what_is_over(
    store: Store, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(held(dataclasses.replace(MADE, id=OTHER_ID, name="over"), expires_at=1.0))
    store.save(held(MADE))

    def refuse(_address: str) -> Any:
        assert kernel.links == {LINK}
        raise EngineUnavailable("the engine does not answer.")

    monkeypatch.setattr(restoring, "connect", refuse)
    assert run(store) == 1
    assert capsys.readouterr().err == "<3>over: the engine does not answer.\n"


OLD, NEW = Firewall(("192.0.2.7/32",)), Firewall(("192.0.2.0/24",))
MISSING = "<5>firewall table inet backendai: missing -> there\n"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the program do nothing but rules: no engine is asked, no session put back."""
    monkeypatch.delattr(restoring, "connect")
    monkeypatch.delattr(restoring, "restore")


@pytest.fixture
def uptime(tmp_path: Path) -> Iterator[Uptime]:
    """Return the uptime of the agent."""
    with uptime_of_numbers(tmp_path) as numbers:
        yield numbers


def rules(firewall: Firewall | None) -> str:
    return render(isolation_of([(MADE, "agent1")], ()), firewall, ["eth0"])


@pytest.mark.usefixtures("alone")
def test_rules_alone_are_put_right_where_nothing_else_is_wanted(
    store: Store, kernel: Kernel, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(held(MADE))
    FirewallState(store).save(OLD, None)
    assert run(store, "--rules") == 0
    assert (kernel.links, kernel.table) == (set(), rules(OLD))
    assert capsys.readouterr() == (MISSING, "")
    assert run(store, "--rules") == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("alone")
def test_a_trial_that_nobody_confirmed_is_ended_by_its_nonce(
    store: Store, kernel: Kernel, uptime: Uptime, capsys: pytest.CaptureFixture[str]
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
    store: Store, kernel: Kernel, uptime: Uptime, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(held(MADE))
    FirewallState(store).save(OLD, Trial(NEW, "mine", uptime.up + 60, uptime.boot, ""))
    uptime.reboot(up=5.0)
    assert run(store, "--rules") == 0
    assert kernel.table == rules(OLD)
    assert capsys.readouterr() == (MISSING, "")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("arguments", [["--rules"], ["--withdraw", "mine"]], ids=["rules", "withdraw"])
def test_rules_that_nft_refuses_are_told_to_the_journal(
    store: Store,
    kernel: Kernel,
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
def test_a_firewall_that_cannot_be_read_is_told_to_the_journal(
    store: Store, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    store.firewall_file.write_text("{")
    assert run(store, *arguments) == 1
    assert capsys.readouterr().err.startswith(f"<3>{store.firewall_file} is damaged (")


@pytest.mark.parametrize("arguments", [[], ["--start"], ["--rules"]], ids=["heal", "boot", "rules"])
def test_a_firewall_that_cannot_be_read_leaves_no_session_unguarded(
    store: Store, kernel: Kernel, engine: Engine, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    store.save(held(MADE))
    store.firewall_file.write_text("{")
    stopped(engine, "main1")
    assert run(store, *arguments) == 1
    assert (kernel.table, kernel.links, engine.calls) == (rules(None), set(), [])
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(f"<3>{store.firewall_file} is damaged (")
    assert said.err.endswith("): remove it, and provision this host again.\n")

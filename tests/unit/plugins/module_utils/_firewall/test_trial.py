"""A new firewall is on trial until it is confirmed over a new connection."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import trial as trying
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.isolation_policy import build_isolation_policy
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import render
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState, Trial
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.sync import sync_ruleset
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import FirewallError
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.trial import (
    ConfirmError,
    TrialResult,
    apply_with_rollback,
    confirm,
    roll_back,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import (
    CorruptStateError,
    NotProvisionedError,
    Store,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError
from tests.unit.builders import SESSION_ID, held, plan
from tests.unit.fake_network import FakeNetwork
from tests.unit.uptime import Uptime, uptime_of_numbers

OLD = Firewall(("192.0.2.7/32",))
NEW = Firewall(("192.0.2.0/24",), interfaces=("eth0",))
CONNECTION = "192.0.2.7 51234 192.0.2.1 22"
LATER = "192.0.2.7 51235 192.0.2.1 22"
CHANGED = [Change("firewall table inet backendai", None, "there")]
TOO_LATE = "firewall_confirm_timeout: the new rules were not confirmed in time, and the old ones are restored"
NOT_VERIFIED = "so SSH access is not verified: the old rules are restored, unless firewall_confirm_force is true"
SAME = f"this connection was opened before the new rules were applied, {NOT_VERIFIED}"
NO_SSH = f"this connection does not use SSH, {NOT_VERIFIED}"


class Host:
    """The uptime of a host, and its scheduled rollbacks: a nonce and a delay in seconds each."""

    def __init__(self, uptime: Uptime) -> None:
        self.uptime = uptime
        self.timers: list[tuple[str, int]] = []

    def start(self, nonce: str, seconds: int) -> None:
        self.timers.append((nonce, seconds))


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Return a host with two interfaces."""
    monkeypatch.setattr(trying, "interfaces", lambda: {"lo", "eth0"})
    with uptime_of_numbers(tmp_path) as uptime:
        yield Host(uptime)


def tried(
    store: Store, host: Host, firewall: Firewall | None, connection: str = CONNECTION, *, check_mode: bool = False
) -> TrialResult:
    return apply_with_rollback(store, firewall, 60, connection, host.start, check_mode=check_mode)


def confirmed(store: Store, host: Host, firewall: Firewall | None) -> None:
    """Apply and confirm a firewall."""
    confirm(store, tried(store, host, firewall).nonce, LATER, force=False)
    host.timers.clear()


def text(firewall: Firewall | None) -> str:
    """Return the rules of a host without sessions."""
    return render(build_isolation_policy([], ()), firewall, ["eth0"])


def refusal(store: Store, nonce: str, connection: str = LATER) -> str:
    with pytest.raises(ConfirmError) as refused:
        confirm(store, nonce, connection, force=False)
    return str(refused.value)


@pytest.mark.parametrize("firewall", [NEW, None], ids=["another", "none"])
def test_a_trial_is_active_until_it_expires(
    store: Store, kernel: FakeNetwork, host: Host, firewall: Firewall | None
) -> None:
    confirmed(store, host, OLD)
    result = tried(store, host, firewall)
    assert result.changes == CHANGED
    assert host.timers == [(result.nonce, 60)]
    assert kernel.table == text(firewall)
    host.uptime.up += 59.9
    assert sync_ruleset(store, check_mode=False) == []
    host.uptime.up += 0.1
    assert sync_ruleset(store, check_mode=False) == CHANGED
    assert kernel.table == text(OLD)


def test_a_trial_stores_boot_id_and_connection(store: Store, host: Host) -> None:
    nonce = tried(store, host, NEW).nonce
    assert FirewallState(store).trial == Trial(NEW, nonce, host.uptime.up + 60, host.uptime.boot, CONNECTION)


@pytest.mark.parametrize("up", [5.0, 1000.0])
def test_a_reboot_restores_the_confirmed_firewall(store: Store, kernel: FakeNetwork, host: Host, up: float) -> None:
    confirmed(store, host, OLD)
    nonce = tried(store, host, NEW).nonce
    host.uptime.reboot(up)
    kernel.table = ""
    assert sync_ruleset(store, check_mode=False) == CHANGED
    assert kernel.table == text(OLD)
    assert refusal(store, nonce) == TOO_LATE
    assert FirewallState(store).confirmed == OLD


@pytest.mark.parametrize("now", [0.0, 9e12])
def test_a_clock_change_does_not_end_a_trial(
    store: Store, host: Host, monkeypatch: pytest.MonkeyPatch, now: float
) -> None:
    nonce = tried(store, host, NEW).nonce
    monkeypatch.setattr(time, "time", lambda: now)
    assert sync_ruleset(store, check_mode=False) == []
    confirm(store, nonce, LATER, force=False)
    assert FirewallState(store).confirmed == NEW


def test_each_trial_has_its_own_nonce(store: Store, host: Host) -> None:
    first, second = tried(store, host, NEW).nonce, tried(store, host, NEW).nonce
    assert len(first) == len(second) == 32
    assert first != second


def test_a_confirmed_firewall_stays_active(store: Store, kernel: FakeNetwork, host: Host) -> None:
    confirm(store, tried(store, host, NEW).nonce, LATER, force=False)
    host.uptime.up += 1e9
    assert sync_ruleset(store, check_mode=False) == []
    assert kernel.table == text(NEW)
    assert (FirewallState(store).confirmed, FirewallState(store).trial) == (NEW, None)


def test_removing_the_firewall_must_be_confirmed_too(store: Store, kernel: FakeNetwork, host: Host) -> None:
    confirmed(store, host, OLD)
    confirmed(store, host, None)
    assert (FirewallState(store).active(), kernel.table) == (None, text(None))


@pytest.mark.parametrize("firewall", [NEW, None], ids=["a firewall", "none"])
def test_a_confirmed_firewall_is_reapplied_without_a_trial(
    store: Store, kernel: FakeNetwork, host: Host, firewall: Firewall | None
) -> None:
    if firewall:
        confirmed(store, host, firewall)
    kernel.table = "flushed"
    assert tried(store, host, firewall) == TrialResult(CHANGED, "")
    assert (kernel.table, host.timers) == (text(firewall), [])
    assert tried(store, host, firewall) == TrialResult([], "")


def test_a_confirmed_firewall_is_on_trial_while_another_one_is(store: Store, kernel: FakeNetwork, host: Host) -> None:
    confirmed(store, host, OLD)
    lost = tried(store, host, NEW).nonce
    again = tried(store, host, OLD)
    assert again.nonce not in ("", lost)
    assert kernel.table == text(OLD)
    assert refusal(store, lost) == TOO_LATE
    confirm(store, again.nonce, LATER, force=False)
    assert FirewallState(store).active() == OLD


@pytest.mark.parametrize("late", [60, 61, 9e9])
def test_an_expired_trial_cannot_be_confirmed(store: Store, host: Host, late: float) -> None:
    nonce = tried(store, host, NEW).nonce
    host.uptime.up += late
    assert refusal(store, nonce) == TOO_LATE
    assert FirewallState(store).active() is None


def test_a_trial_can_be_confirmed_until_it_expires(store: Store, host: Host) -> None:
    nonce = tried(store, host, NEW).nonce
    host.uptime.up += 59.9
    confirm(store, nonce, LATER, force=False)
    assert FirewallState(store).confirmed == NEW


def test_another_nonce_does_not_confirm_a_trial(store: Store, host: Host) -> None:
    nonce = tried(store, host, NEW).nonce
    assert refusal(store, "0" * 32) == TOO_LATE
    state = FirewallState(store)
    assert (state.confirmed, state.trial and state.trial.nonce) == (None, nonce)


def test_confirming_without_a_trial_fails(store: Store) -> None:
    assert refusal(store, "") == TOO_LATE
    assert not store.firewall_file.exists()


def test_the_connection_of_the_trial_cannot_confirm_it(store: Store, host: Host) -> None:
    nonce = tried(store, host, NEW).nonce
    assert refusal(store, nonce, CONNECTION) == SAME
    assert FirewallState(store).confirmed is None
    confirm(store, nonce, LATER, force=False)


@pytest.mark.parametrize("began", ["", CONNECTION])
def test_a_connection_without_ssh_cannot_confirm(store: Store, host: Host, began: str) -> None:
    nonce = tried(store, host, NEW, began).nonce
    assert refusal(store, nonce, "") == NO_SSH
    assert FirewallState(store).confirmed is None


@pytest.mark.parametrize(("began", "ends"), [("", ""), (CONNECTION, ""), (CONNECTION, CONNECTION)])
def test_force_confirms_without_verification(store: Store, host: Host, began: str, ends: str) -> None:
    confirm(store, tried(store, host, NEW, began).nonce, ends, force=True)
    assert FirewallState(store).confirmed == NEW


def test_ssh_confirms_a_trial_started_without_ssh(store: Store, host: Host) -> None:
    confirm(store, tried(store, host, NEW, "").nonce, LATER, force=False)
    assert FirewallState(store).confirmed == NEW


def test_a_rollback_restores_the_previous_firewall(store: Store, kernel: FakeNetwork, host: Host) -> None:
    confirmed(store, host, OLD)
    nonce = tried(store, host, NEW).nonce
    assert roll_back(store, nonce) == CHANGED
    assert kernel.table == text(OLD)
    assert (FirewallState(store).confirmed, FirewallState(store).trial) == (OLD, None)
    assert refusal(store, nonce) == TOO_LATE


@pytest.mark.parametrize("nonce", ["", "0" * 32])
def test_another_nonce_does_not_roll_back_a_trial(store: Store, kernel: FakeNetwork, host: Host, nonce: str) -> None:
    tried(store, host, NEW)
    assert roll_back(store, nonce) == []
    assert kernel.table == text(NEW)


def test_a_confirmed_firewall_is_not_rolled_back(store: Store, kernel: FakeNetwork, host: Host) -> None:
    nonce = tried(store, host, NEW).nonce
    confirm(store, nonce, LATER, force=False)
    kernel.table = "flushed"
    assert roll_back(store, nonce) == CHANGED
    assert kernel.table == text(NEW)


def test_the_rollback_is_scheduled_before_rules_are_replaced(store: Store, kernel: FakeNetwork, host: Host) -> None:
    events: list[tuple[str, bool]] = []

    def start(_nonce: str, _seconds: int) -> None:
        events.append((kernel.table, store.firewall_file.exists()))

    apply_with_rollback(store, NEW, 60, CONNECTION, start, check_mode=False)
    assert events == [("", False)]
    assert (kernel.table, host.timers) == (text(NEW), [])


def test_a_trial_starts_under_the_isolation_lock(store: Store) -> None:
    held_by_others: list[bool] = []

    def start(_nonce: str, _seconds: int) -> None:
        folder = os.open(store.folder(SESSION_ID).parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held_by_others.append(True)
        finally:
            os.close(folder)

    apply_with_rollback(store, NEW, 60, CONNECTION, start, check_mode=False)
    assert held_by_others == [True]


@pytest.mark.parametrize(
    "error",
    [
        NotProvisionedError("restore.pyz is missing"),
        subprocess.CalledProcessError(1, ["systemd-run"], stderr="Failed"),
        OSError("fork"),
    ],
)
def test_no_trial_without_a_scheduled_rollback(store: Store, kernel: FakeNetwork, error: Exception) -> None:
    def start(_nonce: str, _seconds: int) -> None:
        raise error

    with pytest.raises(type(error)):
        apply_with_rollback(store, NEW, 60, CONNECTION, start, check_mode=False)
    assert (kernel.table, store.firewall_file.exists()) == ("", False)


@pytest.mark.parametrize("check_mode", [False, True])
def test_rules_that_nft_rejects_are_not_tried(store: Store, kernel: FakeNetwork, host: Host, check_mode: bool) -> None:
    kernel.refuses = "nft: Error: syntax error"
    with pytest.raises(FirewallError, match=r"^nft: Error: syntax error$"):
        tried(store, host, NEW, check_mode=check_mode)
    assert (kernel.table, host.timers, store.firewall_file.exists()) == ("", [], False)


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_missing_interface_is_rejected(store: Store, kernel: FakeNetwork, host: Host, check_mode: bool) -> None:
    with pytest.raises(ClusterError) as refused:
        tried(store, host, Firewall(("192.0.2.7/32",), interfaces=("eth0", "eth8", "eth9")), check_mode=check_mode)
    assert str(refused.value) == "firewall_interfaces: 'eth8' is not an interface of this host"
    assert (kernel.table, host.timers, store.firewall_file.exists()) == ("", [], False)


def test_a_dry_run_returns_changes_and_applies_none(store: Store, kernel: FakeNetwork, host: Host) -> None:
    assert tried(store, host, NEW, check_mode=True) == TrialResult(CHANGED, "")
    assert (kernel.table, host.timers, store.firewall_file.exists()) == ("", [], False)


def test_a_dry_run_without_differences_returns_nothing(store: Store, host: Host) -> None:
    confirmed(store, host, NEW)
    assert tried(store, host, NEW, check_mode=True) == TrialResult([], "")


@pytest.mark.parametrize("error", [FirewallError("nft: no"), KeyboardInterrupt()], ids=["nft", "interrupted"])
def test_a_failed_replacement_rolls_back_the_trial(
    store: Store, kernel: FakeNetwork, host: Host, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    confirmed(store, host, OLD)
    apply, fails = kernel.apply_table, [error]

    def fail_once(firewall: str) -> None:
        apply(firewall)
        if fails:
            raise fails.pop()

    monkeypatch.setattr(kernel, "apply_table", fail_once)
    with pytest.raises(type(error)):
        tried(store, host, NEW)
    assert (FirewallState(store).confirmed, FirewallState(store).trial) == (OLD, None)
    assert kernel.table == text(OLD)


def test_a_failed_replacement_keeps_the_confirmed_firewall(
    store: Store, kernel: FakeNetwork, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed(store, host, OLD)
    kernel.table = "flushed"

    def fail(_wanted: str) -> None:
        raise FirewallError("nft: no")

    monkeypatch.setattr(kernel, "apply_table", fail)
    with pytest.raises(FirewallError):
        tried(store, host, OLD)
    assert FirewallState(store).confirmed == OLD


def test_rules_on_trial_include_the_sessions_of_the_host(store: Store, kernel: FakeNetwork, host: Host) -> None:
    result = plan({"agent1": 1, "agent2": 1})
    store.save(held(result))
    tried(store, host, NEW)
    assert kernel.table == render(build_isolation_policy([(result, "agent1")], ()), NEW, ["eth0"])


@pytest.mark.parametrize("check_mode", [False, True])
def test_an_unreadable_session_prevents_a_trial(
    store: Store, kernel: FakeNetwork, host: Host, check_mode: bool
) -> None:
    confirmed(store, host, OLD)
    store.save(held(plan({"agent1": 1})))
    (store.folder(SESSION_ID) / "session.json").write_text("{")
    with pytest.raises(CorruptStateError, match=r"session\.json is damaged \("):
        tried(store, host, NEW, check_mode=check_mode)
    assert (kernel.table, host.timers, FirewallState(store).trial) == (text(OLD), [], None)
    assert tried(store, host, OLD, check_mode=check_mode) == TrialResult([], "")


@pytest.mark.parametrize(
    "act",
    [
        lambda store: apply_with_rollback(store, NEW, 60, CONNECTION, lambda _nonce, _seconds: None, check_mode=False),
        lambda store: confirm(store, "n", LATER, force=False),
        lambda store: roll_back(store, "n"),
    ],
    ids=["try", "confirm", "withdraw"],
)
def test_an_unprovisioned_host_is_an_error(store: Store, act: Any) -> None:
    store.folder(SESSION_ID).parent.rmdir()
    with pytest.raises(NotProvisionedError, match=r"is not ready \(No such file or directory\): run backendai"):
        act(store)

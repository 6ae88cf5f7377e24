"""The stored firewall of a host, and which one is active."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import state as state_module
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import AllowRule, Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import (
    PROVISION,
    FirewallState,
    Trial,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.deadline import read_uptime
from ansible_collections.backendai.cluster.plugins.module_utils._host.processes import boot_id, open_sockets
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from tests.unit.uptime import Uptime, uptime_of_numbers

OLD = Firewall(("192.0.2.7/32",))
NEW = Firewall(
    ("192.0.2.0/24",),
    ("198.51.100.7/32",),
    (),
    (22, 2222),
    (AllowRule("tcp", ("9100",), ("10.0.0.0/8",)),),
    ("eth0",),
    management=("10.1.0.0/16",),
    compute=("10.2.0.0/16",),
)
UNTIL = 1000.0


@pytest.fixture(autouse=True)
def uptime(tmp_path: Path) -> Iterator[Uptime]:
    """Return the uptime of the host; trials of this boot have another second."""
    with uptime_of_numbers(tmp_path) as numbers:
        numbers.up = UNTIL - 1
        yield numbers


def trial_of(boot: str, firewall: Firewall | None = NEW) -> Trial:
    """Return a trial of that boot."""
    return Trial(firewall, "n", UNTIL, boot, "")


def test_a_new_host_has_no_firewall(store: Store) -> None:
    state = FirewallState(store)
    assert (state.confirmed, state.trial, state.active()) == (None, None, None)
    assert not store.firewall_file.exists()


@pytest.mark.parametrize("confirmed", [OLD, NEW, None])
@pytest.mark.parametrize("trial", [None, Trial(NEW, "n", UNTIL, "boot", "a 1 b 22"), trial_of("boot", None)])
def test_saved_state_is_read_back(store: Store, confirmed: Firewall | None, trial: Trial | None) -> None:
    FirewallState(store).save(confirmed, trial)
    state = FirewallState(store)
    assert (state.confirmed, state.trial) == (confirmed, trial)


def test_only_root_can_read_the_firewall_state(store: Store) -> None:
    FirewallState(store).save(OLD, None)
    assert stat.S_IMODE(store.firewall_file.stat().st_mode) == 0o600


@pytest.mark.parametrize("tried", [NEW, None])
def test_a_trial_is_the_active_firewall_until_it_expires(store: Store, uptime: Uptime, tried: Firewall | None) -> None:
    state = FirewallState(store)
    state.save(OLD, trial_of(uptime.boot, tried))
    assert state.active() == FirewallState(store).active() == tried
    uptime.up = UNTIL
    assert state.active() == FirewallState(store).active() == OLD


@pytest.mark.parametrize(
    ("up", "expired"), [(0.0, False), (UNTIL - 0.1, False), (UNTIL, True), (UNTIL + 0.1, True), (9e9, True)]
)
def test_a_trial_expires_at_its_uptime(uptime: Uptime, up: float, expired: bool) -> None:
    uptime.up = up
    assert trial_of(uptime.boot).expired is expired


@pytest.mark.parametrize("up", [0.0, UNTIL - 1, UNTIL])
def test_a_trial_of_another_boot_has_expired(store: Store, uptime: Uptime, up: float) -> None:
    state = FirewallState(store)
    state.save(OLD, trial_of(uptime.boot))
    uptime.reboot(up)
    assert trial_of(boot_id()).expired is (up == UNTIL)
    assert state.trial is not None
    assert state.trial.expired is True
    assert state.active() == FirewallState(store).active() == OLD


@pytest.mark.parametrize("now", [0.0, 9e12])
def test_a_clock_change_does_not_affect_a_trial(
    store: Store, uptime: Uptime, monkeypatch: pytest.MonkeyPatch, now: float
) -> None:
    state = FirewallState(store)
    state.save(OLD, trial_of(uptime.boot))
    monkeypatch.setattr(time, "time", lambda: now)
    assert state.active() == NEW
    uptime.up = UNTIL
    assert state.active() == OLD


def test_boot_id_and_uptime_are_read(uptime: Uptime) -> None:
    assert (boot_id(), read_uptime()) == (uptime.boot, UNTIL - 1)


def test_without_a_trial_the_confirmed_firewall_is_active(store: Store) -> None:
    state = FirewallState(store)
    state.save(OLD, None)
    assert state.active() == OLD


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "{}",
        '{"confirmed": null}',
        '{"confirmed": "x", "trial": null}',
        '{"confirmed": {"allow": []}, "trial": null}',
        '{"confirmed": {"allow": [], "friends": []}, "trial": null}',
        '{"confirmed": null, "trial": {"nonce": "n"}}',
        '{"confirmed": null, "trial": {"firewall": null, "nonce": "n"}}',
        # Format of an older version, which used the clock.
        '{"confirmed": null, "trial": {"firewall": null, "nonce": "n", "until": 9e12, "connection": ""}}',
    ],
)
def test_with_a_damaged_file_the_last_confirmed_firewall_is_active(store: Store, uptime: Uptime, text: str) -> None:
    FirewallState(store).save(OLD, trial_of(uptime.boot))
    store.firewall_file.write_text(text)
    state = FirewallState(store)
    assert (state.active(), state.trial) == (OLD, None)
    assert state.damage.startswith(f"{store.firewall_file} is damaged (")
    assert state.damage.endswith(f"), so the last firewall that was confirmed is active: {PROVISION}.")


@pytest.mark.parametrize("copy", [None, "{"])
def test_without_a_readable_copy_only_logins_are_open(
    store: Store, monkeypatch: pytest.MonkeyPatch, copy: str | None
) -> None:
    monkeypatch.setattr(state_module, "login_ports", lambda: {2222})
    FirewallState(store).save(OLD, None)
    store.firewall_file.write_text("{")
    store.firewall_copy.unlink()
    if copy:
        store.firewall_copy.write_text(copy)
    state = FirewallState(store)
    assert state.active() == Firewall(("0.0.0.0/0", "::/0"), ssh_ports=(22, 2222))
    assert state.damage.endswith(f"), so only SSH and published ports are open: {PROVISION}.")


def test_a_firewall_that_nobody_could_have_requested_is_damaged(store: Store) -> None:
    FirewallState(store).save(OLD, None)
    text = store.firewall_file.read_text()
    store.firewall_file.write_text(text.replace("192.0.2.7/32", "everyone"))
    assert "firewall_ssh_sources: 'everyone' must be an address or a network" in FirewallState(store).damage
    assert FirewallState(store).active() == OLD


def test_a_removed_file_is_no_firewall(store: Store) -> None:
    FirewallState(store).save(OLD, None)
    store.firewall_file.unlink()
    assert (FirewallState(store).active(), FirewallState(store).damage) == (None, "")


def test_saving_repairs_a_damaged_file(store: Store) -> None:
    state = FirewallState(store)
    state.save(OLD, None)
    store.firewall_file.write_text("{")
    damaged = FirewallState(store)
    damaged.save(damaged.confirmed, None)
    assert (damaged.damage, FirewallState(store).damage, FirewallState(store).active()) == ("", "", OLD)


def test_a_folder_instead_of_the_state_file_is_damage(store: Store) -> None:
    store.firewall_file.mkdir()
    assert "is damaged ([Errno 21] Is a directory: " in FirewallState(store).damage


def test_the_ports_of_logins_are_those_that_sshd_listens_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        own = Path("/proc/self/comm").read_text().strip()
        inodes = open_sockets((own,))
        assert str(os.fstat(server.fileno()).st_ino) in inodes
        monkeypatch.setattr(state_module, "open_sockets", lambda _programs: inodes)
        assert server.getsockname()[1] in state_module.login_ports()


def test_saved_state_is_plain_data(store: Store) -> None:
    FirewallState(store).save(OLD, Trial(None, "n", UNTIL, "boot", "a 1 b 22"))
    assert json.loads(store.firewall_file.read_text()) == {
        "version": 3,
        "confirmed": {
            "ssh_sources": ["192.0.2.7/32"],
            "gateways": [],
            "agents": [],
            "ssh_ports": [22],
            "allow": [],
            "interfaces": [],
            "mode": "enforce",
            "management": [],
            "compute": [],
        },
        "trial": {"firewall": None, "nonce": "n", "until": UNTIL, "boot": "boot", "connection": "a 1 b 22"},
    }


def test_a_host_without_a_firewall_reports_first_and_others_keep_their_mode(store: Store) -> None:
    assert (FirewallState(store).mode, FirewallState(store).usual_mode()) == ("off", "report")
    for mode in ("report", "enforce"):
        FirewallState(store).save(dataclasses.replace(OLD, mode=mode), None)
        assert (FirewallState(store).mode, FirewallState(store).usual_mode()) == (mode, mode)


def test_a_trial_does_not_change_the_mode_that_a_host_keeps(store: Store, uptime: Uptime) -> None:
    reporting = Trial(dataclasses.replace(OLD, mode="report"), "n", uptime.up + 60, uptime.boot, "")
    FirewallState(store).save(OLD, reporting)
    assert (FirewallState(store).mode, FirewallState(store).usual_mode()) == ("report", "enforce")


def test_a_damaged_firewall_without_a_copy_is_enforced(store: Store) -> None:
    store.firewall_file.write_text("{")
    assert (FirewallState(store).mode, FirewallState(store).usual_mode()) == ("enforce", "enforce")

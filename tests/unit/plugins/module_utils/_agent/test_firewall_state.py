"""The operator's firewall as a host remembers it: which one holds now."""

from __future__ import annotations

import json
import stat

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._agent import firewall_state
from ansible_collections.backendai.cluster.plugins.module_utils._agent.firewall_state import FirewallState, Trial
from ansible_collections.backendai.cluster.plugins.module_utils._core.firewall import Allowance, Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Damaged, Store

OLD = Firewall(("192.0.2.7/32",))
NEW = Firewall(
    ("192.0.2.0/24",), ("198.51.100.7/32",), (), (22, 2222), (Allowance("tcp", ("9100",), ("10.0.0.0/8",)),), ("eth0",)
)
UNTIL = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time that it is."""
    now = [UNTIL - 1]
    monkeypatch.setattr(firewall_state.time, "time", lambda: now[0])
    return now


def test_a_host_that_never_had_a_firewall_has_none(store: Store) -> None:
    state = FirewallState(store)
    assert (state.confirmed, state.trial, state.in_force()) == (None, None, None)
    assert not store.firewall_file.exists()


@pytest.mark.parametrize("confirmed", [OLD, NEW, None])
@pytest.mark.parametrize("trial", [None, Trial(NEW, "n", UNTIL, "a 1 b 22"), Trial(None, "n", UNTIL, "")])
def test_what_is_saved_is_read_again(store: Store, confirmed: Firewall | None, trial: Trial | None) -> None:
    FirewallState(store).save(confirmed, trial)
    state = FirewallState(store)
    assert (state.confirmed, state.trial) == (confirmed, trial)


def test_only_root_reads_who_may_come_in(store: Store) -> None:
    FirewallState(store).save(OLD, None)
    assert stat.S_IMODE(store.firewall_file.stat().st_mode) == 0o600


@pytest.mark.parametrize("tried", [NEW, None])
def test_what_is_on_trial_holds_until_its_time_is_over(
    store: Store, clock: list[float], tried: Firewall | None
) -> None:
    state = FirewallState(store)
    state.save(OLD, Trial(tried, "n", UNTIL, ""))
    assert state.in_force() == tried
    clock[0] = UNTIL
    assert state.in_force() == FirewallState(store).in_force() == OLD


def test_without_a_trial_what_is_confirmed_holds(store: Store) -> None:
    state = FirewallState(store)
    state.save(OLD, None)
    assert state.in_force() == OLD


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
        '{"confirmed": {"managers": ["192.0.2.7/32"]}, "trial": null}',
        '{"confirmed": {"allow": [], "friends": []}, "trial": null}',
        '{"confirmed": null, "trial": {"nonce": "n"}}',
        '{"confirmed": null, "trial": {"firewall": null, "nonce": "n"}}',
    ],
)
def test_a_file_that_cannot_be_read_says_what_to_do(store: Store, text: str) -> None:
    store.firewall_file.write_text(text)
    with pytest.raises(Damaged) as damaged:
        FirewallState(store)
    said = str(damaged.value)
    assert said.startswith(f"{store.firewall_file} is damaged (")
    assert said.endswith("): remove it, and provision this host again.")


def test_a_file_that_is_none_says_what_to_do(store: Store) -> None:
    store.firewall_file.mkdir()
    with pytest.raises(Damaged, match=r"is damaged \(\[Errno 21\] Is a directory: '.*'\): remove it, and provision"):
        FirewallState(store)


def test_what_is_saved_is_plain_data(store: Store) -> None:
    FirewallState(store).save(OLD, None)
    assert json.loads(store.firewall_file.read_text()) == {
        "confirmed": {
            "managers": ["192.0.2.7/32"],
            "gateways": [],
            "peers": [],
            "ssh_ports": [22],
            "allow": [],
            "interfaces": [],
        },
        "trial": None,
    }

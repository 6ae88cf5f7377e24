"""firewalld and ufw are opened for the roles of a host, and closed again, and nothing of the operator's is touched."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import foreign
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.foreign import (
    close_firewalls,
    find_firewalls,
    keep,
    name_closing,
    open_firewalls,
    withdraw,
)
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.openings import Opening
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState, Trial
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.trial import ConfirmError, confirm
from ansible_collections.backendai.cluster.plugins.module_utils._host.deadline import deadline_in
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import LockTimeoutError, Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError
from ansible_collections.backendai.cluster.plugins.module_utils._model.files import locked
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import NetworkError
from tests.unit.foreign_firewalls import Host, on_host

PEERS = [Opening("udp", "4789", f"10.0.0.{host}/32") for host in (2, 3)]
PUBLIC = Opening("tcp", "443")
RICH = 'rule{} family="ipv4" source address="10.0.0.{}" port port="4789" protocol="udp" accept'
MARKED = ' priority="4789"'
SSH = '--add-rich-rule=rule family="ipv4" source address="10.0.0.2" service name="ssh" accept'


def rich(host: int, mark: str = MARKED) -> str:
    return f"--add-rich-rule={RICH.format(mark, host)}"


def ufw(host: int, comment: str = "backendai.cluster") -> str:
    end = f" comment '{comment}'" if comment else ""
    return f"ufw allow from 10.0.0.{host} to any port 4789 proto udp{end}"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "sessions").mkdir()
    return Store(str(tmp_path))


@pytest.fixture
def firewalld(tmp_path: Path) -> Iterator[Host]:
    """Return a host with firewalld, on which an engine runs."""
    host = Host(tmp_path, "firewall-cmd")
    with on_host(host):
        yield host


@pytest.fixture
def with_ufw(tmp_path: Path) -> Iterator[Host]:
    """Return a host with an active ufw."""
    host = Host(tmp_path, "ufw")
    with on_host(host):
        yield host


def on_trial(store: Store, *openings: Opening, bridges: bool = True, check_mode: bool = False) -> list[Change]:
    """Open the firewalls of the host while its own is on trial."""
    end = deadline_in(60)
    state = FirewallState(store)
    state.save(state.confirmed, Trial(None, "0" * 32, end.uptime, end.boot, "a"))
    return open_firewalls(store, find_firewalls(openings, bridges=bridges), check_mode=check_mode)


def confirmed(store: Store) -> None:
    """Confirm what is on trial."""
    trial = FirewallState(store).trial
    confirm(store, trial.nonce if trial else "", "b", force=False)


def kept(store: Store) -> None:
    with keep(store):
        pass


def rolled_back(store: Store) -> list[Change]:
    FirewallState(store).save(None, None)
    return withdraw(store)


def test_a_host_without_them_has_nothing_to_open(tmp_path: Path) -> None:
    with on_host(Host(tmp_path)):
        assert find_firewalls(PEERS, bridges=True) == []


def test_firewalld_gets_a_rule_for_each_peer_and_the_bridges_in_the_zone_of_the_engine(
    store: Store, firewalld: Host
) -> None:
    on_trial(store, *PEERS)
    assert firewalld.zones[False] == {
        "docker": ["--add-interface=backendai0", "--add-interface=bai-+"],
        "public": [rich(2), rich(3)],
    }
    assert firewalld.zones[True] == {"docker": [], "public": []}, "before it is confirmed"
    confirmed(store)
    assert firewalld.zones[True] == {"docker": ["--add-interface=bai-+"], "public": [rich(2), rich(3)]}
    assert len(firewalld.changes) == 4, "one command for all rules of a zone"
    assert {word for command in firewalld.changes for word in command if word.startswith("--")}.isdisjoint(
        {"--reload", "--complete-reload", "--set-default-zone", "--add-source", "--new-zone"}
    )


def test_what_is_confirmed_stays_and_is_not_added_again(store: Store, firewalld: Host) -> None:
    on_trial(store, *PEERS)
    confirmed(store)
    before = copy.deepcopy(firewalld.zones)
    assert withdraw(store) == []
    assert on_trial(store, *PEERS) == []
    assert firewalld.zones == before


def test_what_is_not_confirmed_goes_and_leaves_what_was_confirmed_before(store: Store, firewalld: Host) -> None:
    on_trial(store, PEERS[0])
    confirmed(store)
    before = copy.deepcopy(firewalld.zones)
    on_trial(store, *PEERS)
    assert withdraw(store) == [], "the trial goes on"
    assert [change.subject for change in rolled_back(store)] == [
        f"firewall-cmd --zone=public '{rich(3)}'".replace("'--add-rich-rule=", "--add-rich-rule='")
    ]
    assert firewalld.zones == before
    assert rolled_back(store) == []


def test_what_a_trial_that_ends_during_its_confirmation_has_opened_goes(
    store: Store, firewalld: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copy.deepcopy(firewalld.zones)
    on_trial(store, *PEERS)
    run = firewalld.run

    def slowly(*command: str) -> str:
        if "--permanent" in command:
            FirewallState(store).save(None, None)
        return run(*command)

    monkeypatch.setattr(foreign, "_run", slowly)
    with pytest.raises(ConfirmError, match="the old ones are restored"):
        confirmed(store)
    assert firewalld.zones[True]["public"] == [rich(2), rich(3)], "it was too late"
    withdraw(store)
    assert firewalld.zones == before


def test_a_timer_does_not_wait_for_whoever_opens_and_not_for_long_once_the_trial_is_over(
    store: Store, with_ufw: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert foreign.WITHDRAW_SECONDS < 60, "the time of its unit"
    monkeypatch.setattr(foreign, "WITHDRAW_SECONDS", 0.1)
    on_trial(store, *PEERS)
    with locked(store.root, 0):
        assert withdraw(store) == [], "the trial goes on"
        with pytest.raises(LockTimeoutError, match=r"has held the lock .* for more than 0.1 seconds"):
            rolled_back(store)
    assert len(withdraw(store)) == 2
    assert with_ufw.ufw == []


def test_what_is_not_confirmed_goes_after_a_reboot(store: Store, with_ufw: Host) -> None:
    on_trial(store, *PEERS)
    FirewallState(store).save(None, Trial(None, "0" * 32, 1e9, "another boot", "a"))
    assert len(withdraw(store)) == 2
    assert with_ufw.ufw == []


def test_nothing_is_read_where_nothing_was_ever_opened(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "_run", pytest.fail)
    assert withdraw(store) == []
    kept(store)
    assert close_firewalls(store, check_mode=False) == []


def test_removal_takes_ours_and_leaves_the_operators(store: Store, firewalld: Host) -> None:
    mine = {False: [SSH, rich(2, ""), "--add-interface=eth0"], True: [rich(3, "")]}
    for flag, rules in mine.items():
        firewalld.zones[flag]["public"] += rules
    before = copy.deepcopy(firewalld.zones)
    on_trial(store, *PEERS, PUBLIC)
    confirmed(store)
    assert rich(2) not in firewalld.zones[False]["public"], "it is there without our mark"
    assert rich(2) in firewalld.zones[True]["public"]
    later = '--add-rich-rule=rule family="ipv4" source address="10.0.0.7" drop'
    firewalld.zones[False]["public"].append(later)
    checked = close_firewalls(store, check_mode=True)
    assert checked == close_firewalls(store, check_mode=False) != []
    before[False]["public"].append(later)
    assert firewalld.zones == before
    assert not store.openings_file.exists()


def test_a_rule_that_a_reload_has_made_of_a_permanent_one_of_ours_goes_too(store: Store, firewalld: Host) -> None:
    firewalld.zones[False]["public"].append(rich(2, ""))
    on_trial(store, PEERS[0])
    confirmed(store)
    assert firewalld.zones[False]["public"] == [rich(2, "")]
    firewalld.zones[False] = copy.deepcopy(firewalld.zones[True])
    close_firewalls(store, check_mode=False)
    assert firewalld.zones[False] == firewalld.zones[True] == {"docker": [], "public": []}


def test_a_rule_with_our_mark_that_was_there_before_is_never_removed(store: Store, firewalld: Host) -> None:
    for flag in (False, True):
        firewalld.zones[flag]["public"].append(rich(2))
    before = copy.deepcopy(firewalld.zones)
    on_trial(store, *PEERS)
    confirmed(store)
    close_firewalls(store, check_mode=False)
    assert firewalld.zones == before


def test_permanent_rules_go_where_firewalld_was_stopped(store: Store, firewalld: Host) -> None:
    on_trial(store, *PEERS)
    confirmed(store)
    firewalld.runs_firewalld = False
    close_firewalls(store, check_mode=False)
    assert firewalld.zones[True] == {"docker": [], "public": []}


def test_what_is_not_needed_any_more_goes(store: Store, firewalld: Host) -> None:
    on_trial(store, *PEERS)
    confirmed(store)
    assert len(on_trial(store, PEERS[1], check_mode=True)) == 2
    assert len(on_trial(store, PEERS[1])) == 2
    assert [firewalld.zones[flag]["public"] for flag in (False, True)] == [[rich(3)], [rich(3)]]


def test_what_one_firewall_has_stays_while_it_is_off(store: Store, with_ufw: Host) -> None:
    on_trial(store, *PEERS)
    confirmed(store)
    assert open_firewalls(store, [], check_mode=False) == []
    assert with_ufw.ufw == [ufw(2), ufw(3)]


def test_an_engine_without_a_zone_gets_none(store: Store, firewalld: Host) -> None:
    firewalld.zones[False]["docker"].clear()
    on_trial(store)
    assert firewalld.changes == []


def test_bridges_stay_in_the_zone_of_an_engine_that_is_not_known_at_the_moment(store: Store, firewalld: Host) -> None:
    on_trial(store)
    confirmed(store)
    firewalld.zones[False]["docker"].remove("--add-interface=backendai0")
    assert on_trial(store) == []
    assert [zones["docker"] for zones in firewalld.zones.values()] == [["--add-interface=bai-+"]] * 2
    close_firewalls(store, check_mode=False)
    assert [zones["docker"] for zones in firewalld.zones.values()] == [[], []]


def test_bridges_in_a_zone_of_the_operators_stay_there(store: Store, firewalld: Host) -> None:
    for flag in (False, True):
        firewalld.zones[flag]["public"].append("--add-interface=bai-+")
    on_trial(store)
    assert firewalld.changes == []


def test_a_gateway_has_no_bridges_to_open(store: Store, firewalld: Host) -> None:
    on_trial(store, PUBLIC, bridges=False)
    assert firewalld.zones[False]["docker"] == ["--add-interface=backendai0"]


def test_ufw_gets_a_rule_with_our_comment_for_what_no_rule_matches(store: Store, with_ufw: Host) -> None:
    denied = "ufw deny from 10.0.0.2 to any port 4789 proto udp"
    with_ufw.ufw = ["ufw allow 22/tcp", denied, ufw(3, "mine")]
    before = [*with_ufw.ufw]
    on_trial(store, *PEERS, Opening("udp", "4789", "10.0.0.4/32"), PUBLIC)
    assert with_ufw.ufw[:3] == before
    assert {*with_ufw.ufw[3:]} == {ufw(4), "ufw allow 443/tcp comment 'backendai.cluster'"}
    confirmed(store)
    close_firewalls(store, check_mode=False)
    assert with_ufw.ufw == before


def test_a_rule_of_ufw_whose_comment_the_operator_has_changed_is_his(store: Store, with_ufw: Host) -> None:
    on_trial(store, *PEERS)
    confirmed(store)
    with_ufw.run("ufw", *ufw(2, "").split()[1:])
    close_firewalls(store, check_mode=False)
    assert with_ufw.ufw == [ufw(2, "")]


def test_check_mode_changes_nothing(store: Store, with_ufw: Host) -> None:
    assert [change.subject for change in on_trial(store, *PEERS, check_mode=True)] == [ufw(2), ufw(3)]
    assert (with_ufw.changes, store.openings_file.exists()) == ([], False)


@pytest.mark.parametrize("settings", ["ENABLED=no\n", "", "ENABLED=yes-not\n", None])
def test_an_ufw_that_is_not_enabled_is_not_active(with_ufw: Host, settings: str | None) -> None:
    with_ufw.settings.unlink()
    if settings is not None:
        with_ufw.settings.write_text(settings)
    (found,) = find_firewalls(PEERS, bridges=True)
    assert (found.active, found.lines) == (False, [ufw(2, ""), ufw(3, "")])


def test_a_rule_is_written_down_before_it_is_added(store: Store, with_ufw: Host) -> None:
    with_ufw.broken = "10.0.0.3"
    with pytest.raises(subprocess.CalledProcessError):
        on_trial(store, *PEERS)
    with_ufw.broken = ""
    assert with_ufw.ufw == [ufw(2)]
    assert len(rolled_back(store)) == 1
    assert with_ufw.ufw == []


def test_rules_that_firewalld_has_not_taken_are_named_and_go_with_the_trial(store: Store, firewalld: Host) -> None:
    before = copy.deepcopy(firewalld.zones)
    firewalld.refused = "10.0.0.3"
    with pytest.raises(ClusterError, match=r"^not added: firewall-cmd --zone=public --add-rich-rule='rule .*10.0.0.3"):
        on_trial(store, *PEERS)
    firewalld.refused = ""
    assert len(rolled_back(store)) == 2
    assert firewalld.zones == before


def test_a_confirmation_fails_if_firewalld_makes_not_all_permanent(store: Store, firewalld: Host) -> None:
    before = copy.deepcopy(firewalld.zones)
    on_trial(store, *PEERS)
    firewalld.refused = "10.0.0.3"
    with pytest.raises(ClusterError, match=r"not added: firewall-cmd --permanent --zone=public .*10.0.0.3"):
        confirmed(store)
    firewalld.refused = ""
    rolled_back(store)
    assert firewalld.zones == before


def test_what_firewalld_does_not_remove_is_named_and_stays_ours(store: Store, firewalld: Host) -> None:
    before = copy.deepcopy(firewalld.zones)
    on_trial(store, *PEERS)
    confirmed(store)
    firewalld.refused = "10.0.0.3"
    with pytest.raises(ClusterError, match=r"not removed, added by: firewall-cmd --zone=public .*10.0.0.3"):
        close_firewalls(store, check_mode=False)
    firewalld.refused = ""
    close_firewalls(store, check_mode=False)
    assert firewalld.zones == before


@pytest.mark.parametrize("act", [kept, withdraw, lambda store: close_firewalls(store, check_mode=False)])
def test_a_damaged_record_is_named_with_the_marks_of_our_rules(store: Store, with_ufw: Host, act: Any) -> None:
    on_trial(store, *PEERS)
    FirewallState(store).save(None, None)
    store.openings_file.write_text("{")
    with pytest.raises(
        ClusterError, match=r"openings.json is damaged \(.*\): remove our rules \(the comment backendai"
    ):
        act(store)
    assert with_ufw.ufw == [ufw(2), ufw(3)]


def test_commands_are_printed_as_an_operator_writes_them(firewalld: Host) -> None:
    (found,) = find_firewalls(PEERS[:1], bridges=True)
    assert found.lines == [
        f"firewall-cmd --zone=public --add-rich-rule='{RICH.format('', 2)}'",
        f"firewall-cmd --permanent --zone=public --add-rich-rule='{RICH.format('', 2)}'",
        "firewall-cmd --zone=docker --add-interface=bai-+",
        "firewall-cmd --permanent --zone=docker --add-interface=bai-+",
    ]
    for flag in (False, True):
        firewalld.zones[flag]["public"].append(rich(2, ""))
    (found,) = find_firewalls(PEERS[:1], bridges=False)
    assert found.lines == []


def test_a_session_that_fails_names_the_firewall_and_the_commands(with_ufw: Host) -> None:
    assert name_closing(PEERS[:1], "agent1", bridges=False) == [
        f"ufw on agent1 closes what it needs: see firewall_foreign, or run there: {ufw(2, '')}"
    ]
    with_ufw.ufw = ["ufw allow from 10.0.0.0/24"]
    assert name_closing(PEERS[:1], "agent1", bridges=False) == []
    with_ufw.ufw, with_ufw.broken = [], "show"
    (phrase,) = name_closing(PEERS[:1], "agent1", bridges=False)
    assert phrase == "whether a firewall of agent1 closes it is not known (ufw failed: Error: COMMAND_FAILED)"


def test_a_rule_of_the_operators_with_a_named_port_is_no_obstacle(firewalld: Host) -> None:
    for flag in (False, True):
        firewalld.zones[flag]["public"].append('--add-rich-rule=rule port port="ssh" protocol="tcp" accept')
    (found,) = find_firewalls(PEERS[:1], bridges=False)
    assert len(found.lines) == 2


def test_a_host_whose_interfaces_are_not_known_does_not_hide_why_a_session_fails(
    firewalld: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert firewalld.runs_firewalld

    def fail(_opening: Opening) -> list[str]:
        raise NetworkError("ip -j route show: Cannot open netlink socket")

    monkeypatch.setattr(foreign, "_arrives_on", fail)
    (phrase,) = name_closing([PUBLIC], "agent1", bridges=False)
    assert phrase == (
        "whether a firewall of agent1 closes it is not known (ip -j route show: Cannot open netlink socket)"
    )


DENIES = "your rule '{}'{} closes it; ours comes after it, so remove or narrow yours"


def test_a_rule_of_ufw_that_denies_first_is_named_and_none_of_ours_added(store: Store, with_ufw: Host) -> None:
    denies = "ufw deny from 10.0.0.0/24"
    with_ufw.ufw = [denies, "ufw allow 4789/udp"]
    (found,) = find_firewalls(PEERS, bridges=False)
    assert (found.lines, found.closed) == ([], (DENIES.format(denies, ""),)), "once, for all peers"
    assert name_closing(PEERS, "agent1", bridges=False) == [
        f"ufw on agent1 closes what it needs: {DENIES.format(denies, '')}"
    ]
    assert on_trial(store, *PEERS) == []
    with_ufw.ufw.reverse()
    assert name_closing(PEERS, "agent1", bridges=False) == []


def test_a_rule_of_firewalld_that_denies_first_is_named_and_none_of_ours_added(store: Store, firewalld: Host) -> None:
    denies = 'rule family="ipv4" source address="10.0.0.2" drop'
    for flag in (False, True):
        firewalld.zones[flag]["public"] += [rich(2, ""), f"--add-rich-rule={denies}"]
    on_trial(store, *PEERS, bridges=False)
    assert firewalld.zones[False]["public"][2:] == [rich(3)]
    confirmed(store)
    (phrase,) = name_closing(PEERS, "agent1", bridges=False)
    assert phrase == f"firewalld on agent1 closes what it needs: {DENIES.format(denies, ' of the zone public')}"


def test_what_is_ours_stays_behind_a_rule_that_denies(store: Store, firewalld: Host) -> None:
    on_trial(store, *PEERS, bridges=False)
    confirmed(store)
    firewalld.zones[False]["public"].append('--add-rich-rule=rule family="ipv4" source address="10.0.0.2" drop')
    assert on_trial(store, *PEERS, bridges=False) == []
    assert rich(2) in firewalld.zones[False]["public"]


def test_an_ufw_that_lets_in_by_default_needs_nothing_but_for_what_is_denied(with_ufw: Host) -> None:
    with_ufw.defaults.write_text('IPV6=yes\nDEFAULT_INPUT_POLICY="ACCEPT"\n')
    with_ufw.ufw = ["ufw deny from 10.0.0.2"]
    (found,) = find_firewalls([*PEERS, PUBLIC], bridges=False)
    assert (found.lines, len(found.closed)) == ([], 1)


@pytest.mark.parametrize("settings", ["IPV6=no\n", 'IPV6="no"\nDEFAULT_INPUT_POLICY="ACCEPT"\n', None])
def test_an_ufw_without_ipv6_gets_no_rule_of_it_and_how_to_turn_it_on_is_said(
    store: Store, with_ufw: Host, settings: str | None
) -> None:
    with_ufw.defaults.unlink()
    if settings:
        with_ufw.defaults.write_text(settings)
    inside = Opening("udp", "4789", "fd62:6169::/48")
    (found,) = find_firewalls([inside], bridges=False)
    said = "it drops IPv6: set IPV6=yes in /etc/default/ufw, then ufw disable and ufw enable"
    assert (found.lines, found.closed) == ([], (said,))
    on_trial(store, PEERS[0], inside)
    assert [line for line in with_ufw.ufw if "fd62" in line] == []
    assert name_closing([inside], "agent1", bridges=False) == [f"ufw on agent1 closes what it needs: {said}"]


@pytest.mark.parametrize("settings", ["IPV6=yes\n", 'IPV6="YES"\n'])
def test_an_ufw_with_ipv6_gets_rules_of_it(store: Store, with_ufw: Host, settings: str) -> None:
    with_ufw.defaults.write_text(settings)
    on_trial(store, Opening("udp", "4789", "fd62:6169::/48"))
    assert len(with_ufw.ufw) == 1

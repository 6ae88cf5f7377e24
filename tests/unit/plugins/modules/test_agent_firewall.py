"""The module agent_firewall: apply and confirm."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import trial as trying
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.audit import Zones
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.foreign import find_firewalls, withdraw
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.isolation_policy import build_isolation_policy
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.openings import openings_of_session, ufw_rule
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import AllowRule, Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import render
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState, Trial
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.trial import roll_back
from ansible_collections.backendai.cluster.plugins.module_utils._host import processes
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import NetworkError
from ansible_collections.backendai.cluster.plugins.modules import agent_firewall
from tests.unit.builders import held, plan
from tests.unit.fake_network import FakeNetwork, patch_network
from tests.unit.foreign_firewalls import Host, on_host
from tests.unit.module_runs import result_of
from tests.unit.uptime import Uptime, uptime_of_numbers

SAME = (
    "this connection was opened before the new rules were applied, so SSH access is not verified: the old rules"
    " are restored, unless firewall_confirm_force is true."
)
CONNECTION = "203.0.113.7 51234 192.0.2.1 2222"
LATER = "203.0.113.7 51235 192.0.2.1 2222"
MINE = Firewall(("203.0.113.7/32",), ssh_ports=(2222,))
OPTIONS = {
    "ssh_sources": ["192.0.2.0/24"],
    "gateways": ["198.51.100.7"],
    "agents": ["192.0.2.2"],
    "ssh_ports": [22],
    "allow": [{"ports": ["9100-9199"]}, {"protocol": "any", "sources": ["10.0.0.0/8"]}],
    "interfaces": ["eth0"],
}
ASKED = Firewall(
    ("192.0.2.0/24",),
    ("198.51.100.7/32",),
    ("192.0.2.2/32",),
    (22,),
    (AllowRule("tcp", ("9100-9199",), ()), AllowRule("any", (), ("10.0.0.0/8",))),
    ("eth0",),
)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    """Return the kernel of the host."""
    return patch_network(monkeypatch)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Return the scheduled rollbacks."""
    started: list[tuple[object, ...]] = []
    monkeypatch.setattr(agent_firewall, "schedule_rollback", lambda *args: started.append(args))
    return started


@pytest.fixture
def uptime(tmp_path: Path) -> Iterator[Uptime]:
    """Return the uptime of the host."""
    with uptime_of_numbers(tmp_path) as numbers:
        yield numbers


@pytest.fixture
def store(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kernel: FakeNetwork,
    uptime: Uptime,
    timers: list[tuple[object, ...]],
) -> Store:
    """Return the store of a host without rules, with an SSH connection."""
    assert (kernel.table, uptime.up, timers) == ("", 1000, [])
    (tmp_path / "sessions").mkdir()
    monkeypatch.setattr(processes, "PROC", tmp_path / "proc")
    monkeypatch.setenv("SSH_CONNECTION", CONNECTION)
    monkeypatch.setattr(trying, "interfaces", lambda: {"lo", "eth0"})
    monkeypatch.setattr(agent_firewall, "find_firewalls", lambda _openings, **_options: [])
    return Store(str(tmp_path))


@pytest.fixture
def tried(store: Store, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that applies a firewall on trial."""

    def run(*, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        given = {name: options.pop(name) for name in ("mode", *OPTIONS) if name in options}
        firewall = {"mode": "enforce", **given}
        arguments = {"state_path": _path(store), "firewall": firewall, **options}
        return result_of("agent_firewall", arguments, capsys, check_mode=check_mode)

    return run


@pytest.fixture
def confirmed(store: Store, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that confirms a firewall."""

    def run(nonce: str, *, check_mode: bool = False, **more: object) -> dict[str, Any]:
        options = {"state": "confirmed", "state_path": _path(store), "nonce": nonce, **more}
        return result_of("agent_firewall", options, capsys, check_mode=check_mode)

    return run


def _path(store: Store) -> str:
    return str(store.firewall_file.parent)


def _trial(store: Store) -> Trial:
    trial = FirewallState(store).trial
    assert trial is not None
    return trial


def test_default_allows_the_current_ssh_connection(
    tried: Any, store: Store, kernel: FakeNetwork, uptime: Uptime, timers: list[tuple[object, ...]]
) -> None:
    result = tried()
    assert _trial(store) == Trial(MINE, result["nonce"], 1060, uptime.boot, CONNECTION)
    assert kernel.table == render(build_isolation_policy([], ()), MINE, ["eth0"])
    assert timers == [(_path(store), "unix:///var/run/docker.sock", result["nonce"], 60)]
    assert (result["changed"], result["ssh_sources"]) == (True, ["203.0.113.7/32"])
    assert result["diff"] == {"before": "", "after": "firewall table inet backendai: there\n"}


def test_every_option_is_applied(tried: Any, store: Store, timers: list[tuple[object, ...]]) -> None:
    result = tried(**OPTIONS, confirm_timeout=5, docker_host="unix:///other.sock", inventory_managers=["192.0.2.99"])
    assert (_trial(store).firewall, result["ssh_sources"]) == (ASKED, ["192.0.2.0/24"])
    assert timers == [(_path(store), "unix:///other.sock", result["nonce"], 5)]


def test_managers_are_allowed_beside_the_current_connection(tried: Any) -> None:
    assert tried(inventory_managers=["192.0.2.99"])["ssh_sources"] == ["192.0.2.99/32", "203.0.113.7/32"]


def test_check_mode_changes_nothing(
    tried: Any, store: Store, kernel: FakeNetwork, timers: list[tuple[object, ...]]
) -> None:
    result = tried(check_mode=True)
    assert (result["changed"], result["nonce"], result["ssh_sources"]) == (True, "", ["203.0.113.7/32"])
    assert result["diff"]["after"] == "firewall table inet backendai: there\n"
    assert (kernel.table, timers, store.firewall_file.exists()) == ("", [], False)


def test_confirmed_rules_need_no_trial(
    tried: Any, confirmed: Any, timers: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    nonce = tried(**OPTIONS)["nonce"]
    monkeypatch.setenv("SSH_CONNECTION", LATER)
    assert confirmed(nonce)["changed"] is False
    timers.clear()
    result = tried(**OPTIONS)
    assert (result["changed"], result["nonce"], timers) == (False, "", [])
    assert result["diff"] == {"before": "", "after": ""}


def test_disabling_the_firewall_needs_a_trial(tried: Any, store: Store, kernel: FakeNetwork) -> None:
    FirewallState(store).save(MINE, None)
    result = tried(enabled=False, ssh_sources=["no address"])
    assert (result["ssh_sources"], bool(result["nonce"])) == ([], True)
    assert _trial(store).firewall is None
    assert kernel.table == render(build_isolation_policy([], ()), None, ["eth0"])


@pytest.fixture
def with_ufw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store) -> Iterator[Host]:
    """Return the host with an active ufw and a peer."""
    assert store.root == tmp_path
    monkeypatch.setattr(agent_firewall, "find_firewalls", find_firewalls)
    monkeypatch.setattr(agent_firewall, "read_links", lambda: [{"addr_info": [{"local": "10.0.0.1"}]}])
    host = Host(tmp_path, "ufw")
    with on_host(host):
        yield host


NEEDED = [{"protocol": "udp", "ports": [4789], "sources": ["10.0.0.1", "10.0.0.2"]}]
LINE = "ufw allow from 10.0.0.2 to any port 4789 proto udp"
OURS = f"{LINE} comment 'backendai.cluster'"


def test_what_another_firewall_closes_is_said_with_the_commands_and_not_opened(tried: Any, with_ufw: Host) -> None:
    result = tried(needed=NEEDED)
    assert result["lacking"] == [
        "ufw closes what the roles of this host need: set firewall_foreign to open, or run as root:",
        LINE,
    ]
    assert with_ufw.changes == []


@pytest.mark.parametrize("foreign", ["report", "open"])
def test_an_inactive_ufw_gets_nothing_and_the_lines_are_said(tried: Any, with_ufw: Host, foreign: str) -> None:
    with_ufw.settings.write_text("ENABLED=no")
    result = tried(needed=NEEDED, foreign=foreign)
    off = "ufw is not active. Before you enable it, run as root, beside what lets you log in:"
    assert (result["lacking"], with_ufw.changes) == ([off, LINE], [])
    with_ufw.ufw = ["ufw deny 4789/udp"]
    (would,) = tried(needed=NEEDED, foreign=foreign)["lacking"]
    assert would.startswith("ufw is not active, and would close what the roles of this host need: your rule 'ufw deny")


def test_another_firewall_is_opened_on_the_trial_of_our_own_and_confirmed_with_it(
    tried: Any, confirmed: Any, store: Store, with_ufw: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tried(needed=NEEDED)
    monkeypatch.setenv("SSH_CONNECTION", LATER)
    confirmed(first["nonce"])
    result = tried(needed=NEEDED, foreign="open")
    assert result["nonce"], "our own rules are the same, and yet on trial"
    assert (result["lacking"], result["changed"], with_ufw.ufw) == ([], True, [OURS])
    assert result["diff"]["after"].endswith(f"{OURS}: present\n")
    assert confirmed(result["nonce"])["msg"] == SAME
    assert withdraw(store) == []
    monkeypatch.setenv("SSH_CONNECTION", CONNECTION)
    confirmed(result["nonce"])
    assert withdraw(store) == []
    assert with_ufw.ufw == [OURS]
    again = tried(needed=NEEDED, foreign="open")
    assert (again["nonce"], again["changed"]) == ("", False)


def test_another_firewall_is_closed_again_with_the_trial(tried: Any, store: Store, with_ufw: Host) -> None:
    result = tried(needed=NEEDED, foreign="open")
    roll_back(store, result["nonce"])
    assert [change.subject for change in withdraw(store)] == [OURS]
    assert with_ufw.ufw == []


def test_many_rules_of_ufw_have_more_time(tried: Any, with_ufw: Host, timers: list[tuple[object, ...]]) -> None:
    peers = {"protocol": "udp", "ports": [4789], "sources": [f"10.0.1.{host}" for host in range(100)]}
    tried(needed=[peers], foreign="open")
    assert (len(with_ufw.ufw), timers[0][3]) == (100, 110)


def test_check_mode_opens_no_other_firewall(tried: Any, store: Store, with_ufw: Host) -> None:
    result = tried(needed=NEEDED, foreign="open", check_mode=True)
    assert (result["changed"], with_ufw.changes, store.openings_file.exists()) == (True, [], False)


def test_tunnels_of_sessions_are_needed_too(tried: Any, store: Store, with_ufw: Host) -> None:
    session = held(plan(), "agent1")
    (store.folder(session.plan.id)).mkdir()
    store.save(session)
    (opening,) = openings_of_session(session.plan, "agent1")
    tried(foreign="open")
    assert with_ufw.ufw == [f"ufw allow {ufw_rule(opening)} comment 'backendai.cluster'"]


def test_a_firewall_that_does_not_answer_is_a_warning_unless_it_is_to_be_opened(
    tried: Any, with_ufw: Host, monkeypatch: pytest.MonkeyPatch, timers: list[tuple[object, ...]]
) -> None:
    warned: list[str] = []
    # Beside the control node's own Ansible, warnings are not in the result.
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, sentence: warned.append(sentence))
    with_ufw.broken = "show"
    result = tried(inventory_managers=["192.0.2.7"])
    assert result["lacking"] == []
    failed = "ufw failed: Error: COMMAND_FAILED"
    assert warned == [f"firewall_foreign: what firewalld and ufw let in is not known: {failed}."]
    timers.clear()
    assert tried(foreign="open")["msg"] == f"{failed}."
    assert timers == [], "nothing has changed"


@pytest.mark.parametrize("foreign", ["report", "open"])
def test_a_rule_that_denies_before_ours_is_said(tried: Any, with_ufw: Host, foreign: str) -> None:
    with_ufw.ufw = ["ufw deny 4789/udp"]
    assert tried(needed=NEEDED, foreign=foreign)["lacking"] == [
        (
            "ufw closes what the roles of this host need, and no rule of ours opens it: your rule 'ufw deny 4789/udp'"
            " closes it; ours comes after it, so remove or narrow yours."
        )
    ]
    assert with_ufw.changes == []


def test_a_look_at_another_firewall_that_fails_breaks_no_report(
    tried: Any, with_ufw: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, sentence: warned.append(sentence))

    def fail() -> None:
        raise NetworkError("ip -j -d addr show: Cannot open netlink socket")

    monkeypatch.setattr(agent_firewall, "read_links", fail)
    result = tried(needed=NEEDED, inventory_managers=["192.0.2.7"])
    assert (result["lacking"], bool(result["nonce"]), with_ufw.changes) == ([], True, [])
    assert warned == [
        "firewall_foreign: what firewalld and ufw let in is not known: ip -j -d addr show: Cannot open netlink socket."
    ]


def test_what_was_opened_is_closed_when_the_host_is_given_back(
    tried: Any, store: Store, with_ufw: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    tried(needed=NEEDED, foreign="open")
    closed = {"state": "closed", "state_path": _path(store)}
    assert result_of("agent_firewall", closed, capsys, check_mode=True)["changed"]
    assert with_ufw.ufw == [OURS]
    result = result_of("agent_firewall", closed, capsys)
    assert (result["changed"], result["diff"]["before"], with_ufw.ufw) == (True, f"{OURS}: present\n", [])
    assert not result_of("agent_firewall", closed, capsys)["changed"]


def test_single_ssh_source_is_a_warning(tried: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, sentence: warned.append(sentence))
    tried(ssh_sources=["192.0.2.7"])
    tried(enabled=False)
    assert warned == []
    tried()
    (sentence,) = warned
    assert sentence == (
        "firewall_ssh_sources: only 203.0.113.7/32, the source of this connection, will be able to log in by SSH; set"
        " firewall_ssh_sources, or add hosts to the group managers."
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"confirm_timeout": 4},
            "firewall_confirm_timeout: 4 must be a whole number from 5 to 3600.",
        ),
        (
            {"ssh_sources": ["10.0.0.1/8"]},
            (
                "firewall_ssh_sources: '10.0.0.1/8' is a network with host bits: it must be the network's own address,"
                " such as 10.0.0.0/8."
            ),
        ),
        ({"interfaces": ["eth9"]}, "firewall_interfaces: 'eth9' is not an interface of this host."),
        ({"allow": [{"protocol": "udp"}]}, "firewall_allow[0].ports is required for udp."),
    ],
    ids=["timeout", "ssh_sources", "interfaces", "allow"],
)
@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_invalid_options_fail_without_a_trial(
    tried: Any, store: Store, kernel: FakeNetwork, options: dict[str, Any], sentence: str, check_mode: bool
) -> None:
    result = tried(**options, check_mode=check_mode)
    assert (result["failed"], result["msg"]) == (True, sentence)
    assert (kernel.table, store.firewall_file.exists()) == ("", False)


@pytest.mark.parametrize("connection", [None, ""])
def test_rules_that_lock_out_the_operator_are_rejected(
    tried: Any, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch, connection: str | None
) -> None:
    monkeypatch.delenv("SSH_CONNECTION")
    if connection is not None:
        monkeypatch.setenv("SSH_CONNECTION", connection)
    result = tried(gateways=["198.51.100.7"])
    assert result["failed"] is True
    assert result["msg"].startswith("firewall_ssh_sources is empty, and this connection has no client address: ")
    assert kernel.table == ""


def test_failed_rollback_timer_is_an_error(tried: Any, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_what: object) -> None:
        raise subprocess.CalledProcessError(1, ["systemd-run", "--quiet"], stderr="Failed to connect to bus\n")

    monkeypatch.setattr(agent_firewall, "schedule_rollback", refuse)
    result = tried()
    assert (result["failed"], result["msg"]) == (True, "systemd-run failed: Failed to connect to bus.")
    assert kernel.table == ""


@pytest.mark.parametrize("connection", [CONNECTION, LATER], ids=["old", "new"])
def test_only_a_new_connection_confirms(
    tried: Any, confirmed: Any, store: Store, monkeypatch: pytest.MonkeyPatch, connection: str
) -> None:
    nonce = tried()["nonce"]
    monkeypatch.setenv("SSH_CONNECTION", connection)
    result = confirmed(nonce)
    if connection == CONNECTION:
        assert (result["failed"], result["msg"]) == (
            True,
            SAME,
        )
    assert FirewallState(store).confirmed == (None if connection == CONNECTION else MINE)


def test_force_confirms_over_the_old_connection(tried: Any, confirmed: Any, store: Store) -> None:
    assert confirmed(tried()["nonce"], force=True)["changed"] is False
    assert FirewallState(store).confirmed == MINE


def test_ssh_connection_is_read_from_a_parent_process(
    tried: Any, confirmed: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_CONNECTION")
    (processes.PROC / "7").mkdir(parents=True)
    (processes.PROC / "7" / "environ").write_text(f"HOME=/root\0SSH_CONNECTION={CONNECTION}\0")
    (processes.PROC / str(os.getpid())).mkdir()
    (processes.PROC / str(os.getpid()) / "stat").write_text(f"{os.getpid()} (python3) S 7 7 7")
    result = tried()
    assert result["ssh_sources"] == ["203.0.113.7/32"]
    assert (_trial(store).firewall, _trial(store).connection) == (MINE, CONNECTION)
    assert confirmed(result["nonce"])["msg"] == SAME
    (processes.PROC / "7" / "environ").write_text(f"SSH_CONNECTION={LATER}\0")
    assert confirmed(result["nonce"])["changed"] is False
    assert FirewallState(store).confirmed == MINE


def test_check_mode_confirms_nothing(confirmed: Any, store: Store, uptime: Uptime) -> None:
    trial = Trial(MINE, "mine", uptime.up + 60, uptime.boot, "")
    FirewallState(store).save(None, trial)
    assert confirmed("mine", check_mode=True)["changed"] is False
    assert (FirewallState(store).confirmed, FirewallState(store).trial) == (None, trial)


def test_a_confirmation_is_of_one_trial(capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of("agent_firewall", {"state": "confirmed"}, capsys)
    assert (result["failed"], result["msg"]) == (
        True,
        "state is confirmed but all of the following are missing: nonce",
    )


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_a_new_host_reports_by_default_and_the_run_says_that_it_is_not_closed(
    tried: Any, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch, check_mode: bool
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, sentence: warned.append(sentence))
    tried(mode="", check_mode=check_mode)
    (sentence,) = warned
    assert sentence.startswith("firewall_mode: this host is not closed: its firewall is in report mode")
    reporting = dataclasses.replace(MINE, mode="report")
    assert kernel.table == ("" if check_mode else render(build_isolation_policy([], ()), reporting, ["eth0"]))


@pytest.mark.parametrize("before", ["enforce", "report"])
def test_without_a_mode_a_host_keeps_its_own(tried: Any, store: Store, before: str) -> None:
    FirewallState(store).save(dataclasses.replace(ASKED, mode=before), None)
    assert tried(**OPTIONS, mode="")["nonce"] == ""
    assert FirewallState(store).mode == before


@pytest.mark.parametrize(("before", "asked"), [("enforce", "report"), ("report", "enforce")])
def test_the_mode_that_is_asked_for_counts(tried: Any, store: Store, before: str, asked: str) -> None:
    FirewallState(store).save(dataclasses.replace(ASKED, mode=before), None)
    tried(**OPTIONS, mode=asked)
    assert FirewallState(store).mode == asked


def test_an_unknown_mode_is_refused(tried: Any, kernel: FakeNetwork) -> None:
    result = tried(mode="warn")
    assert (result["failed"], kernel.table) == (True, "")
    assert result["msg"].startswith("firewall_mode: 'warn' must be one of enforce, report.")


ZONES = Zones(
    ("192.0.2.0/24",), ("10.2.0.0/16",), "192.0.2.1", "10.2.0.7", {"eth0": ("192.0.2.1",), "eth1": ("10.2.0.7",)}
)
DECLARED = {"management_networks": ["192.0.2.0/24"], "compute_networks": ["10.2.0.0/16"]}
KEPT_APART = dataclasses.replace(MINE, management=("192.0.2.0/24",), compute=("10.2.0.0/16",))
SSH_ELSEWHERE = (
    "SSH reaches it at 10.2.0.7, which is not in agent_management_networks (192.0.2.0/24): set ansible_host to its"
    " address there"
)


@pytest.fixture
def zones(monkeypatch: pytest.MonkeyPatch) -> list[Zones]:
    """Return the zones of the host, as a list with one element that tests replace."""
    found = [ZONES]
    monkeypatch.setattr(agent_firewall, "read_zones", lambda *_declared: found[0])
    return found


@pytest.mark.usefixtures("zones")
def test_zones_that_are_apart_are_kept_so(tried: Any, store: Store, kernel: FakeNetwork) -> None:
    assert tried(**DECLARED)["nonce"]
    assert _trial(store).firewall == KEPT_APART
    assert kernel.table == render(build_isolation_policy([], ()), KEPT_APART, ["eth0"])


@pytest.mark.parametrize("mode", ["enforce", "report"])
@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_rules_that_close_the_address_of_this_connection_are_refused_before_the_trial(
    tried: Any, store: Store, kernel: FakeNetwork, zones: list[Zones], mode: str, check_mode: bool
) -> None:
    zones[0] = ZONES._replace(ssh_address="10.2.0.7")
    result = tried(**DECLARED, mode=mode, check_mode=check_mode)
    assert (result["failed"], result["msg"]) == (True, f"{SSH_ELSEWHERE}.")
    assert (kernel.table, store.firewall_file.exists()) == ("", False)


def test_zones_that_are_not_apart_are_left_out_of_the_rules_when_told_to_warn(
    tried: Any, store: Store, zones: list[Zones], monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, sentence: warned.append(sentence))
    zones[0] = ZONES._replace(ssh_address="10.2.0.7")
    tried(**DECLARED, separation="warn", inventory_managers=["203.0.113.7"])
    assert _trial(store).firewall == MINE
    assert warned == [
        (
            "agent_network_separation: the firewall does not keep management and compute of this host apart, because"
            f" {SSH_ELSEWHERE}."
        )
    ]


def test_without_declared_zones_none_are_looked_for(tried: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_firewall, "read_zones", None)
    tried()
    assert _trial(store).firewall == MINE


def test_a_host_without_firewall_has_no_zones_to_keep(tried: Any, store: Store, zones: list[Zones]) -> None:
    zones[0] = ZONES._replace(ssh_address="10.2.0.7")
    FirewallState(store).save(MINE, None)
    assert tried(**DECLARED, enabled=False)["nonce"]
    assert _trial(store).firewall is None

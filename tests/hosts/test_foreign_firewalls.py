"""Agents and a gateway with firewalld and ufw of the operator's, and with networkd and NetworkManager, beside the lab.

The tests belong in this order: the hosts are closed first, then opened, and given back at the end.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.laboratory import PYTHON, Run, address, in_parallel, run_on, run_playbook
from tests.integration.session_requests import SMALL
from tests.integration.spare_hosts import SpareHost, spare_hosts
from tests.integration.waiting import wait_until
from tests.lab.identity import Host

WITH_FIREWALLD, WITH_UFW, WITHOUT, GATEWAY = (
    Host("walled0", "agents", "bookworm", 80),
    Host("walled1", "agents", "bookworm", 81),
    Host("walled2", "agents", "trixie", 82),
    Host("walled3", "gateways", "trixie", 83),
)
ALL = (WITH_FIREWALLD, WITH_UFW, WITHOUT, GATEWAY)
NAME = "walled"
SPREAD = {"cluster_size": 3, "cluster_mode": "multi-node", "agent_selection": "dispersed", **SMALL}
SSH_RULE = 'rule family="ipv4" source address="198.51.100.7" service name="ssh" accept'
RULES = "firewall-cmd --list-all-zones; firewall-cmd --permanent --list-all-zones"
UFW_RULES = "ufw show added; ufw status verbose | head -4; cat /etc/ufw/ufw.conf"
TABLE = "nft --stateless list table inet backendai"
MARKS = {WITH_FIREWALLD: 'priority="4789"', WITH_UFW: "backendai.cluster", GATEWAY: "backendai.cluster"}
NETWORKD = "/etc/systemd/network"


class Walled:
    """The hosts, and the rules that the firewalls had before they were provisioned."""

    def __init__(self, hosts: dict[Host, SpareHost], options: list[str], folder: Path) -> None:
        self.on, self._folder, self.text = hosts, folder, ""
        self._options = [*options, "--limit", ",".join(["localhost", "user1", *(host.name for host in hosts)])]
        self.first = self.before = self.rules()

    def rules(self) -> dict[Host, str]:
        """Return all rules of firewalld and ufw."""
        lines = {WITH_FIREWALLD: RULES, WITH_UFW: UFW_RULES, GATEWAY: UFW_RULES}
        return {host: self.on[host].run(line) for host, line in lines.items()}

    def ours(self) -> dict[str, int]:
        """Return how many rules more than at first have our mark, by host."""
        return {
            host.name: text.count(MARKS[host]) - self.first[host].count(MARKS[host])
            for host, text in self.rules().items()
        }

    def play(self, playbook: str, **variables: object) -> Run:
        return run_playbook(playbook, self._folder, variables, *self._options)

    def provision(self, **variables: object) -> tuple[Run, Run]:
        """Provision the agents and the gateway; in report mode our own firewall closes nothing."""
        given = {"firewall_mode": "report", **variables}
        return self.play("provision_agents", **given), self.play("provision_gateways", **given)

    def create(self, **request: object) -> Run:
        asked = {"name": NAME, "image": PYTHON, "designated_agents": [host.name for host in ALL[:3]], **request}
        return self.play("create_session", **{f"session_{name}": value for name, value in asked.items()})

    def verified(self) -> None:
        """Check that the session works."""
        run = self.play("verify_session", session_name=NAME)
        assert run.code == 0, run.output

    def sshd_answers(self, host: Host, *sources: Host) -> bool:
        """Return whether the sshd of a host answers other hosts."""
        line = f"timeout 5 bash -c 'exec 3<>/dev/tcp/{self.on[host].address}/22; head -c 4 <&3'"
        return in_parallel(*(partial(self.on[source].run, line) for source in sources)) == ["SSH-"] * len(sources)


def lasting_same_as_ours() -> str:
    """Return a rule of the operator's that is one of ours to the letter, with its priority; it is permanent."""
    source = f'source address="{address("agent1")}"'
    return f'rule priority="4789" family="ipv4" {source} port port="4789" protocol="udp" accept'


def wall(hosts: dict[Host, SpareHost]) -> None:
    """Install the firewalls, with rules of the operator's: for ssh, and equal to one of ours."""
    install = "DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends"
    firewalld, ufw = hosts[WITH_FIREWALLD], hosts[WITH_UFW]
    peer = hosts[WITH_UFW].address
    firewalld.run(
        f"{install} firewalld netbase && systemctl enable --now firewalld && firewall-cmd --state"
        f" && firewall-cmd --permanent --add-rich-rule='{SSH_RULE}' --add-rich-rule='{lasting_same_as_ours()}'"
        " && firewall-cmd --reload"
    )
    comment = "comment 'of the operator'"
    ufw.run(
        f"{install} ufw && ufw allow OpenSSH && ufw allow proto tcp from {peer} to any port 22 {comment}"
        f" && ufw allow proto udp from {firewalld.address} to any port 4789 {comment} && ufw --force enable"
    )
    hosts[GATEWAY].run(f"{install} ufw && ufw allow OpenSSH")


ECHO = """
import socket
served = socket.create_server(("", 7777)).accept()[0]
while data := served.recv(9):
    served.sendall(data)
"""
CLIENT = """
import os, socket, sys, time
with socket.create_connection((sys.argv[1], 7777), 20) as opened:
    while not os.path.exists("/tmp/stop"):
        opened.sendall(b"x")
        assert opened.recv(1) == b"x"
        open("/tmp/passed", "a").write("x")
        time.sleep(0.1)
"""


@contextlib.contextmanager
def open_connection(walled: Walled) -> Iterator[Callable[[], None]]:
    """Open a connection between containers of two agents, and yield what checks that it passes data both ways."""
    here, there = walled.on[WITH_FIREWALLD], walled.on[WITH_UFW]
    of_client, of_server = (host.run("docker ps --format '{{.Names}}'").split()[0] for host in (here, there))
    target = there.run(f"docker exec {of_server} cat /etc/hostname").strip()
    there.run(f"docker exec -d {of_server} python3 -c {shlex.quote(ECHO)}")
    here.run(f"docker exec {of_client} sh -c 'rm -f /tmp/stop; : > /tmp/passed'")
    here.run(f"sleep 1; docker exec -d {of_client} python3 -c {shlex.quote(CLIENT)} {target}")

    def passed() -> int:
        return int(here.run(f"docker exec {of_client} sh -c 'wc -c < /tmp/passed'"))

    def alive() -> None:
        so_far = passed()
        wait_until(lambda: passed() > so_far + 3, 30)

    alive()
    try:
        yield alive
    finally:
        here.run(f"docker exec {of_client} touch /tmp/stop")


@pytest.fixture(scope="module")
def walled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walled]:
    folder = tmp_path_factory.mktemp("walled")
    with spare_hosts(folder, *ALL) as (hosts, options):
        by_host = dict(zip(ALL, hosts, strict=True))
        wall(by_host)
        made = Walled(by_host, options, folder)
        agents, gateways = made.provision()
        assert agents.code == gateways.code == 0, agents.output + gateways.output
        in_parallel(*(by_host[host].load_images for host in ALL[:3]))
        made.text = agents.text + gateways.text
        yield made


def same_as_ours(walled: Walled) -> str:
    """Return a rule of the operator's that lets in what one of ours would."""
    source = walled.on[WITH_UFW].address
    return f'rule family="ipv4" source address="{source}" port port="4789" protocol="udp" accept'


def test_what_firewalls_close_is_said_and_nothing_is_opened(walled: Walled) -> None:
    for name in ("firewalld", "ufw"):
        assert f"{name} closes what the roles of this host need: set firewall_foreign to open" in walled.text
    assert f"ufw allow from {walled.on[WITHOUT].address} to any port 4789 proto udp" in walled.text
    assert "ufw is not active. Before you enable it" in walled.text
    assert "ufw allow 443/tcp" in walled.text
    # The engine has put its bridges into a zone of its own meanwhile, and none of this is ours.
    assert walled.ours() == {"walled0": 0, "walled1": 0, "walled3": 0}
    walled.on[WITH_FIREWALLD].run("! firewall-cmd --zone=docker --query-interface=bai-+")
    # Now, since the engine reloads firewalld when it adds its zone: at runtime only, one of them equal to one of ours.
    walled.on[WITH_FIREWALLD].run(
        f"firewall-cmd --add-rich-rule='{same_as_ours(walled)}' && firewall-cmd --add-port=9100/tcp"
    )
    walled.before = walled.rules()


def test_a_session_that_fails_by_them_names_them_and_the_commands(walled: Walled) -> None:
    run = walled.create(**SPREAD)
    assert run.code != 0
    assert "firewalld on walled0 closes what it needs" in run.text
    assert "ufw on walled1 closes what it needs" in run.text
    assert "firewall-cmd --zone=public --add-rich-rule=" in run.text


def test_openings_that_no_new_connection_confirms_go(walled: Walled) -> None:
    """Our own firewall is the one that keeps it out here."""
    wrong = {"firewall_mode": "enforce", "firewall_ssh_sources": ["203.0.113.9"], "firewall_confirm_timeout": 20}
    agents, _gateways = walled.provision(firewall_foreign="open", **wrong)
    assert agents.code != 0
    # The connection is refused, or it is made after the time of the trial.
    sentences = ("accepts no new SSH connection from here", "the new rules were not confirmed in time")
    assert any(sentence in agents.text for sentence in sentences), agents.text[-3000:]
    wait_until(lambda: walled.ours() == {"walled0": 0, "walled1": 0, "walled3": 0}, 60)
    assert walled.rules() == walled.before


def test_opened_firewalls_let_sessions_on_three_agents_and_on_one_work(walled: Walled) -> None:
    for run in walled.provision(firewall_foreign="open"):
        assert run.code == 0, run.output
    ours = walled.ours()
    assert ours["walled0"] > 0 < ours["walled1"]
    # Both hosts need what comes from there, and one of them had it.
    opened = walled.rules()
    assert f"from {address('agent1')} to any port 4789 proto udp comment 'backendai.cluster'" in opened[WITH_UFW]
    assert opened[WITH_FIREWALLD].count(lasting_same_as_ours()) == 2
    for request in (SPREAD, {"name": "alone", "cluster_size": 2, "designated_agents": ["walled0"], **SMALL}):
        run = walled.create(**request)
        assert run.code == 0, run.output
    ended = walled.play("terminate_session", session_name="alone")
    assert ended.code == 0, ended.output


def test_a_second_provisioning_changes_nothing_in_them(walled: Walled) -> None:
    before = walled.rules()
    for run in walled.provision(firewall_foreign="open"):
        assert run.code == 0, run.output
    assert walled.rules() == before


def test_the_operators_rules_are_as_before_and_ssh_answers_all_peers(walled: Walled) -> None:
    lists = walled.on[WITH_FIREWALLD].run("firewall-cmd --list-all; firewall-cmd --get-default-zone")
    for rule in (SSH_RULE, same_as_ours(walled), "ports: 9100/tcp", "services: dhcpv6-client ssh", "public"):
        assert rule in lists
    assert walled.rules()[WITH_UFW].count("comment 'of the operator'") == 2
    assert walled.sshd_answers(WITH_FIREWALLD, WITH_UFW, WITHOUT, GATEWAY)
    assert walled.sshd_answers(WITH_UFW, WITH_FIREWALLD, WITHOUT, GATEWAY)


def test_an_inactive_ufw_stays_as_it_was(walled: Walled) -> None:
    assert walled.rules()[GATEWAY] == walled.before[GATEWAY]
    assert walled.on[GATEWAY].run("ufw status").strip() == "Status: inactive"


def test_an_active_ufw_of_a_gateway_lets_its_users_in(walled: Walled) -> None:
    gateway = walled.on[GATEWAY]
    gateway.run("ufw --force enable")
    run = walled.play("provision_gateways", firewall_foreign="open", firewall_mode="report")
    assert run.code == 0, run.output
    assert "443/tcp comment 'backendai.cluster'" in walled.rules()[GATEWAY]
    opened = f"timeout 3 bash -c '</dev/tcp/{gateway.address}/443'"
    assert run_on("user1", opened) == ""
    run_on("user1", f"! timeout 3 bash -c '</dev/tcp/{gateway.address}/9'")


@pytest.mark.parametrize(
    ("host", "line"),
    [
        (WITH_FIREWALLD, "firewall-cmd --reload"),
        (WITH_FIREWALLD, "systemctl restart firewalld"),
        (WITH_UFW, "ufw reload"),
        (WITH_UFW, "systemctl restart ufw"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_reload_or_restart_of_theirs_leaves_our_rules_and_the_session(walled: Walled, host: Host, line: str) -> None:
    before = walled.on[host].run(TABLE)
    with open_connection(walled) as alive:
        walled.on[host].run(line)
        alive()
    assert walled.on[host].run(TABLE) == before
    assert walled.ours()[host.name] > 0
    walled.verified()


def test_isolation_is_verified_on_them(walled: Walled) -> None:
    for run in walled.provision(firewall_foreign="open", firewall_mode="enforce"):
        assert run.code == 0, run.output
    run = walled.play("verify_isolation", firewall_probe_ports="20-30,443,2375-2377,4789,9100,30000-30100,31001-32000")
    # Hosts of the lab are not in this run, so it is not conclusive about them.
    names = {host.name for host in ALL}
    assert {each["target"] for each in run.record["probed"]} >= names, run.output
    assert [each for each in run.record["findings"] if each["target"] in names] == []
    expected = [each for each in run.record["expected"] if each["target"] == GATEWAY.name]
    assert {each["open"] for each in expected} == {True}, expected


def test_networkd_that_matches_every_name_leaves_our_links(walled: Walled) -> None:
    host = walled.on[WITH_UFW]
    links = "ip -br addr show dev backendai0; ip -br link show master backendai0; ip -br link show type vxlan"
    before = host.run(links)
    host.run(
        f"printf '[Match]\\nName=eth0 lo\\n[Link]\\nUnmanaged=yes\\n' > {NETWORKD}/04-of-operator.network"
        f" && printf '[Match]\\nName=*\\n[Network]\\nDHCP=no\\n' > {NETWORKD}/10-of-operator.network"
        " && systemctl start systemd-networkd"
    )
    try:
        with open_connection(walled) as alive:
            host.run("systemctl restart systemd-networkd && networkctl --no-pager list")
            alive()
        assert "unmanaged" in host.run("networkctl --no-pager list backendai0")
        assert host.run(links) == before
        walled.verified()
    finally:
        host.run(f"systemctl stop systemd-networkd.socket systemd-networkd; rm {NETWORKD}/*-of-operator.network")


def test_networkmanager_leaves_our_links(walled: Walled) -> None:
    host = walled.on[WITH_UFW]
    links = "ip -br addr show dev backendai0; ip -br link show master backendai0; ip -br link show type vxlan"
    before = host.run(links)
    host.run("DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends network-manager")
    with open_connection(walled) as alive:
        host.run("systemctl restart NetworkManager && nmcli general reload conf")
        alive()
    states = dict(line.split(":")[:2] for line in host.run("nmcli -t -f DEVICE,STATE device").splitlines())
    ours = {name: state for name, state in states.items() if name.startswith(("backendai0", "bai-", "bax-", "veth"))}
    assert ours
    assert {*ours.values()} == {"unmanaged"}
    assert host.run(links) == before
    walled.verified()


def test_given_back_hosts_have_the_operators_rules_and_none_of_ours(walled: Walled) -> None:
    runtime_only = 'firewall-cmd --add-rich-rule=\'rule family="ipv4" source address="198.51.100.8" drop\''
    walled.on[WITH_FIREWALLD].run(runtime_only)
    ended = walled.play("terminate_session", session_name=NAME)
    assert ended.code == 0, ended.output
    run = walled.play("remove_agents", agent_names=[host.name for host in ALL[:3]])
    assert run.code == 0, run.output
    run = walled.play("remove_gateways")
    assert run.code == 0, run.output
    assert walled.ours() == {"walled0": 0, "walled1": 0, "walled3": 0}
    left = walled.rules()
    # At runtime and permanently, as before.
    for lasting in (SSH_RULE, lasting_same_as_ours()):
        assert left[WITH_FIREWALLD].count(lasting) == walled.first[WITH_FIREWALLD].count(lasting) == 2
    assert "198.51.100.8" in left[WITH_FIREWALLD]
    assert "bai-+" not in left[WITH_FIREWALLD]
    assert left[WITH_UFW] == walled.first[WITH_UFW]
    equal = f"ufw allow from {walled.on[WITH_FIREWALLD].address} to any port 4789 proto udp comment 'of the operator'"
    assert equal in left[WITH_UFW].splitlines(), left[WITH_UFW]
    for host in ALL:
        walled.on[host].run(f"! ls {NETWORKD}/05-backendai.network && ! ls /var/lib/backendai/openings.json")

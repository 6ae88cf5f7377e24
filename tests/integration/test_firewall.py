"""Nobody comes in but managers, peers and gateways; looked at from ``user1``, which shares the agents' network."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Sessions
from tests.integration.firewalls import firewall, rules
from tests.integration.frames import datagram, ethernet
from tests.integration.laboratory import AGENTS, TIMEOUT, Run, at_once, host_variables, inside, on, play
from tests.integration.test_isolation import SEND, default_address, in_python, mac, reached_by_host, ways

ADDRESS = {host: host_variables(host)["ansible_host"] for host in (*AGENTS, "gateway1", "user1")}
NOBODY = "198.51.100.1"
WEB = {"name": "web", "port": 8000, "command": "cd /etc && python3 -m http.server 8000"}
WIDE = {
    "cluster_mode": "multi-node",
    "agent_selection": "dispersed",
    "cluster_size": 3,
    "resources": {"cpu": 1, "mem": "128m"},
    "apps": [WEB],
}
FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=3).read().decode())"
STATE = "cat /var/lib/backendai/firewall.json; nft --stateless list table inet backendai"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A session with an app on all three agents, and a foreign container with a published port on each."""
    made = Sessions(tmp_path_factory.mktemp("firewall"))
    foreign = (
        "docker rm --force foreign 2> /dev/null;"
        " docker run --detach --restart always --name foreign --publish 8090:8090 lab/python:1"
    )
    try:
        at_once(*[partial(on, agent, f"{foreign} python3 -m http.server 8090") for agent in AGENTS])
        run = made.create(**WIDE)
        assert run.code == 0, run.output
        yield run
    finally:
        made.end()
        at_once(*[partial(on, agent, "docker rm --force foreign", check=False) for agent in AGENTS])


def published(agent: str) -> dict[int, int]:
    """Return what an agent publishes of sessions: its own ports by those of the container."""
    listed = on(agent, "docker ps --format '{{.Ports}}' --filter label=ai.backend.session-id")
    return {int(inner): int(outer) for outer, inner in re.findall(r":(\d+)->(\d+)/tcp", listed)}


def fetch(host: str, url: str) -> str:
    """Return what a host gets from a URL; empty where it gets nothing."""
    return on(host, f"python3 -c '{FETCH}' {url} 2>/dev/null || true").strip()


def containers(run: Run) -> dict[str, list[str]]:
    """Return the addresses of all containers on each agent, by the networks that they are in."""
    return {
        kernel["agent"]: [
            kernel["address"],
            default_address(kernel["agent"], kernel["container"]),
            on(kernel["agent"], "docker inspect --format '{{.NetworkSettings.IPAddress}}' foreign").strip(),
        ]
        for kernel in run.record["kernels"]
    }


@contextmanager
def ways_to(addresses: Sequence[str], agent: str) -> Iterator[None]:
    """Let user1 send what is for containers to their agent."""
    with ExitStack() as routes:
        for address in addresses:
            on("user1", f"ip route replace {address} via {ADDRESS[agent]}")
            routes.callback(on, "user1", f"ip route del {address}", check=False)
        yield


def scan(addresses: Sequence[str], ports: str = "1-65535") -> set[str]:
    """Return the doors that user1 finds among TCP ports, as ``address port/state``; refusals count."""
    on("user1", "command -v nmap || apt-get install --yes --no-install-recommends nmap")
    line = f"nmap -Pn -n -sS -p {ports} --min-rate 20000 --max-retries 1 -oG - {' '.join(addresses)}"
    found = re.findall(r"^Host: (\S+).*?Ports: (.*?)(?:\t|$)", on("user1", line), re.MULTILINE)
    doors = {f"{address} {port}" for address, listed in found for port in re.findall(r"(\d+/\w+)", listed)}
    return {one for one in doors if "/filtered" not in one}


def nothing_is_open(run: Run) -> None:
    """Scan agents and containers from outside, agent by agent, since their default networks are alike."""
    assert scan([ADDRESS[agent] for agent in AGENTS]) == set()
    for agent, addresses in containers(run).items():
        with ways_to(addresses, agent):
            assert scan(addresses) == set()
            assert reached_by_host("user1", ways(ADDRESS[agent], *addresses)) == set()


def test_a_full_scan_from_outside_finds_nothing(session: Run) -> None:
    nothing_is_open(session)


def test_without_the_firewall_there_are_doors_that_are_closed_with_it(session: Run) -> None:
    """So the scan can fail; what is published of sessions is closed even then."""
    main1 = session.record["kernels"][0]["agent"]
    look = f"docker exec foreign python3 -c '{FETCH}' http://{ADDRESS['agent1']}:8090/"
    with firewall(enabled=False):
        doors = {one.split()[1] for one in scan([ADDRESS[main1]], "22,8090,30000-31000")}
        assert "Directory listing" in on("agent1", look)
    assert {"22/open", "8090/open"} <= doors
    assert not doors & {f"{port}/{state}" for port in published(main1).values() for state in ("open", "closed")}
    # Containers of others than sessions do not reach their agent either.
    assert "timed out" in on("agent1", look, check=False)


def test_gateways_reach_what_main1_publishes_and_nobody_else_does(session: Run) -> None:
    main1 = session.record["kernels"][0]
    outer = published(main1["agent"])
    assert set(outer) == {22, 8000}
    assert {agent: published(agent) for agent in AGENTS if agent != main1["agent"]} == {
        agent: {} for agent in AGENTS if agent != main1["agent"]
    }
    assert all(30000 <= port <= 31000 for port in outer.values())
    url = f"http://{ADDRESS[main1['agent']]}:{outer[8000]}/hostname"
    others = [agent for agent in AGENTS if agent != main1["agent"]]
    seen = at_once(*[partial(fetch, host, url) for host in ("gateway1", "user1", *others)])
    assert seen == ["main1", "", "", ""]
    sub = session.record["kernels"][1]
    assert inside(sub, "python3", "-c", FETCH, url, check=False).count("timed out") >= 1
    assert inside(sub, "python3", "-c", FETCH, "http://main1:8000/hostname").strip() == "main1"


def test_only_managers_log_in_and_gateways_reach_no_other_port() -> None:
    targets = [("tcp", ADDRESS[agent], port) for agent in AGENTS for port in (22, 8090)]
    asking = ("gateway1", "user1", "agent1")
    others = [[one for one in targets if one[1] != ADDRESS.get(host)] for host in asking]
    assert at_once(*[partial(reached_by_host, *pair) for pair in zip(asking, others, strict=True)]) == [set()] * 3
    pings = [("icmp", ADDRESS["agent1"], 0)]
    assert reached_by_host("gateway1", pings) == set(pings)


def test_ipv6_is_closed_as_well_and_what_is_allowed_as_data_comes_in() -> None:
    inner = {host: f"fd00:77::{number}" for number, host in enumerate(("agent1", "agent2", "user1"), 1)}
    probe = (
        "import errno, socket, sys; s = socket.socket(socket.AF_INET6); s.settimeout(3);"
        "print(errno.errorcode.get(s.connect_ex((sys.argv[1], 22)), 'open'))"
    )
    try:
        for host, address in inner.items():
            on(host, f"sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0; ip -6 address add {address}/64 dev eth0 nodad")
        line = f'python3 -c "{probe}" {inner["agent1"]}'
        assert on("user1", line).strip() == "EAGAIN"
        url = f"http://{ADDRESS['agent1']}:8090/"
        allow = [{"protocol": "tcp", "ports": ["8090"], "sources": [ADDRESS["user1"]]}]
        with firewall(managers=[manager(), "fd00:77::/64"], allow=allow):
            assert on("user1", line).strip() == "open"
            assert "Directory listing" in fetch("user1", url)
            assert fetch("gateway1", url) == ""
        assert fetch("user1", url) == ""
    finally:
        for host, address in inner.items():
            on(host, f"ip -6 address del {address}/64 dev eth0", check=False)


def manager() -> str:
    """Return the address from which Ansible's connections come."""
    return on("agent1", "echo ${SSH_CONNECTION%% *}").strip()


def dropped(agent: str, end: str) -> int:
    """Return how many packets an agent has dropped for one reason."""
    listed = json.loads(on(agent, f"nft --json list chain inet backendai {end}"))["nftables"]
    parts = [part for one in listed for part in one.get("rule", {}).get("expr", [])]
    return sum(int(part["counter"]["packets"]) for part in parts if "counter" in part)


def test_whatever_is_dropped_is_counted() -> None:
    before = dropped("agent1", "drop_arrival")
    assert reached_by_host("user1", [("tcp", ADDRESS["agent1"], 22)]) == set()
    assert dropped("agent1", "drop_arrival") > before


def test_nobody_outside_pretends_to_be_a_container(session: Run) -> None:
    """What would look like the answer to a container's own question could otherwise come in."""
    kernel = session.record["kernels"][0]
    agent = kernel["agent"]
    before = dropped(agent, "drop_forged")
    senders = [default_address(agent, kernel["container"]), kernel["address"], ADDRESS[agent]]
    packets = [datagram(sender, ADDRESS["user1"], 40000, b"as somebody inside") for sender in senders]
    frames = [ethernet(mac("user1"), mac(agent), packet).hex() for packet in packets]
    on("user1", in_python(SEND, "eth0", *frames))
    assert dropped(agent, "drop_forged") >= before + 2


def test_wrong_managers_end_with_the_old_rules_back() -> None:
    before = at_once(*[partial(on, agent, STATE) for agent in AGENTS])
    run = rules({"managers": [NOBODY], "confirm_timeout": 25})
    assert run.returncode != 0
    said = " ".join(run.stdout.split())
    for agent in AGENTS:
        assert f"firewall_managers: with {NOBODY}/32 no new connection gets in to {agent}" in said
    until = time.monotonic() + TIMEOUT
    while at_once(*[partial(on_or_nothing, agent, STATE) for agent in AGENTS]) != before:
        assert time.monotonic() < until, "the old rules did not come back"
        time.sleep(1)


def test_the_old_rules_come_back_without_the_timer_too() -> None:
    """By the healing of the agent: the timer of systemd is stopped as soon as it is there."""
    before = on("agent2", STATE)
    stop = "for n in $(seq 300); do systemctl stop 'backendai-firewall-????????.timer' && sleep 0.1; done"
    on("agent2", f'systemd-run --quiet --collect --unit=no-timers sh -c "{stop}"')
    run = rules({"managers": [NOBODY], "confirm_timeout": 25}, "--limit", "agent2")
    assert run.returncode != 0
    until = time.monotonic() + TIMEOUT
    while on_or_nothing("agent2", STATE) != before:
        assert time.monotonic() < until, "the old rules did not come back"
        time.sleep(1)


def on_or_nothing(host: str, line: str) -> str:
    """Run a line on a host; empty where it does not let us in."""
    try:
        return on(host, line)
    except AssertionError:
        return ""


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"managers": ["10.0.0.1/8"]}, "firewall_managers: '10.0.0.1/8' is a network with host bits"),
        ({"interfaces": ["eth9"]}, "firewall_interfaces: 'eth9' is no interface of this host."),
        ({"ssh_ports": [70000]}, "firewall_ssh_ports: '70000' must be a whole number from 1 to 65535."),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_applied(variables: dict[str, Any], sentence: str) -> None:
    before = on("agent1", STATE)
    run = rules(variables, "--limit", "agent1")
    assert run.returncode != 0
    assert sentence in " ".join(run.stdout.split())
    assert on("agent1", STATE) == before


def test_the_same_scan_after_restart_reboot_flush_and_provisioning(session: Run, tmp_path: Path) -> None:
    on("agent3", "systemctl reboot", check=False)
    at_once(
        partial(on, "agent1", "systemctl restart docker"),
        partial(on, "agent2", "nft flush ruleset; systemctl start backendai-heal.service; systemctl restart docker"),
    )
    until = time.monotonic() + TIMEOUT
    main1, *subs = session.record["kernels"]
    logins = [f"ssh -o ConnectTimeout=3 {sub['hostname']} hostname" for sub in subs]
    while [inside(main1, "sh", "-c", line, check=False).strip() for line in logins] != [s["hostname"] for s in subs]:
        assert time.monotonic() < until, "the session did not come back"
        time.sleep(1)
    the_rules_were_there_before_the_network("agent3")
    # It finds nothing to mend, so what is closed then was closed before it.
    provisioned = play("provision_agents", tmp_path, {})
    assert (provisioned.code, provisioned.changed) == (0, 0), provisioned.output
    nothing_is_open(session)


def the_rules_were_there_before_the_network(rebooted: str) -> None:
    """Compare when things began: the rules come before everything that listens."""
    began = "systemctl show --property=ActiveEnterTimestampMonotonic --value "
    rules_at, *others = [int(on(rebooted, began + unit)) for unit in ("backendai-firewall", "ssh", "docker")]
    assert 0 < rules_at < min(others)

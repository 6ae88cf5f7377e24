"""What outsiders reach is found out from outside, and told: nothing of agents, and of gateways what is expected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Sessions
from tests.integration.laboratory import AGENTS, INVENTORY, Run, at_once, host_variables, on, play

PORTS = "1-1024,2375,8000-8100,30000-32000"
PUBLISHED, LISTENING = 8099, 8077
FOREIGN = "verify-isolation-foreign"
ADDRESS = {host: host_variables(host)["ansible_host"] for host in (*AGENTS, "gateway1", "user1")}
LEFTOVERS = "ip route show proto 186; ip -6 route show proto 186"


def verify(folder: Path, *options: str, ports: str = PORTS, **variables: object) -> Run:
    """Run ``verify_isolation`` on fewer ports than all, and see that it leaves no route on the outsider."""
    given = {f"firewall_{name}": value for name, value in variables.items()}
    run = play("verify_isolation", folder, {"firewall_probe_ports": ports, **given}, *options)
    assert on("user1", LEFTOVERS) == ""
    return run


def found(run: Run, host: str) -> list[dict[str, Any]]:
    """Return what was found of a host that must not be."""
    return [one for one in run.record["findings"] if one["target"] == host]


def doors(run: Run, host: str) -> set[tuple[str, str, int]]:
    """Return the single ports that were found open."""
    return {(one["address"], one["protocol"], one["port"]) for one in found(run, host) if one["state"] == "open"}


@contextmanager
def unguarded(host: str) -> Iterator[None]:
    """Take the rules of a host away for a while."""
    healing = "backendai-heal" if host in AGENTS else "backendai-firewall-heal"
    on(host, f"systemctl stop {healing}.timer {healing}.service; nft delete table inet backendai")
    try:
        yield
    finally:
        on(host, f"systemctl start {healing}.service {healing}.timer")


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """Return the addresses of containers of agent1: those of a session, and one of somebody else that is published."""
    made = Sessions(tmp_path_factory.mktemp("verify-isolation"))
    foreign = (
        f"docker run --detach --name {FOREIGN} --publish {PUBLISHED}:{PUBLISHED} lab/python:1"
        f" python3 -m http.server {PUBLISHED}"
    )
    try:
        on("agent1", foreign)
        run = made.create(
            cluster_mode="multi-node", cluster_size=3, agent_selection="dispersed", resources={"cpu": 1, "mem": "128m"}
        )
        assert run.code == 0, run.output
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
        yield set(on("agent1", f"docker inspect --format '{form}' $(docker ps --quiet)").split())
    finally:
        at_once(made.end, partial(on, "agent1", f"docker rm --force {FOREIGN}", check=False))


def test_nothing_but_the_gateway_answers_and_all_addresses_are_tried(containers: set[str], tmp_path: Path) -> None:
    run = verify(tmp_path)
    tried = {(one["target"], one["address"]): one for one in run.record["tried"]}
    assert (run.code, run.record["well"]) == (0, True), run.output
    assert (run.record["findings"], run.record["not_proven"]) == ([], [])
    assert "Nothing but the gateway answers user1, at " in run.output
    doors_of_gateway = {one["means"].partition(" ")[0]: one["seen"] for one in run.record["expected"]}
    assert doors_of_gateway == {"HTTPS": True, "SSH": True}
    assert run.record["outsiders"] == ["user1"]
    assert {one["kind"] for one in tried.values()} == {"agent", "bridge", "container", "gateway"}
    for agent in AGENTS:
        own = tried[agent, ADDRESS[agent]]
        assert (own["kind"], own["via"], own["ports"]) == ("agent", None, PORTS)
        assert own["protocols"] == ["tcp", "udp", "icmp"]
        assert "4789" in own["udp_ports"].split(",")
        assert any(address.startswith("fe80::") for target, address in tried if target == agent)
    for address in containers:
        inner = tried["agent1", address]
        assert (inner["kind"], inner["via"], inner["ports"]) == ("container", ADDRESS["agent1"], PORTS)


def test_an_agent_without_its_rules_is_found_open_and_closed_again_with_them(
    containers: set[str], tmp_path: Path
) -> None:
    with unguarded("agent1"):
        run = verify(tmp_path)
    assert run.code != 0
    assert {(ADDRESS["agent1"], "tcp", port) for port in (22, PUBLISHED)} <= doors(run, "agent1")
    assert f"user1 -> agent1 ({ADDRESS['agent1']}) tcp 22 open: it takes connections." in run.output
    states = {(one["address"], one["protocol"], one["state"]) for one in found(run, "agent1")}
    assert (ADDRESS["agent1"], "tcp", "closed") in states
    assert (ADDRESS["agent1"], "icmp", "open") in states
    assert containers & {address for address, _protocol, _state in states}
    assert [found(run, agent) for agent in ("agent2", "agent3")] == [[], []]
    assert "outsiders get an answer from" in run.said
    assert found(verify(tmp_path), "agent1") == []


def test_a_door_of_the_gateway_that_is_not_expected_is_found_and_nmap_agrees(tmp_path: Path) -> None:
    on("user1", "command -v nmap || apt-get install --yes --no-install-recommends nmap")
    start = f"systemd-run --unit verify-door python3 -m http.server {LISTENING}"
    try:
        on("gateway1", start)
        with unguarded("gateway1"):
            run = verify(tmp_path, "--limit", "localhost,gateway1,user1", ports="1-65535")
            seen = on("user1", f"nmap -Pn -p- -T5 --min-rate 5000 -oG - {ADDRESS['gateway1']}")
    finally:
        on("gateway1", "systemctl stop verify-door", check=False)
    expected = {one["port"] for one in run.record["expected"] if one["seen"]}
    ours = {port for address, protocol, port in doors(run, "gateway1") if address == ADDRESS["gateway1"]} | expected
    assert run.code != 0
    assert LISTENING in ours
    assert LISTENING not in expected
    assert ours == {int(port) for port in re.findall(r"(\d+)/open/tcp", seen)}
    hidden = {one["target"] for one in run.record["not_proven"] if "hidden by --limit" in one["why"]}
    assert hidden == set(AGENTS)


def test_a_host_that_cannot_be_asked_is_tried_where_the_inventory_has_it_and_is_not_proven(
    unreachable_agent2: Path, tmp_path: Path
) -> None:
    # A route that a killed run has left goes with the next.
    on("user1", f"ip route add 198.18.0.1 via {ADDRESS['agent1']} proto 186")
    assert on("user1", LEFTOVERS) != ""
    run = verify(tmp_path, "-i", str(unreachable_agent2), ports="22")
    (doubt,) = run.record["not_proven"]
    assert run.code != 0
    assert (doubt["target"], doubt["address"]) == ("agent2", None)
    assert doubt["why"].startswith("it cannot be asked for its addresses: ")
    assert [one["address"] for one in run.record["tried"] if one["target"] == "agent2"] == [ADDRESS["agent2"]]
    assert "agent2: it cannot be asked for its addresses: " in run.said


def test_an_outsider_that_cannot_be_used_proves_nothing(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yml"
    port = "          ansible_port: 9\n"
    inventory.write_text(INVENTORY.read_text().replace("        user1:\n", f"        user1:\n{port}"))
    run = verify(tmp_path, "-i", str(inventory), ports="22")
    assert run.code != 0
    assert run.record["tried"] == []
    assert {one["target"] for one in run.record["not_proven"]} == {*AGENTS, "gateway1"}
    assert "things were not proven" in run.said


def test_silence_of_an_address_that_nobody_has_proves_nothing(tmp_path: Path) -> None:
    inventory, nobody = tmp_path / "inventory.yml", ADDRESS["agent2"].rpartition(".")[0] + ".250"
    inventory.write_text(INVENTORY.read_text().replace(f"ansible_host: {ADDRESS['agent2']}", f"ansible_host: {nobody}"))
    run = verify(tmp_path, "-i", str(inventory), ports="22")
    doubts = [one["why"] for one in run.record["not_proven"] if (one["target"], one["address"]) == ("agent2", nobody)]
    assert "nobody on the segment has this address" in doubts


def test_check_mode_tries_nothing_and_says_what_it_would(tmp_path: Path) -> None:
    run = verify(tmp_path, "--check", ports="22")
    assert (run.code, run.record) == (0, None), run.output
    assert f"{ADDRESS['agent1']}" in run.output
    assert "TCP ports 22 would be tried." in run.said


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"outsiders": "nobody"},
            "firewall_outsiders: 'nobody' names no host of the inventory, and only from outside anything can be proven",
        ),
        (
            {"report_path": "/nowhere/report.json"},
            "firewall_report_path: '/nowhere/report.json' must be in a folder that is there.",
        ),
    ],
    ids=["nobody", "report"],
)
def test_options_that_make_no_sense_are_refused_before_any_host_is_touched(
    variables: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    run = verify(tmp_path, **variables)
    assert run.code != 0
    assert sentence in run.said
    assert run.hosts == {"localhost"}

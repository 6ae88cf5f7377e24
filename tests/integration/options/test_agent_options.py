"""Options of agents, their firewall and their accelerators, on a new agent on which nearly all have another value."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.integration.firewalls import PLAYBOOK
from tests.integration.internals import DEFAULT_BRIDGE
from tests.integration.inventories import inventory_options
from tests.integration.laboratory import BUSYBOX, INVENTORY, Kernel, address, ansible, unwrapped
from tests.integration.options.hosts import TEN_YEARS, OwnHost, own_host
from tests.integration.session_requests import SMALL
from tests.integration.waiting import wait_until
from tests.lab.command import LabError
from tests.lab.identity import SUITES, Host

pytestmark = pytest.mark.provisioning

NAME = "own-values"
STATE, HOMES, SOCKET, NETWORK = "/srv/own-state", "/var/lib/own-homes", "/run/own/docker.sock", "own-network"
GATEWAY, AGENT, NOBODY = "198.51.100.9", "198.51.100.8", "198.51.100.1"
RULES = "nft --stateless list table inet backendai"
PACKAGES = ["busybox-static", "ca-certificates", "docker.io", "iproute2", "iptables", "nftables", "openssh-client"]
VARIABLES: Mapping[str, Any] = {
    "agent_state_path": STATE,
    "agent_home_path": HOMES,
    "agent_docker_host": f"unix://{SOCKET}",
    "agent_default_network": NETWORK,
    "agent_default_subnet": "172.29.7.0/24",
    "agent_packages": [*PACKAGES, "openssh-server", "python3-docker", "shellinabox", "ethtool"],
    "agent_sysctls": {"net.ipv4.ip_forward": 1, "net.ipv4.tcp_fin_timeout": 47},
    "agent_health_checks": ["disk", "engine"],
    "agent_health_interval": "7min",
    "agent_reconcile_interval": "41s",
    # Its underlay is not in one and its SSH not in the other.
    "agent_management_networks": ["198.18.77.0/24"],
    "agent_compute_networks": ["198.18.78.0/24"],
    "agent_network_separation": "warn",
    "accelerator_nvidia": "always",
    "accelerator_packages": ["iperf3"],
    "accelerator_docker_host": "unix:///run/nowhere.sock",
    "firewall_gateways": [GATEWAY],
    "firewall_agents": [AGENT],
    "firewall_ssh_ports": [22, 2222],
    "firewall_interfaces": ["eth0"],
    "firewall_allow": [{"protocol": "udp", "ports": ["9199"], "sources": [GATEWAY]}],
    "firewall_packages": ["iproute2", "nftables", "tcpdump"],
    **{f"{role}_apt_cache_valid_time": TEN_YEARS for role in ("agent", "firewall", "manager")},
}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnHost]:
    """A new agent of the newest suite. Its engine answers at a second path, too."""
    socket = f"mkdir -p /run/own && ln -s /run/docker.sock {SOCKET}"
    wanted = Host("spare5", "agents", SUITES[-1], 65)
    with own_host(tmp_path_factory.mktemp("agent"), wanted, "provision_agents", VARIABLES, socket) as made:
        made.host.load_images()
        yield made


@pytest.fixture(scope="module")
def main(agent: OwnHost) -> Kernel:
    """The container of a session there."""
    request = {"name": NAME, "image": BUSYBOX, "designated_agents": [agent.host.name], **SMALL}
    run = agent.play("create_session", **{f"session_{name}": value for name, value in request.items()})
    assert run.code == 0, run.output
    assert run.record["status"] == "RUNNING", run.output
    return dict(run.record["kernels"][0])


def test_packages_and_kernel_settings_are_those_that_were_asked_for(agent: OwnHost) -> None:
    """No index of packages was updated: nobody could have."""
    listed = agent.run("dpkg-query --show --showformat '${Package} ' ethtool iperf3 tcpdump")
    assert listed.split() == ["ethtool", "iperf3", "tcpdump"]
    assert agent.run("sysctl -n net.ipv4.tcp_fin_timeout") == "47\n"


def test_the_agent_looks_at_what_it_was_told_to_and_as_often(agent: OwnHost) -> None:
    assert agent.run("ls /etc/backendai/health.d").split() == ["disk", "engine"]
    assert "OnUnitInactiveUSec=7min" in agent.shown("backendai-health.timer", "TimersMonotonic")[0]
    assert "OnUnitInactiveUSec=41s" in agent.shown("backendai-reconcile.timer", "TimersMonotonic")[0]


def test_gpus_are_set_up_before_the_driver_is_there_if_that_is_asked_for(agent: OwnHost) -> None:
    assert agent.run("systemctl is-enabled backendai-nvidia.service") == "enabled\n"
    # The engine would have been told of CDI; nothing answers where it was looked for.
    assert agent.run("ls /etc/docker/daemon.json 2> /dev/null || true") == ""


def test_an_agent_whose_networks_are_not_apart_is_provisioned_with_a_warning(agent: OwnHost) -> None:
    assert "which is not in agent_management_networks (198.18.77.0/24)" in agent.provisioned.text


def test_state_homes_and_network_of_sessions_are_where_they_were_asked_for(agent: OwnHost, main: Kernel) -> None:
    (container,) = json.loads(agent.run(f"docker inspect {main['container']}"))
    (home,) = [mount["Source"] for mount in container["Mounts"] if mount["Destination"] == "/home/work"]
    assert home.startswith(f"{HOMES}/")
    assert container["NetworkSettings"]["Networks"][NETWORK]["IPAddress"].startswith("172.29.7.")
    assert "172.29.7." in agent.run(f"ip -4 -oneline address show dev {DEFAULT_BRIDGE}")
    assert agent.run(f"ls {STATE}/sessions").split() == [main["id"]]
    assert agent.run("ls /var/lib/backendai").split() == ["before.json"]


def test_the_engine_is_asked_where_it_was_said_to_be(agent: OwnHost, main: Kernel) -> None:
    """Without that path the agent is not usable, although its engine runs."""
    assert f"--docker-host unix://{SOCKET} " in agent.run("systemctl cat backendai-restore.service")
    agent.run(f"mv {SOCKET} {SOCKET}.away")
    try:
        assert agent.run(f"docker inspect --format '{{{{.State.Running}}}}' {main['container']}") == "true\n"
        listed = agent.play("list_sessions")
        assert SOCKET in listed.text, listed.output
    finally:
        agent.run(f"mv {SOCKET}.away {SOCKET}")


def test_the_firewall_has_the_addresses_ports_and_interfaces_that_were_asked_for(agent: OwnHost) -> None:
    rules = agent.run(RULES)
    for part in (GATEWAY, AGENT, "{ 22, 2222 }", r"udp dport (\{ )?9199", r'set firewall_ifaces {[^}]*"eth0"'):
        assert re.search(part, rules), part
    assert address("agent1") not in rules


def apply(agent: OwnHost, *options: str, **variables: object) -> str:
    """Apply the rules again with other ``firewall_*`` variables; return what was printed."""
    values = {**agent.variables, "firewall_state_path": STATE}
    values |= {f"firewall_{name}": value for name, value in variables.items()}
    # The last inventory knows the key of the host.
    words = ["ansible-playbook", "-i", INVENTORY, *options, *agent.options, PLAYBOOK, "-e", json.dumps(values)]
    process = ansible(*words)
    return process.stdout + process.stderr


def test_gateways_are_known_by_the_address_that_they_come_from(agent: OwnHost) -> None:
    folder = agent.folder / "gateway"
    folder.mkdir()
    changed = inventory_options(folder, gateway1={"gateway_source_address": "198.51.100.77"})
    printed = apply(agent, *changed, gateways=[])
    assert "198.51.100.77" in agent.run(RULES), printed


def test_rules_on_trial_end_after_the_time_that_was_asked_for(agent: OwnHost) -> None:
    printed = apply(agent, "--timeout", "4", ssh_sources=[NOBODY], gateways=[], confirm_timeout=10)
    assert f"firewall_ssh_sources: with {NOBODY}/32" in unwrapped(printed)
    # A minute, unless less is asked for.
    wait_until(lambda: NOBODY not in agent.run(RULES), seconds=20)
    assert "{ 22, 2222 }" in agent.run(RULES)


def test_a_host_without_the_firewall_drops_nothing_that_is_for_itself(agent: OwnHost) -> None:
    assert "chain host_firewall" in agent.run(RULES)
    printed = apply(agent, enabled=False)
    assert "chain host_firewall" not in agent.run(f"{RULES} || true"), printed


@pytest.mark.usefixtures("main")
def test_check_mode_of_a_removal_goes_on_if_sessions_are_to_be_ended(agent: OwnHost) -> None:
    for ends in (False, True):
        checked = agent.play("remove_agents", "--check", agent_names=agent.host.name, remove_sessions=ends)
        assert (checked.code == 0) == ends, checked.output
    assert NAME in agent.run("docker ps --format '{{.Names}}'")


def test_images_that_did_not_come_with_sessions_are_pruned_if_that_is_asked_for(agent: OwnHost) -> None:
    image = agent.run("tar -cC /etc hostname | docker import - others/data:1").strip()
    # When it got its name, as the engine has it.
    times = f"/var/lib/docker/image/*/imagedb/metadata/sha256/{image.removeprefix('sha256:')}/lastUpdated"
    agent.run(f"for file in {times}; do printf 2020-01-01T00:00:00Z > $file; done")
    for others, left in ((False, 1), (True, 0)):
        pruned = agent.play("prune_images", agent_names=agent.host.name, agent_image_others=others)
        assert pruned.code == 0, pruned.output
        assert len(agent.run("docker images --quiet others/data").split()) == left, pruned.output
    assert BUSYBOX in agent.run("docker images --format '{{.Repository}}:{{.Tag}}'").split()


def is_up(agent: OwnHost) -> bool:
    """Tell whether a host that reboots is up again."""
    with contextlib.suppress(LabError):
        return agent.run("systemctl is-system-running || true").strip() in ("running", "degraded")
    return False


def test_a_reboot_that_takes_longer_than_was_asked_for_stops_the_run(agent: OwnHost) -> None:
    ended = agent.play("terminate_session", session_name=NAME)
    assert ended.code == 0, ended.output
    rebooted = agent.play("reboot_agents", agent_names=agent.host.name, agent_reboot_timeout=1)
    assert rebooted.code != 0, rebooted.output
    wait_until(lambda: is_up(agent), pause=1)
    # It stays out of service.
    assert agent.run(f"ls {STATE}/cordon.json") == f"{STATE}/cordon.json\n"


def test_a_removal_takes_away_what_has_other_names_and_paths(agent: OwnHost) -> None:
    agent.run(f"mkdir -p /run/own && ln -sf /run/docker.sock {SOCKET}")
    removed = agent.play("remove_agents", agent_names=agent.host.name)
    assert removed.code == 0, removed.output
    left = f"ls -d {STATE} {HOMES} /sys/class/net/{DEFAULT_BRIDGE} 2> /dev/null || true"
    assert agent.run(left) == "", removed.output

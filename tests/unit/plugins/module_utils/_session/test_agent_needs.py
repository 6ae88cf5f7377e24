"""What an agent must have: each lack is found, mended if it is this collection's, and named if it is not."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import default_network
from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError
from ansible_collections.backendai.cluster.plugins.module_utils._docker.default_network import (
    DefaultNetwork,
    read_default_network,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.state_format import StateFormat
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import (
    LinkOperation,
    LinkState,
    NetworkError,
    WayOut,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session import agent_needs
from ansible_collections.backendai.cluster.plugins.module_utils._session.agent_needs import find_lacks, mend_lacks
from tests.unit.builders import REPOSITORY, held, plan

NETWORK = DefaultNetwork("backendai-default", "backendai0", "", 1500)
ALL = agent_needs.NEEDS
FORWARDING = "net/ipv4/conf/{}/forwarding"


class Agent:
    """A host that lacks nothing: its kernel's settings below a folder, its links, and its engine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Store(str(folder / "state"))
        self.settings = folder / "90-backendai.conf"
        (self.store.root / "sessions").mkdir(parents=True)
        (self.store.root / "lock").touch()
        self.links: dict[str, Any] = {"backendai0": {"ifname": "backendai0", "flags": ["UP"], "mtu": 1500}}
        self.addresses: dict[str, Any] = {"backendai0": [{"family": "inet", "local": "172.18.0.1"}]}
        self.way_out: WayOut | None = WayOut("eth0", 1500)
        self.engine: Any = Engine()
        self.applied: list[str] = []
        self.refuses = ""
        self.rules = True
        for name in ("net/ipv4/ip_forward", *map(FORWARDING.format, ("backendai0", "eth0"))):
            self.set(name, "1")
        self.remember(NETWORK)

    def remember(self, network: DefaultNetwork) -> None:
        self.store.default_network_file.write_text(StateFormat("it", DefaultNetwork).dump(network))

    def set(self, name: str, value: str) -> None:
        path = self.folder / "proc" / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    def value(self, name: str) -> str:
        return (self.folder / "proc" / "sys" / name).read_text().strip()

    def apply(self, steps: list[LinkOperation]) -> None:
        if self.refuses:
            raise NetworkError(self.refuses)
        self.applied += [line for step in steps for line in step.ip]

    def connect(self) -> Any:
        if self.engine is None:
            raise DockerUnavailableError("The engine does not answer.")
        return self.engine

    def lacks(self) -> list[str]:
        return [lacking.lack.problem for lacking in find_lacks(self.store)]

    def mend(self) -> tuple[list[Change], list[str]]:
        changes, failures = mend_lacks(self.store, self.connect)
        return changes, [failure.phrase for failure in failures]


class Engine:
    """An engine with the default network, and containers that are attached to it."""

    api_version = "1.41"

    def __init__(self) -> None:
        self.attached: list[str] = []
        self.network: dict[str, Any] | None = {
            "Id": "n",
            "Name": NETWORK.name,
            "Driver": "bridge",
            "Labels": {"ai.backend.owner": "backendai.cluster"},
            "EnableIPv6": False,
            "Options": {},
            "IPAM": {"Config": [{"Subnet": "172.18.0.0/16", "Gateway": "172.18.0.1"}]},
        }

    def networks(self, **_filters: Any) -> list[dict[str, Any]]:
        return [self.network] if self.network else []

    def containers(self, **_query: Any) -> list[str]:
        return self.attached

    def remove_network(self, _id: str) -> None:
        self.network = None

    def create_network(self, name: str, *, options: Any, labels: Any, **_how: Any) -> None:
        pools = [{"Subnet": "172.18.0.0/16", "Gateway": "172.18.0.1"}]
        made = {"Id": "n", "Name": name, "Driver": "bridge", "Labels": labels, "EnableIPv6": False}
        self.network = {**made, "Options": options, "IPAM": {"Config": pools}}


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    made = Agent(tmp_path)
    made.engine.network["Labels"] = {default_network.labels.OWNER: default_network.labels.OWNER_VALUE}
    monkeypatch.setattr(agent_needs, "PROC", tmp_path / "proc")
    monkeypatch.setattr(agent_needs, "SETTINGS_FILE", made.settings)
    monkeypatch.setattr(agent_needs, "NEEDS", ALL)
    monkeypatch.setattr(agent_needs, "engine_rules_exist", lambda: made.rules)
    monkeypatch.setattr(agent_needs, "apply_operations", made.apply)
    monkeypatch.setattr(LinkState, "links", property(lambda _state: made.links))
    monkeypatch.setattr(LinkState, "addresses", property(lambda _state: made.addresses))
    monkeypatch.setattr(LinkState, "way_out", property(lambda _state: made.way_out))
    return made


def test_an_agent_that_has_all_is_left_alone(agent: Agent) -> None:
    agent.engine = None
    assert agent.lacks() == []
    assert agent.mend() == ([], [])
    assert agent.applied == []


# ---- kernel settings and forwarding


def test_settings_that_others_have_changed_are_set_again(agent: Agent) -> None:
    agent.settings.write_text("# Written.\nnet.ipv4.ip_forward = 1\nnet.ipv4.tcp_rmem = 4096 87380 6291456\n")
    agent.set("net/ipv4/tcp_rmem", "4096\t131072\t6291456")
    agent.set("net/ipv4/ip_forward", "0")
    assert agent.lacks() == [
        "net.ipv4.ip_forward is 0 instead of 1",
        "net.ipv4.tcp_rmem is 4096 131072 6291456 instead of 4096 87380 6291456",
    ]
    changes, failures = agent.mend()
    assert [str(change.subject) for change in changes] == [
        "kernel setting net.ipv4.ip_forward",
        "kernel setting net.ipv4.tcp_rmem",
    ]
    assert (failures, agent.lacks()) == ([], [])
    assert (agent.value("net/ipv4/ip_forward"), agent.value("net/ipv4/tcp_rmem")) == ("1", "4096 87380 6291456")


def test_forwarding_is_needed_whatever_settings_there_are(agent: Agent) -> None:
    agent.set("net/ipv4/ip_forward", "0")
    assert agent.mend()[0] == [Change("kernel setting net.ipv4.ip_forward", "0", "1")]


def test_interfaces_with_a_dot_in_their_names_have_settings(agent: Agent) -> None:
    agent.settings.write_text("net/ipv4/conf/eth0.7/rp_filter = 1\nnet.ipv4.conf.eth0/8.rp_filter = 1\n")
    for name in ("eth0.7", "eth0.8"):
        agent.set(f"net/ipv4/conf/{name}/rp_filter", "0")
    assert len(agent.mend()[0]) == 2
    assert agent.lacks() == []


def test_a_setting_that_the_kernel_does_not_take_is_a_failure(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.settings.write_text("net.core.somaxconn = 4096\nnet.no.such = 1\n")
    agent.set("net/core/somaxconn", "128")
    monkeypatch.setattr(Path, "write_text", lambda _path, _text: None)
    changes, (failure,) = agent.mend()
    assert changes == []
    assert failure == (
        "net.core.somaxconn is 128 instead of 4096, and cannot be mended (the kernel makes 128 of it): give"
        " agent_sysctls a value that the kernel keeps, and run backendai.cluster.provision_agents on it"
    )


def test_the_bridge_forwards_again_and_the_way_out_is_the_operators(agent: Agent) -> None:
    for name in ("backendai0", "eth0"):
        agent.set(FORWARDING.format(name), "0")
    assert agent.mend()[0] == [Change("kernel setting net/ipv4/conf/backendai0/forwarding", "0", "1")]
    assert agent.value(FORWARDING.format("eth0")) == "0"
    (lacking,) = find_lacks(agent.store)
    assert lacking.sentence("containers reach nothing") == (
        "eth0 does not forward (net/ipv4/conf/eth0/forwarding is 0), so containers reach nothing: set it to 1, in"
        " /etc/sysctl.d as well"
    )
    assert lacking.change == Change(
        "kernel setting net/ipv4/conf/eth0/forwarding", "0: set it to 1, in /etc/sysctl.d as well", "1"
    )


# ---- the default network


@pytest.mark.parametrize(
    ("link", "line"),
    [
        ({"flags": []}, "link set dev backendai0 up"),
        ({"mtu": 1400}, "link set dev backendai0 mtu 1500"),
    ],
)
def test_the_bridge_is_as_it_should_be_again(agent: Agent, link: dict[str, Any], line: str) -> None:
    agent.links["backendai0"].update(link)
    assert agent.mend()[1] == []
    assert agent.applied == [line]


def test_the_bridge_gets_its_address_back_from_the_engine(agent: Agent) -> None:
    agent.addresses["backendai0"] = [{"family": "inet6", "local": "fe80::1"}]
    assert agent.mend()[1] == []
    assert agent.applied == ["addr add 172.18.0.1/16 brd + dev backendai0"]
    agent.engine.network = None
    (failure,) = agent.mend()[1]
    assert failure.startswith("backendai0 has no address, and cannot be mended (the engine does not know it): restart")


def test_a_bridge_that_is_gone_comes_back_with_its_network(agent: Agent) -> None:
    del agent.links["backendai0"]
    changes, failures = agent.mend()
    assert (changes, failures) == ([Change("bridge backendai0", None, "present")], [])
    assert agent.engine.network["Options"]["com.docker.network.driver.mtu"] == "1500"


@pytest.mark.parametrize("known", [True, False])
def test_a_bridge_of_running_containers_is_left_to_the_engine(agent: Agent, known: bool) -> None:
    del agent.links["backendai0"]
    agent.engine.attached = ["web"]
    if not known:
        agent.store.default_network_file.unlink()
    (failure,) = agent.mend()[1]
    assert failure.startswith(
        "the bridge backendai0 of the default network is missing, and cannot be mended (containers"
    )
    assert "restart the engine" in failure
    assert agent.engine.network["Options"] == {}


def test_what_the_engine_has_to_mend_waits_until_it_answers(agent: Agent) -> None:
    del agent.links["backendai0"]
    agent.engine = None
    assert agent.mend() == ([], [])


def test_a_failure_to_mend_is_named_with_its_reason(agent: Agent) -> None:
    agent.links["backendai0"]["flags"] = []
    agent.refuses = "ip -batch -: Operation not permitted"
    changes, (failure,) = agent.mend()
    assert changes == []
    assert failure.startswith("backendai0 is down, and cannot be mended (ip -batch -: Operation not permitted): ")


# ---- the MTU of the way out


def test_a_network_without_sessions_gets_the_mtu_of_the_way_out(agent: Agent) -> None:
    agent.way_out = WayOut("eth0", 1400)
    changes = agent.mend()[0]
    assert [change.subject for change in changes] == ["network backendai-default mtu", "link backendai0"]
    assert agent.engine.network["Options"]["com.docker.network.driver.mtu"] == "1400"
    assert read_default_network(agent.store) == dataclasses.replace(NETWORK, mtu=1400)
    agent.links["backendai0"]["mtu"] = 1400
    assert agent.lacks() == []


def test_a_network_with_sessions_keeps_its_own_mtu_and_its_bridge_gets_the_new_one(agent: Agent) -> None:
    agent.store.save(held(plan()))
    agent.way_out = WayOut("eth0", 1400)
    assert agent.mend() == ([Change("link backendai0", "mtu 1500", "mtu 1400")], [])
    assert agent.applied == ["link set dev backendai0 mtu 1400"]
    assert agent.engine.network["Options"] == {}


def test_a_network_with_containers_of_others_keeps_its_own_mtu_without_a_word(agent: Agent) -> None:
    agent.engine.attached = ["web"]
    agent.way_out = WayOut("eth0", 1400)
    assert agent.mend()[1] == []
    assert agent.engine.network["Options"] == {}
    assert read_default_network(agent.store) == NETWORK


def test_without_a_way_out_the_mtu_stays(agent: Agent) -> None:
    agent.way_out = None
    assert agent.lacks() == []


# ---- the engine's rules


def test_rules_of_the_engine_are_not_mended_but_named(agent: Agent) -> None:
    agent.rules = False
    assert agent.mend() == ([], [])
    (lacking,) = find_lacks(agent.store)
    remedy = "restart the engine (systemctl restart docker)"
    assert lacking.change == Change("rules of the engine", f"missing: {remedy}", "present")


# ---- a real kernel

MEND = """\
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._session import agent_needs
agent_needs.NEEDS = agent_needs.NEEDS[:-1]
for change in agent_needs.mend_lacks(Store("/nowhere"), agent_needs._no_engine)[0]:
    print(f"{change.subject}: {change.before} -> {change.after}")
"""


def test_a_real_host_is_mended_once() -> None:
    script = """
        set -eu
        ip link add eth0 type veth peer name other; ip link set other up
        ip address add 192.0.2.2/24 dev eth0; ip link set eth0 mtu 1400 up
        ip route add default via 192.0.2.1
        ip link add backendai0 type bridge; ip address add 172.18.0.1/16 dev backendai0
        sysctl --quiet --write net.ipv4.ip_forward=1 net.ipv4.conf.backendai0.forwarding=0
        for turn in 1 2; do "$1" -c "$2" "$3"; echo "turn $turn"; done
        cat /proc/sys/net/ipv4/conf/backendai0/forwarding
        ip -o link show backendai0 | grep -o 'mtu [0-9]*'
    """
    command = [
        "unshare",
        "--net",
        "sh",
        "-c",
        script,
        "sh",
        sys.executable,
        MEND,
        str(REPOSITORY / ".venv/collections"),
    ]
    assert subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines() == [
        "link backendai0: down -> up",
        "kernel setting net/ipv4/conf/backendai0/forwarding: 0 -> 1",
        "link backendai0: mtu 1500 -> mtu 1400",
        "turn 1",
        "turn 2",
        "1",
        "mtu 1400",
    ]

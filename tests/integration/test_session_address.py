"""The address that programs in a container find is the session's, and the world is reached as before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.containers import default_address
from tests.integration.forgery import external_address
from tests.integration.laboratory import Kernel, address, run_in, run_on
from tests.integration.probes import reachable_from_container, targets_with_ports
from tests.integration.programs import run_line
from tests.integration.session_requests import SMALL, TWO
from tests.integration.sessions import Sessions, StartedSession

pytestmark = pytest.mark.network

ASK = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connected:
    connected.connect(("192.0.2.1", 9))
    print(connected.getsockname()[0])
print(socket.gethostbyname(socket.gethostname()))
"""
PORT = 9990


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, StartedSession]]:
    """Sessions on one agent, on several, and of one container."""
    with Sessions(tmp_path_factory.mktemp("session-address")) as sessions:
        one = {**SMALL, "cluster_mode": "single-node"}
        yield {
            "several agents": sessions.start(**TWO, name=f"{sessions.name}-wide"),
            "one agent": sessions.start(**one, cluster_size=2, name=f"{sessions.name}-narrow"),
            "one container": sessions.start(**one, cluster_size=1, name=f"{sessions.name}-single"),
        }


def found_addresses(kernel: Kernel) -> set[str]:
    """Return what programs in a container take for its address: of a connected socket, and of its name."""
    return {*run_in(kernel, "python3", "-c", ASK).split(), *run_in(kernel, "hostname", "-i").split()}


@pytest.mark.parametrize("kind", ["several agents", "one agent"])
def test_programs_find_the_address_of_the_session(sessions: dict[str, StartedSession], kind: str) -> None:
    for kernel in sessions[kind].kernels:
        assert found_addresses(kernel) == {kernel["address"]}
        targets = targets_with_ports(external_address())
        assert reachable_from_container(kernel, targets) == set(targets)


@pytest.mark.parametrize("kind", ["several agents", "one agent"])
def test_containers_acknowledge_at_once(sessions: dict[str, StartedSession], kind: str) -> None:
    for kernel in sessions[kind].kernels:
        (route,) = run_in(kernel, "ip", "-4", "route", "show", "dev", "cluster0").splitlines()
        assert "quickack 1" in route


def test_single_container_keeps_its_only_address(sessions: dict[str, StartedSession]) -> None:
    (kernel,) = sessions["one container"].kernels
    assert default_address(kernel["agent"], kernel["container"]) in found_addresses(kernel)


@pytest.mark.parametrize("kind", ["several agents", "one agent"])
def test_udp_is_answered_from_the_port_that_was_asked(sessions: dict[str, StartedSession], kind: str) -> None:
    kernel = sessions[kind].kernels[0]
    agent = kernel["agent"]
    run_on(agent, f"docker exec --detach {kernel['container']} {run_line('echo_udp', PORT, 2)}")
    asked = default_address(agent, kernel["container"])
    for source in ("", address(agent)):
        assert run_on(agent, run_line("ask_udp", asked, PORT, 60, source)).strip() == "hello"


def test_second_default_route_stays_without_the_session_network(sessions: dict[str, StartedSession]) -> None:
    kernel = sessions["several agents"].kernels[0]
    routes = run_in(kernel, "ip", "route", "show", "default").splitlines()
    assert [f"src {kernel['address']}" in route for route in routes] == [True, False]

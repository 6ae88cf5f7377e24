"""The result of provisioning; test_wireguard.py tests that provisioning again changes nothing."""

from __future__ import annotations

import pytest

from tests.integration.internals import AGENT_STATE, DEFAULT_NETWORK
from tests.integration.laboratory import AGENTS, run_on, run_on_all

pytestmark = pytest.mark.provisioning


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_has_its_folders_network_and_kit(agent: str) -> None:
    assert run_on(agent, f"stat -c '%a %U' {AGENT_STATE}").split() == ["700", "root"]
    assert run_on(agent, f"docker network inspect --format '{{{{.Driver}}}}' {DEFAULT_NETWORK}").strip() == "bridge"
    assert run_on(agent, f"test -x {AGENT_STATE}/kit/current/bin/entrypoint && echo yes").strip() == "yes"
    assert run_on(agent, "sysctl --values net.ipv4.ip_forward").strip() == "1"


def test_the_lab_has_two_engines_and_two_pythons() -> None:
    engines = [version.strip() for version in run_on_all("docker version --format '{{.Server.Version}}'")]
    assert engines[0] == engines[1] != engines[2]
    assert len(set(run_on_all("python3 -c 'import sys; print(sys.version_info[:2])'"))) == 2

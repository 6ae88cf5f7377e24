"""Bare hosts that became agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.laboratory import AGENTS, on, play


def test_provisioning_again_changes_nothing(tmp_path: Path) -> None:
    run = play("provision_agents", tmp_path, {})
    assert (run.code, run.changed) == (0, 0), run.output


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_has_its_folders_network_and_kit(agent: str) -> None:
    assert on(agent, "stat -c '%a %U' /var/lib/backendai").split() == ["700", "root"]
    assert on(agent, "docker network inspect --format '{{.Driver}}' backendai-default").strip() == "bridge"
    assert on(agent, "test -x /var/lib/backendai/kit/current/bin/entrypoint && echo yes").strip() == "yes"
    assert on(agent, "sysctl --values net.ipv4.ip_forward net.bridge.bridge-nf-call-iptables").split() == ["1", "1"]


def test_the_lab_has_two_engines_and_two_pythons() -> None:
    engines = [on(agent, "docker version --format '{{.Server.Version}}'").strip() for agent in AGENTS]
    assert engines[0] == engines[1] != engines[2]
    pythons = {on(agent, "python3 -c 'import sys; print(sys.version_info[:2])'").strip() for agent in AGENTS}
    assert len(pythons) == 2

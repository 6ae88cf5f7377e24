"""What the role ``firewall`` says that firewalld and ufw have to let in, and in which order its units start."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.template import trust_as_template

from tests.unit.builders import REPOSITORY
from tests.unit.rendering import templar

ROLES = REPOSITORY / "roles"
PUBLIC = [{"protocol": "tcp", "ports": ["443", "31001-32000"]}]
PEERS = ["192.0.2.1", "192.0.2.2"]


def needed(**variables: object) -> object:
    """Return the argument of the module, on a host with these variables."""
    tasks = yaml.safe_load((ROLES / "firewall/tasks/rules.yml").read_text())
    text = tasks[0]["backendai.cluster.agent_firewall"]["needed"]
    of_role = yaml.safe_load((ROLES / "firewall/vars/main.yml").read_text())
    tunnels = {
        name: value for name, value in of_role.items() if name.startswith(("__firewall_tunnel", "__firewall_enc"))
    }
    known = {"__firewall_agents": PEERS, "__firewall_gateways": ["192.0.2.9"], "__firewall_public": [], **variables}
    trusted = {name: _trusted(value) for name, value in tunnels.items()}
    return templar({**trusted, "__firewall_agent": True, **known}).template(trust_as_template(text))


def _trusted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _trusted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_trusted(inner) for inner in value]
    return trust_as_template(value) if isinstance(value, str) else value


def udp(port: int, *sources: str) -> dict[str, object]:
    return {"protocol": "udp", "ports": [port], "sources": [*sources]}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, [udp(4789, *PEERS)]),
        ({"session_vxlan_port": 4790}, [udp(4790, *PEERS)]),
        ({"agent_underlay_encryption": "wireguard"}, [udp(51820, *PEERS), udp(4789, "fd62:6169::/48")]),
        (
            {"agent_underlay_encryption": "wireguard", "agent_wireguard_port": 7},
            [udp(7, *PEERS), udp(4789, "fd62:6169::/48")],
        ),
        (
            {"agent_allow_host_network": True},
            [udp(4789, *PEERS), {"protocol": "tcp", "ports": ["30000-32767"], "sources": [*PEERS, "192.0.2.9"]}],
        ),
        ({"__firewall_public": PUBLIC}, [*PUBLIC, udp(4789, *PEERS)]),
        ({"__firewall_public": PUBLIC, "__firewall_agent": False}, PUBLIC),
        # No sources would be all of them.
        ({"__firewall_agents": []}, []),
    ],
)
def test_a_host_needs_what_its_roles_serve(variables: dict[str, object], expected: list[object]) -> None:
    assert needed(**variables) == expected


def test_a_host_that_is_no_agent_need_not_have_the_python_of_agents() -> None:
    text = yaml.safe_load((ROLES / "firewall/vars/main.yml").read_text())["__firewall_python"]
    known = {"agent_python": "/opt/venv/bin/python", "__firewall_agent": False}
    assert str(templar(known).template(trust_as_template(text))) == "/usr/bin/python3"


UNITS = [
    *ROLES.glob("*/templates/backendai-*reconcile.service.j2"),
    *(ROLES / "agent/templates" / f"backendai-{name}.service.j2" for name in ("restore", "wireguard")),
    ROLES / "gateway/templates/backendai-gateway.service.j2",
]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: f"{path.parts[-3]} {path.stem}")
def test_units_start_after_the_firewalls_of_others(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if line.startswith("After=")]
    assert {"firewalld.service", "ufw.service"} <= {word for line in lines for word in line[6:].split()}


def test_the_early_rules_wait_for_no_ordinary_service() -> None:
    """firewalld is one: it starts after ``sysinit.target``, which waits for the rules."""
    text = (ROLES / "firewall/templates/backendai-firewall.service.j2").read_text()
    (after,) = [line for line in text.splitlines() if line.startswith("After=")]
    assert after.split("=")[1].split() == ["local-fs.target", "nftables.service", "ufw.service"]
    assert "sysinit.target" in text.partition("Before=")[2].partition("\n")[0]

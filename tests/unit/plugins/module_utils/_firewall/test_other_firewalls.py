"""Other firewall managers that are active on a host."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import surroundings as others
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.surroundings import detect_firewalls

BESIDE = (
    "{} is active on this host: its rules apply in addition to those of the role firewall, and packets that it drops"
    " stay dropped; allow SSH sources, agents and gateways there as well."
)
OFF = "# /etc/ufw/ufw.conf\n#ENABLED=yes\nENABLED=no\nLOGLEVEL=low\n"
ON = "# /etc/ufw/ufw.conf\nENABLED=yes\nLOGLEVEL=low\n"


def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ufw: str | None, firewalld: int | None) -> list[list[str]]:
    """Configure ufw and the exit code of systemctl; ``None`` if it is missing.

    Returns the commands that are run.
    """
    commands: list[list[str]] = []

    def run(command: list[str], *, check: bool) -> subprocess.CompletedProcess[str]:
        assert not check, "that a unit is not active is no failure"
        commands.append(command)
        if firewalld is None:
            raise FileNotFoundError(2, "No such file or directory", "systemctl")
        return subprocess.CompletedProcess(command, firewalld)

    path = tmp_path / "ufw.conf"
    if ufw is not None:
        path.write_text(ufw)
    monkeypatch.setattr(others, "UFW", path)
    monkeypatch.setattr(subprocess, "run", run)
    return commands


@pytest.mark.parametrize(
    ("ufw", "firewalld", "result"),
    [
        (None, None, []),
        (None, 3, []),
        (None, 4, []),
        (OFF, 3, []),
        ("", 3, []),
        ("ENABLED=yes-not\n", 3, []),
        (ON, 3, ["ufw"]),
        (ON, None, ["ufw"]),
        (None, 0, ["firewalld"]),
        (OFF, 0, ["firewalld"]),
        (ON, 0, ["ufw", "firewalld"]),
    ],
)
def test_active_firewalls_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ufw: str | None, firewalld: int | None, result: list[str]
) -> None:
    commands = host(monkeypatch, tmp_path, ufw, firewalld)
    assert detect_firewalls() == [BESIDE.format(name) for name in result]
    assert commands == [["systemctl", "is-active", "--quiet", "firewalld.service"]]

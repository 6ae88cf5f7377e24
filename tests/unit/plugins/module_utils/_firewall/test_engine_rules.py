"""Whether the engine's own rules exist, with iptables and with its nftables backend."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.engine_rules import engine_rules_exist
from ansible_collections.backendai.cluster.plugins.module_utils._host import engine_settings


@pytest.fixture(autouse=True)
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the command line of the engine, which has no file unless a test writes one."""
    given = ["dockerd", "--config-file", str(tmp_path / "daemon.json")]
    monkeypatch.setattr(engine_settings, "engine_arguments", lambda: given)
    return given


def host(monkeypatch: pytest.MonkeyPatch, **codes: int | None) -> None:
    """Let each program end with its code; ``None`` is a program that is not installed."""

    def run(command: tuple[str, ...], **_options: Any) -> subprocess.CompletedProcess[str]:
        code = codes[command[0]]
        if code is None:
            raise FileNotFoundError(command[0])
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    ("iptables", "nft", "exist"),
    [(0, 1, True), (1, 0, True), (None, 0, True), (1, 1, False), (None, 1, False), (1, None, False)],
)
def test_rules_of_either_backend_count(
    monkeypatch: pytest.MonkeyPatch, iptables: int | None, nft: int | None, exist: bool
) -> None:
    host(monkeypatch, iptables=iptables, nft=nft)
    assert engine_rules_exist() is exist


@pytest.mark.parametrize(
    ("text", "exist"), [('{"iptables": false}', True), ('{"iptables": true}', False), ("{", False), ("[]", False)]
)
def test_engine_that_is_configured_to_add_no_rules_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, exist: bool
) -> None:
    (tmp_path / "daemon.json").write_text(text)
    host(monkeypatch, iptables=1, nft=1)
    assert engine_rules_exist() is exist


def test_engine_that_is_told_on_its_command_line_to_add_no_rules_has_none(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    host(monkeypatch, iptables=1, nft=1)
    arguments.append("--iptables=false")
    assert engine_rules_exist()

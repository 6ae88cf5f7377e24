"""SSH checks of a container, from the output of its command."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._session import ssh_check
from ansible_collections.backendai.cluster.plugins.module_utils._session.ssh_check import (
    LoginReport,
    chain_passes,
    check_logins,
)

ENGINE: Any = None
BUSYBOX = "/opt/backendai/bin/busybox"
HOSTS = "127.0.0.1 localhost # 192.0.2.9 sub9\n\n10.128.0.2\tmain1 main\n10.128.0.3 sub1\n10.128.0.4 sub1\n"
KNOWN = {
    "localhost": ["127.0.0.1"],
    "main1": ["10.128.0.2"],
    "main": ["10.128.0.2"],
    "sub1": ["10.128.0.3", "10.128.0.4"],
}
# As OpenSSH 10.1 and later do, it warns about servers without post-quantum key exchange.
CLIENT = """#!/bin/sh
[ "$1 $2" = '-o LogLevel=ERROR' ] || printf '** WARNING: not post-quantum.\\r\\n' >&2
while [ "$1" = -o ]; do
    shift 2
done
case $1 in
    sub9) echo "* no" ;;
    *) echo "$1" ;;
esac
"""


def report_of(monkeypatch: pytest.MonkeyPatch, printed: str, *peers: str) -> LoginReport:
    """Return the report for an output of a container."""
    monkeypatch.setattr(ssh_check, "run_as_work", lambda _client, _container, _line: printed)
    return check_logins(ENGINE, "backendai-x-main1", list(peers))


def test_names_and_logins_are_read_from_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(monkeypatch, f"sub1 sub1\nmain1 main1\n\n{HOSTS}", "main1", "sub1") == LoginReport(KNOWN, {})


def test_failed_login_is_reported_with_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = f"main1 main1\nsub1 Host key verification failed.\n\n{HOSTS}"
    assert report_of(monkeypatch, printed, "main1", "sub1").failures == {"sub1": "Host key verification failed."}


def test_login_to_another_host_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(monkeypatch, f"sub1 sub2\n\n{HOSTS}", "sub1").failures == {"sub1": "sub2"}


def test_login_without_output_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(monkeypatch, f"sub1\n\n{HOSTS}", "sub1", "sub2").failures == {"sub1": "", "sub2": ""}


def test_names_are_read_without_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(monkeypatch, f"\n{HOSTS}") == LoginReport(KNOWN, {})


def test_failed_command_fails_all_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(monkeypatch, "OCI runtime exec failed", "main1") == LoginReport({}, {"main1": ""})


@pytest.fixture
def fake_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run commands of containers here, with CLIENT as ssh."""
    (tmp_path / "ssh").write_text(CLIENT)
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setattr(ssh_check, "_SCRIPT", ssh_check._SCRIPT.replace("/opt/backendai/bin/busybox ", ""))

    def run_here(_client: Any, _container: str, line: str) -> str:
        words = ["sh", *shlex.split(line)[2:]]
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.run(words, capture_output=True, text=True, check=True, env=environment, cwd="/").stdout

    monkeypatch.setattr(ssh_check, "run_as_work", run_here)


@pytest.mark.usefixtures("fake_client")
def test_warning_of_the_client_is_no_failure() -> None:
    assert check_logins(ENGINE, "backendai-x-main1", ["main1", "sub1"]).failures == {}


@pytest.mark.usefixtures("fake_client")
def test_command_logs_in_to_all_peers_without_shell_expansion() -> None:
    peers = [f"sub{number}" for number in range(1, 10)]
    report = check_logins(ENGINE, "backendai-x-main1", peers)
    assert report.failures == {"sub9": "* no"}
    assert "localhost" in report.addresses


@pytest.mark.parametrize(("printed", "well"), [("sub2\n", True), ("sub1\n", False), ("", False), ("ssh: no\n", False)])
def test_chain_passes_if_the_last_peer_answers(monkeypatch: pytest.MonkeyPatch, printed: str, well: bool) -> None:
    def run_here(_client: Any, container: str, line: str) -> str:
        words = shlex.split(line)
        options = shlex.split(ssh_check.SSH)
        assert container == "backendai-x-main1"
        assert words == [BUSYBOX, "timeout", "10", *options, "sub1", *options, "sub2", BUSYBOX, "hostname"]
        return printed

    monkeypatch.setattr(ssh_check, "run_as_work", run_here)
    assert chain_passes(ENGINE, "backendai-x-main1", ["sub1", "sub2"]) is well

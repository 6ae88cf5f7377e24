"""SSH checks of a container, from the output of its command."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.exec import ExecLimitError
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
while [ "$1" = -o ] || [ "$1" = -F ]; do
    shift 2
done
case $1 in
    sub9) echo "* no" ;;
    *) echo "=$1" ;;
esac
"""


def report_of(monkeypatch: pytest.MonkeyPatch, printed: str, *peers: str) -> LoginReport:
    """Return the report for an output of a container."""
    monkeypatch.setattr(ssh_check, "run_as_work", lambda _client, _container, _line, _seconds: printed)
    return check_logins(ENGINE, "backendai-x-main1", list(peers))


def test_names_and_logins_are_read_from_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(monkeypatch, f"sub1 =sub1\nmain1 =main1\n\n{HOSTS}", "main1", "sub1") == LoginReport(KNOWN, {})


def test_failed_login_is_reported_with_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = f"main1 =main1\nsub1 Host key verification failed.\n\n{HOSTS}"
    assert report_of(monkeypatch, printed, "main1", "sub1").failures == {"sub1": "Host key verification failed."}


def test_a_warning_of_the_peers_image_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    for printed in ("ERROR: ld.so: object ignored. =sub1", "=sub1 ERROR: ld.so: object ignored."):
        assert report_of(monkeypatch, f"sub1 {printed}\n\n{HOSTS}", "sub1").failures == {}
    refused = "ssh: connect to host sub1 port 22: Connection refused"
    assert report_of(monkeypatch, f"sub1 {refused}\n\n{HOSTS}", "sub1").failures == {"sub1": refused}


def test_login_to_another_host_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(monkeypatch, f"sub1 =sub2\n\n{HOSTS}", "sub1").failures == {"sub1": "sub2"}


def test_login_without_output_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(monkeypatch, f"sub1\n\n{HOSTS}", "sub1", "sub2").failures == {
        "sub1": "no answer",
        "sub2": "no answer",
    }


def test_names_are_read_without_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(monkeypatch, f"\n{HOSTS}") == LoginReport(KNOWN, {})


def test_failed_command_fails_all_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(monkeypatch, "OCI runtime exec failed", "main1") == LoginReport({}, {"main1": "no answer"})


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Run commands of containers here; return the folder of the kit's programs, where CLIENT is ssh."""
    kit = tmp_path / "kit"
    install(kit, "ssh", CLIENT)
    install(kit, "busybox", '#!/bin/sh\nexec env PATH=/usr/bin:/bin "$@"\n')
    monkeypatch.setattr(ssh_check, "_SCRIPT", ssh_check._SCRIPT.replace(ssh_check.KIT_PROGRAMS, str(kit)))

    def run_here(_client: Any, _container: str, command: list[str], seconds: int) -> str:
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        words = ["/bin/sh", *command[2:]]
        return subprocess.run(
            words, capture_output=True, text=True, check=True, env=environment, cwd="/", timeout=seconds
        ).stdout

    monkeypatch.setattr(ssh_check, "run_as_work", run_here)
    return kit


def install(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.mark.usefixtures("kit")
def test_warning_of_the_client_is_no_failure() -> None:
    assert check_logins(ENGINE, "backendai-x-main1", ["main1", "sub1"]).failures == {}


@pytest.mark.usefixtures("kit")
def test_command_logs_in_to_all_peers_without_shell_expansion() -> None:
    peers = [f"sub{number}" for number in range(1, 10)]
    report = check_logins(ENGINE, "backendai-x-main1", peers)
    assert report.failures == {"sub9": "* no"}
    assert "localhost" in report.addresses


def test_programs_of_the_container_are_not_run(kit: Path, tmp_path: Path) -> None:
    for name in ("ssh", "timeout", "head", "busybox", "sh"):
        install(tmp_path, name, f"#!/bin/sh\ntouch {tmp_path}/ran\nprintf 'main1 =main1\\n'\n")
    assert check_logins(ENGINE, "c", ["main1", "sub9"]).failures == {"sub9": "* no"}
    assert not (tmp_path / "ran").exists()
    assert os.fspath(kit) in ssh_check._SCRIPT


@pytest.mark.parametrize(
    ("client", "failure"),
    [("while :; do echo y; done", "y y y"), ("trap '' TERM; while :; do sleep 0.1; done", "no answer")],
    ids=["endless", "silent"],
)
def test_login_that_ignores_signals_or_prints_without_end_is_a_failure_in_time(
    kit: Path, monkeypatch: pytest.MonkeyPatch, client: str, failure: str
) -> None:
    limit = f"timeout -s KILL {ssh_check.LOGIN_SECONDS} "
    assert limit in ssh_check._SCRIPT
    monkeypatch.setattr(ssh_check, "_SCRIPT", ssh_check._SCRIPT.replace(limit, "timeout -s KILL 1 "))
    install(kit, "ssh", f"#!/bin/sh\n{client}\n")
    began = time.monotonic()
    report = check_logins(ENGINE, "c", ["main1"])
    assert time.monotonic() - began < 60
    assert report.failures["main1"].startswith(failure)
    assert len(report.failures["main1"]) <= ssh_check.ANSWER_BYTES
    assert "localhost" in report.addresses


@pytest.mark.usefixtures("kit")
def test_huge_hosts_file_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(HOSTS)
    os.truncate(hosts, 1 << 32)
    monkeypatch.setattr(ssh_check, "_SCRIPT", ssh_check._SCRIPT.replace("/etc/hosts", str(hosts)))
    addresses = check_logins(ENGINE, "c", []).addresses
    assert {name: addresses[name] for name in KNOWN} == KNOWN


def test_logins_before_a_time_limit_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_command: Any) -> str:
        raise ExecLimitError("a command in c did not end within 14 seconds", "main1 =main1\n")

    monkeypatch.setattr(ssh_check, "run_as_work", run)
    assert check_logins(ENGINE, "c", ["main1", "sub1"]).failures == {"sub1": "no answer"}
    assert chain_passes(ENGINE, "c", ["main1"]) is False


@pytest.mark.parametrize(("peers", "given", "seconds"), [(1, None, 11), (4, None, 21), (64, None, 171), (64, 30, 30)])
def test_time_limit_is_that_of_all_logins(
    monkeypatch: pytest.MonkeyPatch, peers: int, given: int | None, seconds: int
) -> None:
    def run(_client: Any, _container: str, _command: list[str], limit: int) -> str:
        limits.append(limit)
        return ""

    limits: list[int] = []
    monkeypatch.setattr(ssh_check, "run_as_work", run)
    check_logins(ENGINE, "c", [f"sub{number}" for number in range(peers)], given)
    assert limits == [seconds]


@pytest.mark.parametrize(("printed", "well"), [("sub2\n", True), ("sub1\n", False), ("", False), ("ssh: no\n", False)])
def test_chain_passes_if_the_last_peer_answers(monkeypatch: pytest.MonkeyPatch, printed: str, well: bool) -> None:
    def run_here(_client: Any, container: str, command: list[str], seconds: int) -> str:
        options = shlex.split(ssh_check.SSH)
        assert options[0] == "/opt/backendai/bin/ssh"
        assert (container, seconds) == ("backendai-x-main1", 10)
        assert command == [*options, "sub1", *options, "sub2", BUSYBOX, "hostname"]
        return printed

    monkeypatch.setattr(ssh_check, "run_as_work", run_here)
    assert chain_passes(ENGINE, "backendai-x-main1", ["sub1", "sub2"]) is well

"""SSH checks of a container, from the output of its command."""

from __future__ import annotations

import os
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
HOSTS = "127.0.0.1 localhost # 192.0.2.9 sub9\n\n10.128.0.2\tmain1 main\n10.128.0.3 sub1\n10.128.0.4 sub1\n"
KNOWN = {
    "localhost": ["127.0.0.1"],
    "main1": ["10.128.0.2"],
    "main": ["10.128.0.2"],
    "sub1": ["10.128.0.3", "10.128.0.4"],
}
# A login by what a user types: what it prints is no answer.
CLIENT = """#!/bin/sh
[ "$1" = -c ] && [ "$3" = ssh ] || exit 99
echo noise; echo 'bash: warning: setlocale: cannot change locale' >&2
case $4 in
    sub9) echo '* no' >&2; exit 1 ;;
    sub8) exit 3 ;;
esac
"""


def report_of(monkeypatch: pytest.MonkeyPatch, printed: str, *peers: str) -> LoginReport:
    """Return the report for an output of a container."""
    monkeypatch.setattr(ssh_check, "run_as_work", lambda _client, _container, _line, _seconds: printed)
    return check_logins(ENGINE, "backendai-x-main1", list(peers))


def test_names_and_logins_are_read_from_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(monkeypatch, f"sub1 0\nmain1 0\n\n{HOSTS}", "main1", "sub1") == LoginReport(KNOWN, {})


def test_failed_login_is_reported_with_what_it_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = f"main1 0\nsub1 255 Host key verification failed.\n\n{HOSTS}"
    assert report_of(monkeypatch, printed, "main1", "sub1").failures == {"sub1": "Host key verification failed."}


def test_what_a_shell_prints_beside_a_login_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = f"sub1 0 ERROR: ld.so: object ignored.\nsub2 1\n\n{HOSTS}"
    assert report_of(monkeypatch, printed, "sub1", "sub2").failures == {"sub2": "it ends with exit code 1"}


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
    """Run commands of containers here; return the folder of the kit's programs, where CLIENT runs what a user types."""
    kit = tmp_path / "kit"
    install(kit, "as-user", CLIENT)
    install(kit, "busybox", '#!/bin/sh\nexec env PATH=/usr/bin:/bin "$@"\n')
    monkeypatch.setattr(ssh_check, "_SCRIPT", ssh_check._SCRIPT.replace(ssh_check.KIT_PROGRAMS, str(kit)))

    def run_here(_client: Any, _container: str, command: list[str], seconds: int) -> str:
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        words = ["/bin/sh", *command[2:]]
        return subprocess.run(
            words, capture_output=True, text=True, check=False, env=environment, cwd="/", timeout=seconds
        ).stdout

    monkeypatch.setattr(ssh_check, "run_as_work", run_here)
    return kit


def install(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.mark.usefixtures("kit")
def test_only_the_exit_code_of_a_login_counts() -> None:
    assert check_logins(ENGINE, "c", ["main1", "sub1"]).failures == {}
    failures = check_logins(ENGINE, "c", ["main1", "sub8"]).failures
    assert failures == {"sub8": "bash: warning: setlocale: cannot change locale"}


@pytest.mark.usefixtures("kit")
def test_command_logs_in_to_all_peers_without_shell_expansion() -> None:
    peers = [f"sub{number}" for number in (*range(1, 8), 9)]
    report = check_logins(ENGINE, "backendai-x-main1", peers)
    assert report.failures == {"sub9": "bash: warning: setlocale: cannot change locale * no"}
    assert "localhost" in report.addresses


def test_programs_of_the_container_are_run_by_its_user_only(kit: Path, tmp_path: Path) -> None:
    for name in ("ssh", "timeout", "head", "busybox", "sh", "grep", "cat"):
        install(tmp_path, name, f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    assert set(check_logins(ENGINE, "c", ["main1", "sub9"]).failures) == {"sub9"}
    assert not (tmp_path / "ran").exists()
    assert os.fspath(kit) in ssh_check._SCRIPT


@pytest.mark.parametrize(
    ("client", "failure"),
    [("while :; do echo y >&2; done", ": y y y"), ("trap '' TERM; while :; do sleep 0.1; done", "")],
    ids=["endless", "silent"],
)
def test_login_that_ignores_signals_or_prints_without_end_is_a_failure_in_time(
    kit: Path, monkeypatch: pytest.MonkeyPatch, client: str, failure: str
) -> None:
    shorten_logins(monkeypatch)
    install(kit, "as-user", f"#!/bin/sh\n{client}\n")
    began = time.monotonic()
    report = check_logins(ENGINE, "c", ["main1"])
    assert time.monotonic() - began < 60
    assert report.failures["main1"].startswith(f"no end within 10 seconds{failure}")
    assert len(report.failures["main1"]) <= ssh_check.ERROR_BYTES + 30
    assert "localhost" in report.addresses


def shorten_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    script = ssh_check._SCRIPT
    for seconds, short in ((ssh_check.LOGIN_SECONDS, "1"), (ssh_check.ERROR_SECONDS, "1.5")):
        assert f"timeout -s KILL {seconds} " in script
        script = script.replace(f"timeout -s KILL {seconds} ", f"timeout -s KILL {short} ")
    monkeypatch.setattr(ssh_check, "_SCRIPT", script)


@pytest.mark.parametrize(
    "client",
    [f"echo {'noise ' * 5000} >&2", "sleep 60 > /dev/null & exit 0"],
    ids=["much", "left open"],
)
def test_errors_beside_a_login_are_read_to_their_end_or_for_a_limited_time(
    kit: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    shorten_logins(monkeypatch)
    install(kit, "as-user", f"#!/bin/sh\n{client}\n")
    began = time.monotonic()
    assert check_logins(ENGINE, "c", ["main1"]).failures == {}
    assert time.monotonic() - began < 30


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
        raise ExecLimitError("a command in c did not end within 14 seconds", "main1 0\n")

    monkeypatch.setattr(ssh_check, "run_as_work", run)
    assert check_logins(ENGINE, "c", ["main1", "sub1"]).failures == {"sub1": "no answer"}
    assert chain_passes(ENGINE, "c", ["main1"]) is False


@pytest.mark.parametrize(("peers", "given", "seconds"), [(1, None, 12), (4, None, 23), (64, None, 188), (64, 30, 30)])
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


@pytest.mark.parametrize(("code", "well"), [(0, True), (1, False), (255, False)])
def test_a_chain_of_logins_passes_by_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, kit: Path, code: int, well: bool
) -> None:
    monkeypatch.setattr(ssh_check, "BUSYBOX", str(kit / "busybox"))
    monkeypatch.setattr(ssh_check, "_LOGIN", f"{kit}/as-user -c typed ssh")
    record = kit / "words"
    install(kit, "as-user", f"#!/bin/sh\nprintf '%s|' \"$@\" > {record}\necho passed; echo noise >&2\nexit {code}\n")
    assert chain_passes(ENGINE, "backendai-x-main1", ["sub1", "sub2"]) is well
    words = record.read_text().split("|")
    assert words[:4] == ["-c", "typed", "ssh", "sub1"]
    assert words[4] == f"{ssh_check.SSH} sub2 {kit}/busybox grep -Fqx sub2 /proc/sys/kernel/hostname"

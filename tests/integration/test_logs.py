"""Logs of containers, while they run and after they have exited."""

from __future__ import annotations

import re
import time

import pytest

from tests.integration.containers import wait_for_exit
from tests.integration.internals import OUTPUT
from tests.integration.laboratory import PYTHON, Kernel, agent_state, run_in, run_on
from tests.integration.session_requests import TWO
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.containers

COMMAND = r"""
for number in $(seq 50); do echo line $number; done; sleep 2
printf "$BACKENDAI_CLUSTER_HOST: \173\173 1 + 1 \175\175\n" >&2; sleep 2
printf 'caf\351 \033[31m\n'; head -c 40000 /dev/zero | tr '\0' x; echo; touch /tmp/printed
until [ -e /tmp/end ]; do sleep 0.1; done
exit 3
"""
APPS = [{"name": "served", "port": 8080}, {"name": "linked", "port": 8081}, {"name": "silent", "port": 8082}]
TIMED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ")


def without_times(lines: list[str]) -> list[str]:
    """Return the lines of a log without their timestamps."""
    assert all(TIMED.match(line) for line in lines), lines
    return [TIMED.sub("", line, count=1) for line in lines]


def write_app_logs(main: Kernel) -> None:
    """Write a log of one app in main1, and as that of another a symbolic link to a secret file."""
    folder = "/var/log/backendai"
    line = f"mkdir -p {folder}; seq 200000 > {folder}/served.log; ln -sf /etc/shadow {folder}/linked.log"
    run_in(main, "sh", "-c", f"{line}; rm -f {folder}/silent.log")


def test_logs_are_available_while_the_session_lives_and_afterwards(sessions: Sessions) -> None:
    created = sessions.create(command=COMMAND, apps=APPS, **TWO)
    assert created.code == 0, created.output
    main, sub = created.record["kernels"]
    run_in(main, "timeout", "300", "sh", "-c", "until [ -e /tmp/printed ]; do sleep 0.1; done")
    write_app_logs(main)
    # The engine writes what it has read later.
    wait_until(lambda: "xxx" in run_on(main["agent"], f"docker logs --tail 1 {main['container']}"))
    run_on(sub["agent"], f"docker kill {sub['container']}")
    during = agent_state()
    run = sessions.run("session_logs", name=sessions.name, logs_lines=6)
    assert (run.code, run.changed) == (0, 0), run.output
    assert agent_state() == during
    assert run.record["session"] == {"id": created.record["id"], "name": sessions.name}
    assert (run.record["agents"], run.record["error"]) == ({}, None)
    first, second = run.record["kernels"]
    stdout = [*(f"line {number}" for number in (48, 49, 50)), "caf\ufffd \x1b[31m", "x" * 40000]
    stderr = "main1: {{ 1 + 1 }}"
    # The engine reads both streams, in any order.
    log = without_times(first["log"])
    assert log.count(stderr) == 1
    log.remove(stderr)
    assert log == stdout[-len(log) :]
    assert len(log) >= 3
    assert (first["hostname"], first["agent"], first["status"]) == ("main1", main["agent"], "running")
    assert first["apps"] == {"served": [str(number) for number in range(199995, 200001)]}
    assert first["error"] == "/var/log/backendai/linked.log is not a regular file"
    assert (second["hostname"], second["status"], second["exit_code"]) == ("sub1", "exited", 137)
    for line in (
        f"== main1 on {main['agent']}: running ==",
        r"caf� \x1b[31m",
        "== main1, app served ==",
        "== main1: /var/log/backendai/linked.log is not a regular file ==",
        f"== sub1 on {sub['agent']}: exited with code 137 ==",
    ):
        assert line in run.output
    run_in(main, "touch", "/tmp/end")
    assert wait_for_exit(main) == 3
    ended = sessions.run("session_logs", "--check", id=created.record["id"], kernel="main1", logs_lines=100)
    assert (ended.code, ended.changed, ended.record) == (0, 0, None), ended.output
    assert f"== main1 on {main['agent']}: exited with code 3 ==" in ended.output
    assert "line 50" in ended.output
    assert "== sub1" not in ended.output
    assert sessions.run("schedule_sessions").code == 0
    assert sessions.list_by_name() == {}
    after = sessions.run("session_logs", name=sessions.name)
    assert after.code == 0, after.output
    assert [(kernel["status"], kernel["exit_code"]) for kernel in after.record["kernels"]] == [
        ("exited", 3),
        ("exited", 137),
    ]
    kept = without_times(after.record["kernels"][0]["log"])
    assert kept.count(stderr) == 1
    kept.remove(stderr)
    assert kept[-len(log) :] == log
    assert after.record["kernels"][0]["apps"] == first["apps"] | {"served": list(map(str, range(199901, 200001)))}


def test_sparse_logs_of_apps_neither_delay_an_end_nor_displace_other_logs(sessions: Sessions) -> None:
    sparse = "exec python3 -c 'import os, time; os.ftruncate(1, 255 << 20); time.sleep(1e6)'"
    apps = [{"name": f"a{number}", "port": 9000 + number, "command": sparse} for number in range(32)]
    created = sessions.create(image=PYTHON, apps=apps, stop_grace=1, bootstrap_script="echo printed by main1")
    assert created.code == 0, created.output
    (main,) = created.record["kernels"]
    wait_until(lambda: run_in(main, "sh", "-c", "ls /var/log/backendai/a*.log | wc -l").strip() == "32")
    began = time.monotonic()
    ended = sessions.terminate(id=created.record["id"])
    assert ended.code == 0, ended.output
    assert time.monotonic() - began < 120
    folder = f"{OUTPUT}/{created.record['id']}"
    assert "printed by main1" in run_on(main["agent"], f"zcat {folder}/main1@*@.gz")
    assert int(run_on(main["agent"], f"du -sb {folder}").split()[0]) < 65 << 20

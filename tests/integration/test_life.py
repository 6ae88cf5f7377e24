"""How sessions end: their processes are asked first, and what they printed stays."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.integration.internals import OUTPUT, SESSIONS
from tests.integration.laboratory import in_parallel, run_in, run_on
from tests.integration.reboots import reboot, takes_sessions
from tests.integration.session_requests import SMALL, THREE
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.queue

WORKER = """cat > worker.py <<'END'
import signal, socket, sys, time
def save(*_):
    time.sleep(3)
    print(socket.gethostname(), sys.argv[1], "saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(0.1)
END
"""
BY_SSH = "for host in sub1 sub2; do scp -q worker.py $host: && ssh $host python3 worker.py ssh & done\n"
IN_MAIN = "(cd /tmp; python3 ~/worker.py list; echo) & cd /tmp; python3 ~/worker.py pipe | tee /tmp/out; echo done"


def output_of(sessions: Sessions, session_id: str) -> dict[str, Any]:
    """Return the containers of an ended session, with what they printed, by hostname."""
    run = sessions.run("session_logs", id=session_id)
    assert run.code == 0, run.output
    return {
        kernel["hostname"]: {**kernel, "log": [line.partition(" ")[2] for line in kernel["log"]]}
        for kernel in run.record["kernels"]
    }


def test_every_process_can_save_when_its_session_ends(sessions: Sessions) -> None:
    started = sessions.start(command=WORKER + BY_SSH + IN_MAIN, stop_grace=120, **THREE)
    main = started.kernels[0]
    wait_until(lambda: run_on(main["agent"], f"docker logs {main['container']}").count("ready") == 4)
    ended = sessions.terminate()
    assert (ended.code, ended.record["grace_exceeded"]) == (0, False), ended.output
    outputs = output_of(sessions, started.record["id"])
    saved = sorted(line for line in outputs["main1"]["log"] if line.endswith("saved"))
    assert saved == ["main1 list saved", "main1 pipe saved", "sub1 ssh saved", "sub2 ssh saved"]
    assert [outputs[name]["exit_code"] for name in ("main1", "sub1", "sub2")] == [143, 143, 143]


def test_two_ends_at_once_run_the_stop_command_once_and_kill_after_the_grace(agent1_sessions: Sessions) -> None:
    ignores = "trap '' TERM; echo ready; while :; do sleep 0.2; done"
    stop = "sleep 3; echo asked to stop"
    started = agent1_sessions.start(command=ignores, stop_command=stop, stop_grace=9, **SMALL)
    (main,) = started.kernels
    wait_until(lambda: "ready" in run_on(main["agent"], f"docker logs {main['container']}"))
    ends = in_parallel(*[partial(agent1_sessions.terminate, id=started.record["id"])] * 2)
    assert [end.code for end in ends] == [0, 0], "".join(end.output for end in ends)
    assert any(end.record.get("grace_exceeded") for end in ends)
    output = output_of(agent1_sessions, started.record["id"])["main1"]
    assert (output["log"].count("asked to stop"), output["exit_code"]) == (1, 137)


def test_session_ends_where_its_output_cannot_be_kept_and_says_so(agent1_sessions: Sessions) -> None:
    started = agent1_sessions.start(**SMALL)
    run_on("agent1", f"mkdir -p -m 700 {OUTPUT}; mount -t tmpfs -o size=4k,nr_inodes=1 full {OUTPUT}")
    try:
        ended = agent1_sessions.terminate(name=agent1_sessions.name, force=True)
    finally:
        run_on("agent1", f"umount {OUTPUT}")
    assert ended.code == 0, ended.output
    folder = f"{OUTPUT}/{started.record['id']}"
    assert ended.record["lost_output"] == [f"main1: {folder} cannot be written (No space left on device)"]
    assert f"output was lost: main1: {folder}" in ended.text
    missing = agent1_sessions.run("session_logs", id=started.record["id"])
    assert "no agent has kept its output" in missing.text


def test_what_a_command_left_outlives_prunes_while_another_session_floods_its_pipe(agent1_sessions: Sessions) -> None:
    name, flood = agent1_sessions.name, "while :; do echo > /run/backendai/wake; done"
    agent1_sessions.start(name=f"{name}-flood", command=flood, **SMALL)
    job = "echo the result is 42; until [ -e /tmp/end ]; do sleep 0.1; done; echo last words; exit 7"
    started = agent1_sessions.start(command=job, **SMALL)
    (main,) = started.kernels
    prune = "systemd-run --quiet --collect --unit lab-prune sh -c 'while docker system prune -f; do sleep 1; done'"
    run_on("agent1", prune)
    try:
        run_in(main, "touch", "/tmp/end")
        kept = f"{SESSIONS}/{started.record['id']}/main1/kept"
        assert wait_until(lambda: run_on("agent1", f"ls {kept}", check=False), pause=0.1) < 2
        wait_until(lambda: not run_on("agent1", f"docker ps -aq --filter name={main['container']}"), seconds=20)
        record = agent1_sessions.list_by_name()[name]
        assert (record["status"], record["exit_code"]) == ("TERMINATED", 7)
        before = output_of(agent1_sessions, started.record["id"])["main1"]
        assert agent1_sessions.run("schedule_sessions").code == 0
    finally:
        run_on("agent1", "systemctl stop lab-prune")
    after = output_of(agent1_sessions, started.record["id"])["main1"]
    for output in (before, after):
        assert (output["log"], output["exit_code"]) == (["the result is 42", "last words"], 7)
    ended = agent1_sessions.list_by_name(history=True)[name]
    assert (ended["exit_code"], ended["reason"]) == (7, "the command ended with exit code 7")
    waiting = "systemctl list-units --all --plain --no-legend 'backendai-output@*'"
    assert started.record["id"] not in run_on("agent1", waiting)


def test_an_end_right_before_a_reboot_is_kept_when_the_agent_is_back(sessions: Sessions) -> None:
    job = "until [ -e /tmp/end ]; do sleep 0.1; done; echo last words; exit 7"
    started = sessions.start(command=job, designated_agents=["agent3"], **SMALL)
    (main,) = started.kernels
    # The unit does not come to keep it.
    run_on("agent3", f"systemctl stop 'backendai-output@{started.record['id']}' backendai-reconcile.timer")
    run_in(main, "touch", "/tmp/end")
    wait_until(lambda: sessions.list_by_name()[sessions.name]["exit_code"] == 7)
    wait_until(reboot("agent3"))
    kept = f"{SESSIONS}/{started.record['id']}/main1/kept"
    wait_until(lambda: run_on("agent3", f"ls {kept}", check=False))
    run_on("agent3", f"docker rm -f {main['container']}")
    wait_until(partial(takes_sessions, "agent3"))
    assert sessions.run("schedule_sessions").code == 0
    output = output_of(sessions, started.record["id"])["main1"]
    assert (output["log"], output["exit_code"]) == (["last words"], 7)

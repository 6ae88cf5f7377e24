"""The command as a user runs it, against a stand-in for sudo: results, exit codes, and what goes wrong."""

from __future__ import annotations

import contextlib
import fcntl
import io
import itertools
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backendai_manager import cli
from backendai_manager.user import tables, text, verbs
from backendai_manager.user.readers import await_loss_of_readers
from backendai_manager.user.service import Service
from tests.unit.builders import REPOSITORY
from tests.unit.roles.manager.manager_host import ALICE, IDS, ManagerHost, record

Command = Callable[..., int]


@pytest.fixture
def sudo(tmp_path: Path) -> Path:
    """A program in place of sudo and the manager's part, which answers with ``answers`` and keeps the request."""
    program = tmp_path / "sudo"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\nfolder = Path({str(tmp_path)!r})\n"
        "with (folder / 'requests').open('a') as kept:\n    kept.write(sys.stdin.readline())\n"
        "answers = sorted(folder.glob('answer*'))\n"
        "print(answers[0].read_text(), end='', flush=True)\n"
        "len(answers) > 1 and answers[0].unlink()\n"
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def run(host: ManagerHost, sudo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the command with the answers of the manager's part, one for each request."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    def call(*words: str, answers: list[Any] | None = None) -> int:
        for number, answer in enumerate(answers or [done()]):
            lines = answer if isinstance(answer, list) else [answer]
            (tmp_path / f"answer{number}").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return cli.run(words, host.paths, tmp_path / "home", Service(host.paths, [str(sudo)]))

    return call


def done(message: str = "", status: str = "done", **data: Any) -> dict[str, Any]:
    return {"result": status, "message": message, "data": data}


def requests(tmp_path: Path) -> list[Any]:
    return [json.loads(line) for line in (tmp_path / "requests").read_text().splitlines()]


def test_without_words_a_short_help_is_shown(run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 15
    assert any("backendai create --name" in line for line in lines)


def test_creating_sends_the_spec_the_flags_and_the_keys(
    run: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.yml"
    path.write_text("name: train\nimage: lab/x\nenv: {A: b}\n")
    created = [{"event": "advice", "text": "2 × 1 = 2"}, done("train is RUNNING.", record=record(1, ALICE))]
    assert run("create", str(path), "--size", "2", answers=[created]) == 0
    (request,) = requests(tmp_path)
    options = request["options"]
    assert (options["name"], options["cluster_size"], options["env"]) == ("train", 2, {"A": "b"})
    assert options["authorized_keys"][0].startswith("ssh-ed25519 ")
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == "train is RUNNING."
    assert shown.err.splitlines()[0] == "2 × 1 = 2"


@pytest.mark.parametrize(("status", "code"), [("done", 0), ("failed", 1), ("refused", 2), ("pending", 3)])
def test_the_exit_code_says_how_it_ended(run: Command, status: str, code: int) -> None:
    assert run("create", "--name", "train", answers=[done("a sentence", status)]) == code


def test_a_refusal_is_said_on_standard_error(run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("end", "train", answers=[done("no \x1b[2Jsession", "refused")]) == 2
    assert capsys.readouterr() == ("", "backendai: no [2Jsession\n")


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("YES\n", 0), ("\n", 2), ("no\n", 2), ("", 2)])
def test_on_a_terminal_the_end_of_an_old_session_is_asked_for(
    run: Command,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
) -> None:
    stdin = io.StringIO(answer)
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)
    asks = done("", "pending", since=time.time() - 7500, id=IDS[1])
    assert run("end", "train", answers=[asks, done("train is TERMINATED.")]) == code
    asked = [(request["session"], request["confirmed"]) for request in requests(tmp_path)]
    assert asked == [("train", False), *([(IDS[1], True)] if code == 0 else [])]
    shown = capsys.readouterr()
    assert shown.err.startswith("train is 2h05m old. End it? [y/N] ")
    assert shown.err.endswith("backendai: nothing has been changed.\n" if code else "[y/N] ")


def test_scripts_and_yes_end_without_a_question(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("end", "train") == 0
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert run("end", "train", "--yes") == 0
    assert [request["confirmed"] for request in requests(tmp_path)] == [True, True]


def test_the_list_has_the_columns_that_the_terminal_has_room_for(capsys: pytest.CaptureFixture[str]) -> None:
    console = tables.make_console()
    several = record(1, ALICE, **{**WORKS, "gpu_models": ["NVIDIA H100 80GB HBM3"]})
    seen: list[list[str]] = []
    for width in range(24, 161):
        console.width = width
        tables.session_table(console, [several, record(2, ALICE, "one")], everybody=False)
        lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert (len(lines), max(map(len, lines)) <= width) == (3, True), lines
        seen.append(lines[0].split())
    assert seen[0] == ["NAME", "STATUS", "SIZE"]
    assert seen[80 - 24] == ["NAME", "STATUS", "SIZE", "CPU/GPU", "AGE", "ENDS", "MODE", "AGENTS"]
    assert seen[-1] == ["NAME", "STATUS", "SIZE", "CPU/GPU", "AGE", "ENDS", "MODE", "GPU", "AGENTS"]
    assert all({*fewer} <= {*more} for fewer, more in itertools.pairwise(seen))


def test_a_degraded_session_names_the_containers_that_do_not_run() -> None:
    states = ("running", "unknown", "exited", "exited", "dead")
    kernels = [{"hostname": f"sub{at}", "agent": "agent1", "status": state} for at, state in enumerate(states)]
    broken = record(1, ALICE, status="DEGRADED", kernels=kernels)
    assert next(tables.explain(broken)) == (
        "A part of it does not work: sub1 on agent1 is missing, sub2 on agent1 is exited, sub3 on agent1 is exited, and"
        " 1 more"
    )
    told = "agent1 does not answer"
    assert next(tables.explain({**broken, "error": told})) == f"A part of it does not work: {told}"
    assert next(tables.explain({**broken, "kernels": []})) == "A part of it does not work: a container has failed"


def test_of_a_session_without_a_record_the_status_is_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    tables.session_table(tables.make_console(), [record(1, ALICE, recorded=False)], everybody=True)
    assert "RUNNING?" in capsys.readouterr().out.splitlines()[1].split()


def test_of_several_sessions_one_that_does_not_end_keeps_none_of_the_others(
    run: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = done("there is no session b of yours.", "refused")
    assert run("end", "a", "b", "c", answers=[done("a is TERMINATED."), gone, done("c is CANCELLED.")]) == 1
    shown = capsys.readouterr()
    assert shown.out == "a is TERMINATED.\nc is CANCELLED.\n"
    assert shown.err == "backendai: b is not ended: there is no session b of yours.\n"
    assert run("end", "a", "b", answers=[done("a is TERMINATED."), done("b is TERMINATED.")]) == 0


def test_a_new_session_says_how_it_is_used(run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    apps = [
        {"name": "jupyter", "url": "https://g/"},
        {"name": "tcp", "url": None},
        {"name": "terminal", "url": "https://t/"},
    ]
    access = [{"gateway": "gateway1", "ssh": None, "apps": apps}]
    created = record(1, ALICE, kernels=[{"hostname": "main1", "agent": "agent1", "address": None}])
    assert run("create", "--name", "train", answers=[done("train is RUNNING.", record=created, access=access)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "Log in with backendai ssh train; open jupyter (or terminal) with backendai open train jupyter;"
        " end it with backendai end train."
    )
    assert [*tables.next_steps(created, [])] == ["Log in with backendai ssh train; end it with backendai end train."]


def test_the_folders_of_a_session_are_shown() -> None:
    mounts = [{"target": "/home/work/home", "read_only": False}, {"target": "/data", "read_only": True}]
    shown = [*tables.describe_session(record(1, ALICE, mounts=mounts))]
    assert "  folders         /home/work/home, /data (read only)" in shown


def test_lines_break_between_words_of_a_terminal(
    run: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console = tables.make_console()
    console.width = 40
    monkeypatch.setattr(tables, "make_console", lambda **_how: console)
    link = f"https://g/s/train/jupyter/lab?token={'e' * 60}"
    answer = done(token="e" * 60, links={"apps": [{"name": "jupyter", "url": "https://g/s/train/jupyter/lab"}]})
    assert run("open", "train", answers=[answer]) == 0
    assert capsys.readouterr().out.splitlines()[0] == link
    assert run("why", "train", answers=[done(record=record(1, ALICE, kernels=[], **WAITS))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["It waits, at place 3 of its resource", "  group: no room for 1 of 1 containers"]
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert run("shwo", "train", answers=[]) == 2
    with os.fdopen(master, "rb", buffering=0) as screen, contextlib.suppress(OSError):  # there is no more
        shown = b""
        while chunk := screen.read(1000):
            shown += chunk
    assert shown.decode().splitlines() == ["backendai: 'shwo' is not a verb; did you", "  mean show?"]


def test_the_oldest_session_is_listed_first(capsys: pytest.CaptureFixture[str]) -> None:
    given = [record(1, ALICE, "new", created_at=30.0), record(2, ALICE, "old", created_at=10.0)]
    tables.session_table(tables.make_console(), [*given, record(3, ALICE, "mid", created_at=20.0)], everybody=False)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["NAME", "old", "mid", "new"]


WORKS: dict[str, Any] = {
    "cluster_size": 4,
    "cluster_mode": "multi-node",
    "kernels": [{"hostname": f"sub{number}", "agent": f"agent{number % 2}"} for number in range(4)],
    "resources": {
        "container": {"cpu": 8, "mem": 64 << 30, "cuda.device": 1},
        "total": {"cpu": 32, "mem": 256 << 30, "cuda.device": 4},
    },
    "gpu_models": ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"],
    "created_at": time.mktime((2026, 1, 2, 9, 0, 0, 0, 0, -1)),
    "started_at": time.mktime((2026, 1, 2, 9, 10, 0, 0, 0, -1)),
}
NOW = time.mktime((2026, 1, 2, 11, 15, 0, 0, 0, -1))


def test_show_says_mode_gpus_memory_since_and_until_when(
    run: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text.time, "time", lambda: NOW)
    works = record(1, ALICE, **WORKS, ends_at=NOW + 7500)
    assert run("show", "train", answers=[done(record=works)]) == 0
    assert capsys.readouterr().out.splitlines()[:-4] == [
        "train is RUNNING.",
        "  It has run for 2h05m, since 09:10.",
        "  Its time is up in 2h05m, at 13:20.",
        f"  id              {IDS[1]}",
        "  user            alice",
        "  containers      4, multi-node on 2 agents",
        "  each container  cpu 8, mem 64 GiB, 1 GPU",
        "  in all          cpu 32, mem 256 GiB, 4 GPUs",
        "  GPU             A100-SXM4-80GB, H100 80GB HBM3",
        "  created         09:00, 2h15m ago",
        "  apps            jupyter",
    ]
    for use, told in (
        ({"cpu": 30.5, "gpus": [97, 0]}, "30.5 of 32 cores; GPUs 97 %, 0 %"),
        ({"cpu": 1}, "1 of 32 cores"),
    ):
        assert run("show", "train", answers=[done(record={**works, "use": use})]) == 0
        assert f"  used now        {told}" in capsys.readouterr().out.splitlines()
    assert run("why", "train", answers=[done(record=works)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "train is RUNNING.",
        "It has run for 2h05m, since 09:10.",
        "Its time is up in 2h05m, at 13:20.",
    ]
    assert run("why", "train", "--json", answers=[done(record=works)]) == 0
    assert json.loads(capsys.readouterr().out)["ends_at"] == NOW + 7500


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"cluster_size": 1}, "1"),
        ({"cluster_mode": "single-node", "kernels": WORKS["kernels"][:1]}, "4, single-node on 1 agent"),
        ({"kernels": []}, "4, multi-node"),
    ],
)
def test_containers_are_shown_with_their_mode(changed: dict[str, Any], shown: str) -> None:
    lines = list(tables.describe_session(record(1, ALICE, **{**WORKS, **changed})))
    assert f"  containers      {shown}" in lines


def test_history_has_how_long_sessions_ran_and_their_exit_codes(
    run: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text.time, "time", lambda: NOW)
    ended = record(1, ALICE, status="TERMINATED", exit_code=0, reason="done", **WORKS, ended_at=NOW - 3600)
    waits = record(2, ALICE, "later", status="PENDING", created_at=NOW - 60)
    assert run("list", "--history", answers=[done(sessions=[ended, waits], age=None)]) == 0
    heading, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert heading == ["NAME", "STATUS", "SIZE", "CPU/GPU", "AGE", "RAN", "EXIT", "MODE", "GPU", "AGENTS"]
    assert [row[4:7] for row in rows] == [["2h15m", "1h05m", "0"], ["1m", "-", "-"]]
    assert run("why", "train", answers=[done(record=ended)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "It ran for 1h05m, until 10:15."


def test_following_a_new_session_ends_with_the_code_of_its_command(
    run: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    created = done("train is RUNNING.", record=record(1, ALICE))
    lines = [{"event": "line", "text": "main1: step 1"}, done()]
    ended = done(record=record(1, ALICE, status="TERMINATED", exit_code=3))
    assert run("create", "--name", "train", "--follow", answers=[created, lines, ended]) == 1
    assert [request["verb"] for request in requests(tmp_path)] == ["create", "logs", "show"]
    assert requests(tmp_path)[1]["session"] == IDS[1]
    shown = capsys.readouterr()
    assert "main1: step 1" in shown.out
    assert shown.err.endswith("\nbackendai: its command has ended with 3.\n")


def test_the_list_is_a_table_or_json(run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    resources = {"container": {"cpu": 2}, "total": {"cpu": 4, "mem": 1, "cuda.device": 2}}
    listed = done(sessions=[record(1, ALICE, resources=resources, owner_gone=True)], age=None)
    assert run("list", "--all", answers=[listed]) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["NAME", "USER", "STATUS", "SIZE", "CPU/GPU", "AGE", "ENDS", "MODE", "GPU", "AGENTS"]
    assert row.split()[:6] == ["train", "alice", "(gone)", "RUNNING", "1", "4/2"]
    assert run("list", "--json", answers=[listed]) == 0
    assert json.loads(capsys.readouterr().out)[0]["id"] == IDS[1]


def test_names_are_for_completion(run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    listed = done(sessions=[record(1, ALICE), record(2, ALICE, "other")], age=1.0)
    assert run("list", "--cached", "--names", answers=[listed]) == 0
    assert capsys.readouterr() == ("train\nother\n", "")


COMPLETIONS = REPOSITORY / "roles/manager/files/completion"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("en", ["end"]), ("ssh t", ["train"]), ("list --al", ["--all"]), ("-v wh", ["why"]), ("ssh train s", [])],
)
def test_bash_completes_verbs_flags_and_names(tmp_path: Path, typed: str, offered: list[str]) -> None:
    words = ["backendai", *typed.split()]
    command = tmp_path / "backendai"
    command.write_text("#!/bin/sh\n[ \"$2\" = --help ] && echo '[--all] [--json]' || printf 'train\\nother\\n'\n")
    command.chmod(0o755)
    script = f". {COMPLETIONS}/backendai.bash; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _backendai"
    completed = subprocess.run(
        ["bash", "-c", f"{script}; printf '%s\\n' \"${{COMPREPLY[@]}}\""],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert completed.stdout.split() == offered


def test_completions_know_every_verb() -> None:
    for name in ("backendai.bash", "_backendai"):
        text = (COMPLETIONS / name).read_text()
        assert not [verb for verb in verbs.VERBS if verb not in text]


def test_a_cached_list_says_how_old_it_is(run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--cached", answers=[done(sessions=[], age=61.0)]) == 0
    assert capsys.readouterr().err == "As seen 1m ago, by the timer's last run.\n"
    assert run("list", "--cached", "--history") == 2


def test_forty_columns_are_enough(capsys: pytest.CaptureFixture[str]) -> None:
    console = tables.make_console()
    console.width = 40
    tables.session_table(console, [record(1, ALICE, "a-name-that-is-longer-than-it-should-be-here")], everybody=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[0].split() == ["NAME", "USER", "STATUS", "SIZE"]


EXPLANATIONS = [
    ({"status": "PENDING", "pending": {"reason": "no room", "shortfall": {"cpu": 2}}, "queue_position": 3}, "no room"),
    ({"status": "RUNNING"}, "It runs."),
    (
        {"status": "RUNNING", "closed_storage": [{"agent": "agent1", "description": "NFS of 192.0.2.7"}]},
        "Its containers on agent1 do not reach NFS of 192.0.2.7; operators open it with agent_open_storage.",
    ),
    ({"status": "DEGRADED", "error": "agent1 does not answer"}, "agent1 does not answer"),
    ({"status": "CREATING"}, "It is being created"),
    ({"status": "TERMINATED", "reason": "its time was up", "exit_code": 137}, "its time was up"),
    ({"status": "ERROR", "error": "no such image"}, "no such image"),
]


@pytest.mark.parametrize(("fields", "sentence"), EXPLANATIONS)
def test_why_explains_each_status(
    run: Command, capsys: pytest.CaptureFixture[str], fields: dict[str, Any], sentence: str
) -> None:
    for verb in ("why", "show"):
        assert run(verb, "train", answers=[done(record=record(1, ALICE, **fields))]) == 0
        assert sentence in capsys.readouterr().out
    assert run("why", "train", "--json", answers=[done(record=record(1, ALICE, **fields))]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == fields["status"]


WAITS: dict[str, Any] = {
    "status": "PENDING",
    "queue_position": 3,
    "pending": {
        "reason": "no room for 1 of 1 containers",
        "shortfall": {"cuda.device": 2},
        "outlook": "it would start now with --multi-node",
        "next_end_at": time.mktime((2026, 1, 2, 14, 20, 0, 0, 0, -1)),
    },
}


def test_a_session_that_waits_says_for_what_its_place_and_the_next_end(
    run: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text.time, "time", lambda: time.mktime((2026, 1, 2, 9, 0, 0, 0, 0, -1)))
    waits = record(1, ALICE, kernels=[], **WAITS)
    assert run("create", "--name", "train", "--gpu", "2", answers=[done("train waits: …", record=waits)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "train waits for 2 GPUs: place 3, the next end is at 14:20 by its limit.",
        "  no room for 1 of 1 containers",
        "  It would start now with --multi-node.",
        "It starts by itself; backendai why train says how it stands, backendai end train cancels it.",
    ]
    assert run("why", "train", answers=[done(record=waits)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "train is PENDING.",
        "It waits, at place 3 of its resource group: no room for 1 of 1 containers",
        "It lacks 2 GPUs.",
        "It would start now with --multi-node.",
        "The next end is at 14:20 by its limit.",
    ]


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ({"pending": {"reason": "x", "shortfall": {}}}, "train waits: place 3."),
        (
            {"pending": {"reason": "x", "shortfall": {"cpu": 1, "mem": 1 << 30}}},
            "train waits for cpu 1, mem 1 GiB: place 3.",
        ),
        ({"pending": {"reason": "x"}, "queue_position": None}, "train waits."),
        ({"pending": {"reason": "x", "shortfall": {"cuda.device": 1}}}, "train waits for 1 GPU: place 3."),
    ],
)
def test_what_is_not_known_of_a_session_that_waits_is_left_out(
    run: Command, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], first: str
) -> None:
    waits = record(1, ALICE, kernels=[], **{**WAITS, **changed})
    assert run("create", "--name", "train", answers=[done(record=waits)]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [first, "  x"]


def test_another_day_is_named() -> None:
    assert text.clock(time.mktime((2026, 1, 2, 14, 20, 0, 0, 0, -1))) == "2026-01-02 14:20"


def test_waiting_for_hosts_is_asked_for(run: Command, tmp_path: Path) -> None:
    run("create", "--name", "train")
    run("create", "--name", "train", "--wait-for-hosts")
    assert [request["wait_for_hosts"] for request in requests(tmp_path)] == [False, True]


FREE = {"cpu": 3, "mem": 7 << 29, "cuda.device": 1}
TOTAL = {"cpu": 8, "mem": 16 << 30, "cuda.device": 4}
LIMITS: dict[str, Any] = {
    "images": ["lab/*", "python:*"],
    "folders": [
        {"name": "data", "target": "/home/work/data", "read_only": True},
        {"name": "home", "target": "/home/work/home", "read_only": False},
    ],
    "resource_groups": ["default"],
    "drivers": ["vxlan"],
    "max_lifetime": 86400,
    "max_priority": 10,
    "max_apps": 32,
    "known_apps": ["jupyter", "terminal"],
    "default_apps": ["terminal"],
    "per_gpu": {"cpu": 8, "mem": "64g"},
    "max_sessions": 50,
    "max_waiting": 100,
    "max_containers": 1024,
    "held": {"running": 1, "waiting": 2, "containers": 6, "resources": {"cpu": 4, "mem": (5 << 30) + 7}},
    "free": [{"resource_group": "default", "free": FREE, "total": TOTAL}],
}


@pytest.mark.parametrize("width", [80, 160])
def test_limits_are_shown_line_by_line(
    run: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    console = tables.make_console()
    console.width = width
    monkeypatch.setattr(tables, "make_console", lambda **_how: console)
    assert run("limits", answers=[done(**LIMITS)]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "images           lab/*",
        "                 python:*",
        "folders          data: /home/work/data, read only",
        "                 home: /home/work/home",
        "resource groups  default",
        "network drivers  vxlan",
        "longest life     1d00h",
        "priority         0 to 10",
        "apps             jupyter, terminal, or your own; 32 of a session",
        "                 terminal in each session; others by create --app NAME",
        "with each GPU    cpu 8, mem 64g",
        "sessions         1 of 50 run, 2 of 100 wait",
        "containers       6 of 1024",
        "you hold         cpu 4, mem 5 GiB",
        "free in default  cpu 3 of 8, mem 3.5 of 16 GiB, gpu 1 of 4",
    ]
    assert run("limits", "--json", answers=[done(**LIMITS)]) == 0
    assert json.loads(capsys.readouterr().out) == LIMITS


def test_limits_say_what_there_is_none_of(run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    none = {"folders": [], "max_lifetime": 0, "default_apps": [], "per_gpu": {}, "free": None}
    nothing = {"running": 0, "waiting": 0, "containers": 0, "resources": {}}
    assert run("limits", answers=[done(**{**LIMITS, **none, "held": nothing})]) == 0
    shown = capsys.readouterr().out
    assert [
        line.strip().split("  ")[-1].strip()
        for line in shown.splitlines()
        if line[:4] in ("fold", "long", "with", "you ", "free")
    ] == [
        "none",
        "no bound",
        "as much cpu and mem as agents have for each of their GPUs",
        "nothing",
        "not known: the agents could not be listed",
    ]
    assert ("by create --app NAME" in shown, "in each session" in shown) == (True, False)


def test_logs_are_shown_although_one_agent_does_not_answer(run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    kernels = [
        {
            "hostname": "main1",
            "agent": "agent1",
            "status": "running",
            "exit_code": None,
            "log": ["a\x1b[2J"],
            "apps": {"x": ["y"]},
        },
        {"hostname": "sub1", "agent": "agent2", "status": "unknown", "log": [], "error": "agent2 is unavailable"},
    ]
    answer = done("not all logs could be read", "failed", logs={"kernels": kernels})
    assert run("logs", "train", answers=[answer]) == 1
    shown = capsys.readouterr()
    assert "a\\x1b[2J" in shown.out
    assert "== main1, app x ==" in shown.out
    assert shown.err == "backendai: not all logs could be read\n"


APPS = [{"name": "jupyter", "url": "https://g/s/train/jupyter/lab#x"}, {"name": "tcp", "url": None}]


@pytest.mark.parametrize(
    ("words", "apps", "code", "text"),
    [
        (["jupyter"], APPS, 0, "https://g/s/train/jupyter/lab?token=eyJ#x\n"),
        ([], APPS[:1], 0, "https://g/s/train/jupyter/lab?token=eyJ#x\n"),
        ([], APPS, 2, "backendai: name an app; its apps are jupyter, tcp.\n"),
        (
            ["x"],
            APPS,
            2,
            "backendai: train has no app x; its apps are jupyter, tcp; a session gets its apps when it is",
        ),
        ([], [], 2, "backendai: name an app; it was created without apps; a session gets its apps when"),
        (["tcp"], APPS, 1, "backendai: tcp has no link: it does not use HTTP"),
        (["jupyter", "--seconds", "5"], APPS, 2, "backendai: --seconds takes 60 to"),
    ],
)
def test_a_link_has_a_fresh_token(
    run: Command, capsys: pytest.CaptureFixture[str], words: list[str], apps: list[Any], code: int, text: str
) -> None:
    answer = done(token="eyJ", links={"apps": apps}, expires_at=5)
    assert run("open", "train", *words, answers=[answer]) == code
    shown = capsys.readouterr()
    assert (shown.err if code else shown.out).startswith(text)


GROUP = {
    "resource_group": "default",
    "largest_sessions": [
        {"resources": {"cpu": 1, "mem": 1 << 30}, "containers": 6, "on_one_agent": 4},
        {"resources": {"cuda.device": 1}, "containers": 0, "on_one_agent": 0},
    ],
}


def test_what_is_free_is_a_table(run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    agent = {
        "name": "agent1",
        "resource_group": "default",
        "status": "ready",
        "total": {"cpu": 8, "mem": 64 << 30, "cuda.device": 8},
        "free": {"cpu": 6, "mem": 12 << 30, "cuda.device": 3},
        "gpus": [{"slot": "cuda.device", "model": "NVIDIA H100", "memory": 1 << 30, "count": 8}],
    }
    data = {"agents": [agent, {"name": "agent2", "problem": "it does not answer"}], "groups": [GROUP]}
    assert run("agents", answers=[done(agents=data)]) == 0
    out = capsys.readouterr().out
    heading, row = out.splitlines()[:2]
    assert heading.split()[3:] == ["FREE", "CPU", "FREE", "MEM", "FREE", "GPU"]
    assert row.split()[3:] == ["6/8", "12/64", "GiB", "3/8"]
    assert "agent1: 8 × NVIDIA H100" in out
    assert "default: the largest session that would start now is 6 × (cpu 1, mem 1 GiB), or 4 on one agent" in out
    assert "default: no container with 1 GPU would start now" in out
    assert "agent2: it does not answer" in out


def test_a_schema_lets_editors_complete_a_spec(run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema") == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["properties"]["cluster_mode"]["enum"] == ["single-node", "multi-node"]
    assert schema["properties"]["mounts"]["items"] == {"type": "string"}
    assert {"uid", "user", "queue_path"}.isdisjoint(schema["properties"])
    assert "C(" not in json.dumps(schema)


def test_the_template_is_a_spec(run: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("template") == 0
    path = tmp_path / "spec.yml"
    path.write_text(capsys.readouterr().out)
    assert run("create", str(path)) == 0
    assert requests(tmp_path)[0]["options"]["name"] == "train-llm"


@pytest.mark.parametrize(
    ("says", "code", "sentence"),
    [
        ("sudo: a password is required", 2, "sudo does not let you: ask an operator to add you to the group of users."),
        ("alice is not allowed to execute", 2, "sudo does not let you"),
        (
            "sudo: Account expired or PAM config lacks an account section",
            2,
            "your account has expired, is locked, or is not valid: ask an operator.",
        ),
        ("sudo: account validation failure\nsudo: a password is required", 2, "your account has expired, is locked,"),
        ("sudo: PAM account management error: locked", 2, "your account has expired, is locked, or is not valid"),
        ("sudo: unknown user backendai", 2, "this host has no account of the manager"),
        ("sudo: serve: command not found", 2, "the manager's part is not installed"),
        ("Segmentation fault", 1, "the manager's part has ended with 9 and without a result: Segmentation fault."),
        ("", 1, "the manager's part has ended with 9 and without a result."),
    ],
)
def test_what_sudo_says_is_a_sentence(
    run: Command, sudo: Path, capsys: pytest.CaptureFixture[str], says: str, code: int, sentence: str
) -> None:
    sudo.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 9\n")
    assert run("list") == code
    assert capsys.readouterr().err.startswith(f"backendai: {sentence}")


def test_an_answer_that_is_none_is_a_sentence(run: Command, sudo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sudo.write_text("#!/bin/sh\necho Traceback\n")
    assert run("list") == 1
    assert "has sent something that is no answer" in capsys.readouterr().err


def test_a_request_that_is_too_large_is_not_sent(run: Command, tmp_path: Path) -> None:
    path = tmp_path / "spec.yml"
    path.write_text(f"name: train\ncommand: '{'é' * 600_000}'\n")
    assert run("create", str(path)) == 2
    path.write_text('name: train\ncommand: "\\ud800"\n')
    assert run("create", str(path)) == 2
    assert not (tmp_path / "requests").exists()


WAITING = """#!{python}
import json, pathlib, sys, time
sys.stdin.readline()
print(json.dumps({{"event": "waiting", "text": "begun"}}), flush=True)
sys.stdin.read()
pathlib.Path(__file__).with_name("cancelled").touch()
time.sleep({seconds})
print(json.dumps({{"result": "failed", "message": "cancelled; nothing is left.", "data": {{}}}}), flush=True)
"""
# Where tests run in the background, the signal is ignored.
PROGRAM = """
import signal
import sys
from pathlib import Path
from backendai_manager.cli import run
from backendai_manager.paths import Paths
from backendai_manager.user.service import Service
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(run(["end", "train"], Paths(), Path.home(), Service(Paths(), [sys.argv[1]])))
"""


def start(sudo: Path, seconds: float, stdout: int | None = None) -> subprocess.Popen[str]:
    """Start the command in its own process, with a manager's part that takes so long to be cancelled."""
    sudo.write_text(WAITING.format(python=sys.executable, seconds=seconds))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "roles/manager/files")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(sudo)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stderr
    assert process.stderr.readline() == "begun\n"
    return process


def test_ctrl_c_cancels_and_waits_for_the_result(sudo: Path) -> None:
    process = start(sudo, 0)
    process.send_signal(signal.SIGINT)
    _out, errors = process.communicate(timeout=20)
    assert errors.splitlines()[-1] == "backendai: cancelled; nothing is left."
    assert process.returncode == 1


def test_a_second_ctrl_c_does_not_wait(sudo: Path) -> None:
    process = start(sudo, 30)
    process.send_signal(signal.SIGINT)
    assert process.stderr
    assert process.stderr.readline().startswith("Stopping")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _out, errors = process.communicate(timeout=20)
    assert errors == "backendai: cancelled; the manager goes on to remove what has begun.\n"
    assert time.monotonic() - began < 10


def test_a_lost_connection_without_a_terminal_cancels(sudo: Path) -> None:
    process = start(sudo, 0, subprocess.PIPE)
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    # As with `backendai … | head`: somebody still reads.
    time.sleep(0.5)
    assert not sudo.with_name("cancelled").exists()
    process.stderr.close()
    process.wait(20)
    assert sudo.with_name("cancelled").exists()


def test_output_that_goes_to_files_only_has_no_reader_to_lose(tmp_path: Path) -> None:
    source, target = os.pipe()
    with (tmp_path / "out").open("w") as kept, open(source, "rb"), open(target, "wb"):
        assert not await_loss_of_readers((kept.fileno(),), source)


def test_the_end_of_a_command_ends_the_watch_for_its_readers() -> None:
    (source, target), (reader, output) = os.pipe(), os.pipe()
    os.close(target)
    with open(source, "rb"), open(reader, "rb"), open(output, "wb"):
        assert not await_loss_of_readers((output,), source)


def test_output_that_was_not_read_ends_the_command_with_a_sentence(
    host: ManagerHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "sudo"
    program.write_text('#!/bin/sh\nread -r _line\nprintf \'{"event": "line", "text": "one"}\\n{"event": \'\nexit 75\n')
    program.chmod(0o755)
    code = cli.run(["logs", "train", "-f"], host.paths, tmp_path / "home", Service(host.paths, [str(program)]))
    shown = capsys.readouterr()
    assert (code, shown.out) == (1, "one\n")
    assert shown.err == (
        "backendai: what this command prints was not read for 60 seconds, so the manager has cancelled it, as Ctrl-C"
        " does.\n"
    )

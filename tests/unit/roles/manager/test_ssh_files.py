"""Logging in without ceremony: the files of ssh after each verb, one line of the user's own, and connections."""

from __future__ import annotations

import io
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backendai_manager import cli
from backendai_manager.paths import Paths
from backendai_manager.protocol import Result
from backendai_manager.user import ssh_config, ssh_files, verbs
from backendai_manager.user.service import Service
from backendai_manager.user.ssh_config import SshAccess, parse_config
from backendai_manager.user.ssh_files import SshFiles, has_host_key
from tests.unit.builders import REPOSITORY
from tests.unit.roles.manager.manager_host import ALICE, IDS, NOBODYS, record

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
OTHER_KEY = KEY.replace("4f", "5g")
LINK = {"gateway": "gateway1", "ssh": {"host": "gw", "port": 31000}, "apps": []}
INCLUDE = "Include backendai_config\n"


class Answers(Service):
    """A manager's part that gives one answer after another, and keeps what it was asked."""

    def __init__(self, *results: Result) -> None:
        self.results = list(results)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def ask(self, verb: str, fields: Mapping[str, Any], *_events: object) -> Result:
        self.asked.append((verb, fields))
        self.meanwhile()
        return self.results.pop(0)


def created(number: int = 1, name: str = "train", link: Any = None, **fields: Any) -> Result:
    """Return the answer to create: a session that runs, and how the gateway leads to it."""
    made = record(number, ALICE, name, **{"host_keys": {"main1": KEY}, **fields})
    access = [link or LINK] if made["kernels"] else []
    return Result("done", f"{name} is {made['status']}.", {"record": made, "access": access})


def waiting(number: int = 1) -> Result:
    """Return the answer to create for a session that waits and has no address."""
    return created(number, status="PENDING", host_keys={}, kernels=[])


def addressed(port: int = 31000, host: str = "gw", key: str = KEY, **fields: Any) -> Result:
    """Return the answer to access."""
    known = record(1, ALICE, **{"host_keys": {"main1": key}, "ssh": {"host": host, "port": port}, **fields})
    return Result("done", "", {"record": known})


ENDED = Result("failed", "train is TERMINATED.", {"record": {"id": IDS[1], "status": "TERMINATED"}})
WAITS = Result(
    "failed",
    "train is PENDING; it can be entered once it runs.",
    {"record": {"id": IDS[1], "status": "PENDING"}},
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user, without an agent for keys."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def run(home: Path, line: str, *results: Result | Answers) -> int:
    """Run the command with the answers of the manager's part."""
    given = [result for result in results if isinstance(result, Result)]
    service = next((result for result in results if isinstance(result, Answers)), Answers(*given))
    return cli.run(line.split(), Paths(), home, service)


def create(home: Path, answer: Result | None = None) -> None:
    assert run(home, "create --name train", answer or created()) == 0


def known(home: Path) -> dict[str, int]:
    """Return the ids of the sessions that ssh knows, with their ports."""
    return {access.id: access.port for access in SshFiles(home / ".ssh").sessions()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a user at a terminal type an answer."""

    def type_in(answer: str) -> None:
        stdin = io.StringIO(answer)
        monkeypatch.setattr(stdin, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", stdin)

    return type_in


def test_after_create_ssh_knows_the_session_by_its_name(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(home)
    folder = home / ".ssh"
    assert known(home) == {IDS[1]: 31000}
    assert (folder / "backendai_known_hosts").read_text() == f"backendai-{IDS[1]} {KEY}\n"
    assert (folder / "config").read_text() == INCLUDE
    files = ("config", "backendai_config", "backendai_known_hosts")
    assert (mode(folder), {mode(folder / name) for name in files}) == (0o700, {0o600})
    assert capsys.readouterr().err == (
        f"{folder}/config is new, with the line Include backendai_config: ssh, rsync and editors know sessions by their"
        " names.\n"
    )
    create(home)
    assert (capsys.readouterr().err, (folder / "config").read_text()) == ("", INCLUDE)
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def test_a_session_that_waits_is_known_without_its_address(home: Path) -> None:
    create(home, waiting())
    assert known(home) == {IDS[1]: 0}
    assert SshFiles(home / ".ssh").find("train") is None
    assert (home / ".ssh/backendai_known_hosts").read_text() == ""
    create(home)
    assert known(home) == {IDS[1]: 31000}
    # Another session of that name.
    create(home, created(2))
    assert known(home) == {IDS[2]: 31000}
    assert (home / ".ssh/backendai_known_hosts").read_text() == f"backendai-{IDS[2]} {KEY}\n"


@pytest.mark.parametrize(
    "answer",
    [Result("done", "train can be created; nothing has been changed."), created(status="TERMINATED")],
)
def test_what_does_not_run_or_wait_is_not_known(home: Path, answer: Result) -> None:
    create(home, answer)
    assert known(home) == {}


@pytest.mark.parametrize("line", ["end train", "show train", "why train"])
def test_a_session_that_has_ended_is_not_known_any_more(home: Path, line: str) -> None:
    create(home)
    create(home, created(2, "other"))
    lives = Result("done", "", {"record": record(1, ALICE, status="DEGRADED")})
    run(home, line, lives)
    assert set(known(home)) == {IDS[1], IDS[2]}
    ended = Result("done", "", {"record": record(1, ALICE, status="TERMINATED")})
    assert run(home, line, ended) == 0
    assert set(known(home)) == {IDS[2]}
    assert (home / ".ssh/backendai_known_hosts").read_text() == f"backendai-{IDS[2]} {KEY}\n"


def test_a_list_removes_what_is_gone_and_keeps_what_has_begun_meanwhile(home: Path) -> None:
    create(home)
    create(home, created(2, "other"))
    listed = Result("done", "", {"sessions": [record(2, ALICE, "other")], "age": None})
    assert run(home, "list --cached", listed) == 0
    assert set(known(home)) == {IDS[1], IDS[2]}
    answers = Answers(listed)
    answers.meanwhile = lambda: create(home, created(3, "third"))
    assert run(home, "list", answers) == 0
    assert set(known(home)) == {IDS[2], IDS[3]}
    with_history = [record(2, ALICE, "other", "CANCELLED"), record(3, ALICE, "third")]
    run(home, "list --history", Result("done", "", {"sessions": with_history, "age": None}))
    assert set(known(home)) == {IDS[3]}


def test_the_sessions_of_another_manager_with_this_home_are_kept(home: Path) -> None:
    create(home)
    path = home / ".ssh/backendai_config"
    path.write_text(path.read_text().replace(f'"{socket.gethostname()}"', '"elsewhere"'))
    create(home, created(2, "other"))
    assert run(home, "list", Result("done", "", {"sessions": [], "age": None})) == 0
    assert set(known(home)) == {IDS[1]}
    assert '"manager": "elsewhere"' in path.read_text()


def test_no_command_fails_because_of_the_files_of_ssh(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".ssh/backendai_config").mkdir(parents=True)
    create(home)
    assert capsys.readouterr().err == (
        f"ssh may not know your sessions by their names: {home}/.ssh/backendai_config cannot be read: Is a directory.\n"
    )
    assert [path for path in (home / ".ssh").iterdir() if path.name.startswith(".backendai")] == []


def test_a_file_that_cannot_be_read_is_not_replaced(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create(home)
    path = home / ".ssh/backendai_config"
    before = path.read_text()
    with monkeypatch.context() as patched:
        patched.setattr(ssh_files, "MAX_FILE", 10)
        create(home, created(2, "other"))
        assert run(home, "list", Result("done", "", {"sessions": [], "age": None})) == 0
        assert run(home, "ssh train") == 1
    sentence = f"{path} cannot be read: it is larger than 10 bytes.\n"
    said = [line for line in capsys.readouterr().err.splitlines(keepends=True) if sentence in line]
    assert said[0] == f"ssh may not know your sessions by their names: {sentence}"
    assert (path.read_text(), said[-1]) == (before, f"backendai: {sentence}")


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_what_cannot_be_read_for_the_line_is_named(home: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    path = home / ".ssh/config"
    path.parent.mkdir()
    make_own(path, kind)
    create(home)
    assert f"ssh may not know your sessions by their names: {path} cannot be read: " in capsys.readouterr().err


def test_a_file_that_could_not_be_written_is_not_included(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / 'my "home'
    home.mkdir()
    create(home)
    assert "cannot be used in a configuration of ssh" in capsys.readouterr().err
    assert not (home / ".ssh/config").exists()


def test_what_a_host_sends_becomes_no_line_of_the_files(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = {**LINK, "ssh": {"host": "gw\n  ProxyCommand touch /evil", "port": 1}}
    create(home, created(link=evil))
    assert "the gateway has sent an address or a host key of train that is not valid." in capsys.readouterr().err
    assert known(home) == {}


@given(st.text(), st.sampled_from(["[]", "1", '{"id": 5}', '{"name": "x", "id": "y", "host": {}}', "{"]))
def test_lines_that_are_no_sessions_are_none(text: str, state: str) -> None:
    assert parse_config(f"{text}\n# session {state}\n# session {text}") == []


def test_what_is_written_is_read_again() -> None:
    sessions = [
        SshAccess(IDS[1], "train", "2001:db8::1", 31000, {"main1": KEY, "sub1": KEY}),
        SshAccess(IDS[2], "other", "", 0, {}),
    ]
    assert parse_config(ssh_config.render_config(sessions, Path("/x"))) == sessions


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Include backendai_config", True),
        ("  include=~/.ssh/backendai_config", True),
        ('INCLUDE other "/home/alice/.ssh/backendai_config"', True),
        ("# Include backendai_config", False),
        ("Include backendai_config.old", False),
        ("Include ~/.ssh/*_config", True),
        ("Include config.d/*", False),
        ("Host include backendai_config", False),
        ("HOST y\nInclude backendai_config", False),
        ("Match all\n  Include backendai_config", False),
    ],
)
def test_the_line_is_found_in_any_spelling(
    home: Path, capsys: pytest.CaptureFixture[str], line: str, found: bool
) -> None:
    path = home / ".ssh/config"
    path.parent.mkdir()
    path.write_text(f"\n{line}\nHost x\n")
    create(home)
    said = capsys.readouterr().err
    assert path.read_text() == f"\n{line}\nHost x\n"
    assert said == (
        "" if found else f"Begin {path} with Include backendai_config, so that ssh knows sessions by their names.\n"
    )


def test_at_a_terminal_the_line_is_asked_for_and_a_no_is_remembered(
    home: Path, capsys: pytest.CaptureFixture[str], at_terminal: Callable[[str], None]
) -> None:
    path = home / ".ssh/config"
    path.parent.mkdir()
    path.write_bytes(b"Host x\n\xff")
    path.chmod(0o640)
    at_terminal("\n")
    create(home)
    assert capsys.readouterr().err.endswith("so that ssh knows sessions by their names? [y/N] ")
    at_terminal("y\n")
    create(home)
    run(home, "end train", Result("done", "", {"record": record(1, ALICE, status="TERMINATED")}))
    create(home)
    assert (capsys.readouterr().err, path.read_bytes()) == ("", b"Host x\n\xff")
    (home / ".ssh/backendai_config").unlink()
    at_terminal("y\n")
    create(home)
    assert (path.read_bytes(), mode(path)) == (INCLUDE.encode() + b"Host x\n\xff", 0o640)


def interrupt() -> str:
    raise KeyboardInterrupt


def test_ctrl_c_at_the_question_is_not_now(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, at_terminal: Callable[[str], None]
) -> None:
    path = home / ".ssh/config"
    path.parent.mkdir()
    path.write_text("Host x\n")
    at_terminal("")
    monkeypatch.setattr(sys.stdin, "readline", interrupt)
    create(home)
    assert capsys.readouterr().err.endswith(" [y/N] \n")
    at_terminal("y\n")
    create(home)
    assert path.read_text() == f"{INCLUDE}Host x\n"


def test_who_follows_is_asked_at_the_end(
    home: Path, capsys: pytest.CaptureFixture[str], at_terminal: Callable[[str], None]
) -> None:
    path = home / ".ssh/config"
    path.parent.mkdir()
    path.write_text("Host x\n")
    at_terminal("y\n")
    said: list[str] = []
    answers = Answers(created(), Result("done"), Result("done", "", {"record": record(1, ALICE, exit_code=0)}))
    answers.meanwhile = lambda: said.append(capsys.readouterr().err)
    assert run(home, "create --name train --follow", answers) == 0
    assert (said, [verb for verb, _fields in answers.asked]) == ([""] * 3, ["create", "logs", "show"])
    assert capsys.readouterr().err.endswith(" [y/N] ")
    assert path.read_text() == f"{INCLUDE}Host x\n"


def make_own(path: Path, kind: str) -> None:
    """Make the user's own configuration something that is not to be replaced."""
    target = path.with_name("elsewhere")
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "dangling link":
        path.symlink_to(target)
    else:
        (target if kind == "link" else path).write_text("Host x\n")
        if kind == "link":
            path.symlink_to(target)
        if kind == "hard link":
            target.hardlink_to(path)
        if kind == "read-only":
            path.chmod(0o400)


@pytest.mark.parametrize("kind", ["dangling link", "link", "hard link", "read-only", "another user's"])
def test_what_is_not_to_be_replaced_is_left_and_the_line_is_said(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    at_terminal: Callable[[str], None],
    kind: str,
) -> None:
    path = home / ".ssh/config"
    path.parent.mkdir()
    make_own(path, kind)
    if kind == "another user's":
        monkeypatch.setattr(ssh_files.os, "geteuid", lambda: NOBODYS)
    before = path.lstat()[:7]
    sentence = f"Begin {path} with Include backendai_config, so that ssh knows sessions by their names.\n"
    for _time in range(2):
        create(home)
        assert capsys.readouterr().err == sentence
    at_terminal("y\n")
    create(home)
    assert capsys.readouterr().err == sentence
    # Who was at a terminal has read it.
    create(home)
    assert capsys.readouterr().err == ""
    assert path.lstat()[:7] == before
    assert not path.with_name("elsewhere").exists() or path.read_text() == "Host x\n"


def test_what_replaces_a_file_is_on_the_disk_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, int]] = []

    def note(handle: int) -> None:
        status = os.fstat(handle)
        synced.append((status.st_ino, status.st_size))

    monkeypatch.setattr(ssh_files.os, "fsync", note)
    create(home)
    names = ("backendai_known_hosts", "backendai_config", "config")
    files = [(home / ".ssh" / name).stat() for name in names]
    assert synced == [(status.st_ino, status.st_size) for status in files]


def test_commands_at_the_same_moment_keep_each_others_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    render = ssh_config.render_config

    def render_slowly(*arguments: Any, **options: Any) -> str:
        time.sleep(0.2)
        return render(*arguments, **options)

    monkeypatch.setattr(ssh_config, "render_config", render_slowly)
    others = [SshAccess(IDS[number], f"other{number}", "gw", 1, {"main1": KEY}) for number in range(3)]
    threads = [threading.Thread(target=SshFiles(tmp_path).change, args=[[other]]) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.id for each in SshFiles(tmp_path).sessions()) == IDS[:3]
    assert len((tmp_path / "backendai_known_hosts").read_text().splitlines()) == 3


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that this process would have become."""
    commands: list[list[str]] = []
    monkeypatch.setattr(verbs.os, "execvp", lambda _name, words: commands.append(words))
    return commands


def log_in(home: Path, line: str, *results: Result) -> list[str]:
    """Return the verbs that the manager's part was asked for a login."""
    answers = Answers(*results)
    run(home, line, answers)
    return [verb for verb, _fields in answers.asked]


@pytest.mark.usefixtures("gateway")
def test_a_login_asks_for_an_address_only_if_none_is_known(home: Path, became: list[list[str]]) -> None:
    create(home, waiting())
    assert log_in(home, "ssh train -- ls -l", addressed()) == ["access"]
    assert log_in(home, "ssh train") == []
    assert log_in(home, f"ssh {IDS[1]} main1") == []
    config = str(home / ".ssh/backendai_config")
    assert became == [
        ["ssh", "-F", config, "--", "train", "ls -l"],
        ["ssh", "-F", config, "--", "train"],
        ["ssh", "-F", config, "--", "train"],
    ]
    assert known(home) == {IDS[1]: 31000}


def test_without_ssh_a_sentence_says_so(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create(home)
    capsys.readouterr()
    monkeypatch.setenv("PATH", str(home))
    assert run(home, "ssh train") == 1
    assert capsys.readouterr().err == (
        "backendai: ssh is not installed on this host: ask an operator for openssh-client.\n"
    )


def test_a_login_to_a_namesake_of_an_ended_session_asks_by_the_name(
    home: Path, tmp_path: Path, gateway: socket.socket, became: list[list[str]]
) -> None:
    create(home)
    found(tmp_path, OTHER_KEY)
    with gateway:
        assert log_in(home, "ssh train", addressed(key=OTHER_KEY, id=IDS[2])) == ["access"]
    assert (set(known(home)), became[0][3:]) == ({IDS[2]}, ["--", "train"])


@pytest.mark.usefixtures("gateway")
def test_the_session_of_somebody_else_is_known_by_its_id_alone(home: Path, became: list[list[str]]) -> None:
    for line in ("ssh agent1", f"ssh {IDS[1]}"):
        (home / ".ssh/backendai_config").unlink(missing_ok=True)
        assert log_in(home, line, addressed(name="agent1", own=False)) == ["access"]
        assert became.pop()[3:] == ["--", IDS[1]]
    assert SshFiles(home / ".ssh").find("agent1") is None
    assert log_in(home, f"ssh {IDS[1]}") == []
    config = (home / ".ssh/backendai_config").read_text()
    assert [line for line in config.splitlines() if line.startswith("Host ")] == [f"Host {IDS[1]}"]
    assert config.count("  ForwardAgent no\n") == 1
    create(home)
    assert "ForwardAgent" not in (home / ".ssh/backendai_config").read_text()


@pytest.mark.parametrize(("answer", "kept"), [(WAITS, True), (ENDED, False)])
def test_a_session_that_cannot_be_entered_is_one_sentence(
    home: Path, became: list[list[str]], capsys: pytest.CaptureFixture[str], answer: Result, kept: bool
) -> None:
    create(home, waiting())
    capsys.readouterr()
    assert log_in(home, "ssh train", answer) == ["access"]
    assert (capsys.readouterr().err, became) == (f"backendai: {answer.message}\n", [])
    assert (IDS[1] in known(home)) == kept


def test_the_configuration_is_written_for_all_sessions_at_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(home)
    capsys.readouterr()
    bad = record(3, ALICE, "bad", host_keys={"main1": "x\n"})
    listed = [record(1, ALICE), record(2, ALICE, "second", "PENDING", host_keys={}), bad]
    answer = Result("done", "", {"sessions": listed, "age": None})
    assert run(home, "ssh-config", answer) == 1
    assert known(home) == {IDS[1]: 31000, IDS[2]: 0}
    shown = capsys.readouterr()
    assert shown.out == f"{home}/.ssh/backendai_config has train, second.\n"
    assert "a host key of bad that is not valid" in shown.err


def test_a_laptop_gets_the_addresses_of_what_runs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = [record(1, ALICE), record(2, ALICE, "second", "PENDING"), record(3, ALICE, "third", "DEGRADED")]
    answer = Result("done", "", {"sessions": listed, "age": None})
    unreachable = addressed(id=IDS[3], name="third", ssh=None)
    assert run(home, "ssh-config --for-laptop --key ~/.ssh/id", answer, addressed(), unreachable) == 1
    shown = capsys.readouterr()
    assert "IdentityFile ~/.ssh/id\n" in shown.out
    assert "Host train\n  HostName gw\n  Port 31000\n" in shown.out
    assert "third is not reachable through a gateway" in shown.err
    assert run(home, "ssh-config --for-laptop") == 2
    assert run(home, "ssh-config --key x") == 2


def test_an_editor_gets_a_link_and_its_computer_two_lines(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs.socket, "gethostname", lambda: "manager1")
    monkeypatch.setattr(verbs.getpass, "getuser", lambda: "alice")
    assert run(home, "code train", addressed()) == 0
    shown = capsys.readouterr()
    assert shown.out == "vscode://vscode-remote/ssh-remote+work@gw:31000/home/work\n"
    assert "again after its container has started anew; for good: create --key laptop.pub" in shown.err
    admit, trust = [line.strip() for line in shown.err.splitlines()[1:]]
    assert admit == (
        "ssh alice@manager1 \"backendai ssh train -- 'cat >> .ssh/authorized_keys'\" < ~/.ssh/id_ed25519.pub"
    )
    assert trust == f"echo '[gw]:31000 {KEY}' >> ~/.ssh/known_hosts"


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """A port of a gateway, and an ssh-keyscan that finds there the key in a file."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "ssh-keyscan").write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/scans\ncat {tmp_path}/key\n')
    (tools / "ssh-keyscan").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    found(tmp_path, KEY)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)
    return listener


def found(tmp_path: Path, key: str) -> None:
    (tmp_path / "key").write_text(f"[gw]:31000 {key}\n")


def test_the_host_key_says_whether_a_session_is_at_its_address(tmp_path: Path, gateway: socket.socket) -> None:
    access = SshAccess(IDS[1], "train", "gw", 31000, {"main1": KEY})
    with gateway:
        assert has_host_key(access)
        for other in (OTHER_KEY, KEY[:-1], ""):
            found(tmp_path, other)
            assert not has_host_key(access)
    assert set((tmp_path / "scans").read_text().splitlines()) == {"-T 5 -t ed25519 -p 31000 gw"}


@pytest.fixture
def taker(monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """The side of ssh of the socket that is the standard output of what it starts."""
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    ours_status = os.fstat(ours.fileno())
    descriptor = os.dup
    monkeypatch.setattr(verbs.os, "dup", lambda number: theirs.detach() if number == 1 else descriptor(number))
    status = os.fstat
    monkeypatch.setattr(verbs.os, "fstat", lambda number: ours_status if number == 1 else status(number))
    return ours


def through(taker: socket.socket, gateway: socket.socket) -> bool:
    """Return whether ssh has been given a connection to the gateway, which blocks as it expects."""
    _data, (descriptor,), _flags, _address = socket.recv_fds(taker, 1, 1)
    with socket.socket(fileno=descriptor) as link, gateway.accept()[0] as other:
        link.sendall(b"SSH-2.0-x\r\n")
        return os.get_blocking(descriptor) and other.recv(100) == b"SSH-2.0-x\r\n"


def test_a_known_address_costs_no_question(home: Path, gateway: socket.socket, taker: socket.socket) -> None:
    port = gateway.getsockname()[1]
    create(home, created(link={**LINK, "ssh": {"host": "127.0.0.1", "port": port}}))
    with taker, gateway:
        assert log_in(home, f"connect {IDS[1]}") == []
        assert through(taker, gateway)


@pytest.mark.parametrize("before", [waiting(), created()])
def test_an_address_that_has_changed_or_is_new_is_asked_for_once(
    home: Path, tmp_path: Path, gateway: socket.socket, taker: socket.socket, before: Result
) -> None:
    create(home, before)
    found(tmp_path, OTHER_KEY)
    port = gateway.getsockname()[1]
    with taker, gateway:
        assert log_in(home, f"connect {IDS[1]}", addressed(port, "127.0.0.1")) == ["access"]
        assert through(taker, gateway)
    assert known(home) == {IDS[1]: port}
    # ssh reads it after it has the connection.
    assert (home / ".ssh/backendai_known_hosts").read_text() == f"backendai-{IDS[1]} {KEY}\n"


@pytest.mark.parametrize(("answer", "kept"), [(WAITS, True), (ENDED, False)])
@pytest.mark.usefixtures("taker", "gateway")
def test_what_waits_or_has_ended_is_not_connected_to(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: Result, kept: bool
) -> None:
    create(home)
    found(tmp_path, "")
    capsys.readouterr()
    assert run(home, f"connect {IDS[1]}", answer) == 1
    assert capsys.readouterr() == ("", f"backendai: {answer.message}\n")
    assert (IDS[1] in known(home)) == kept


@pytest.mark.usefixtures("taker")
def test_an_address_that_does_not_answer_is_a_sentence(
    home: Path, gateway: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    port = gateway.getsockname()[1]
    gateway.close()
    assert run(home, "connect train", addressed(port, "127.0.0.1")) == 1
    assert capsys.readouterr().err == f"backendai: 127.0.0.1, port {port}, does not answer: Connection refused.\n"


def test_connections_are_for_ssh(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(home, "connect train") == 2
    assert capfd.readouterr().err == "backendai: connect is for ssh, which starts it; backendai ssh logs in.\n"


PROGRAM = """#!{python}
import sys
from pathlib import Path
sys.path.insert(0, {files!r})
from backendai_manager.cli import run
from backendai_manager.paths import Paths
from backendai_manager.user.service import Service
sys.exit(run(sys.argv[1:], Paths(), Path({home!r}), Service(Paths(), ["false"])))
"""


def test_ssh_itself_logs_in_by_the_configuration(
    home: Path, tmp_path: Path, gateway: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "backendai"
    files = str(REPOSITORY / "roles/manager/files")
    program.write_text(PROGRAM.format(python=sys.executable, files=files, home=str(home)))
    program.chmod(0o755)
    monkeypatch.setattr(ssh_config, "COMMAND", str(program))
    create(home, created(link={**LINK, "ssh": {"host": "127.0.0.1", "port": gateway.getsockname()[1]}}))
    words = ["ssh", "-F", str(home / ".ssh/backendai_config"), "train", "true"]
    with gateway, subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        with gateway.accept()[0] as link:
            assert link.recv(100).startswith(b"SSH-2.0-OpenSSH")
        process.communicate(timeout=20)
    assert process.returncode == 255

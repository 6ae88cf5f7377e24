"""Commands on several hosts at the same time, over real connections to this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.backendai.cluster.plugins.plugin_utils import link_pool
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_link import HostLink, Output
from ansible_collections.backendai.cluster.plugins.plugin_utils.link_pool import LinkPool, Outcome, Overdue

LOCAL = {"ansible_connection": "local"}
LONG = 60.0


class Broken:
    """A link whose plugin raises an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def run(self, command: str, data: bytes | None = None) -> Output:
        del command, data
        raise self._error


def ssh(folder: Path, script: str, **settings: Any) -> HostLink:
    """Return a link over Ansible's ssh to a program that stands in for the host."""
    path = folder / "ssh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return HostLink({"ansible_ssh_executable": str(path), "ansible_host": "192.0.2.11", **settings})


def collect(pool: LinkPool) -> dict[str, Outcome]:
    return dict(pool.outcomes())


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_end(pid: int) -> None:
    deadline = time.monotonic() + 20
    while lives(pid):
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.01)


def test_each_command_has_its_own_data_and_output() -> None:
    with LinkPool(4) as pool:
        for number in range(20):
            pool.submit(f"host{number}", HostLink(LOCAL), f"cat; exit {number}", b"data %d" % number, LONG)
        assert collect(pool) == {f"host{number}": Output(number, b"data %d" % number, b"") for number in range(20)}
        pool.submit("again", HostLink(LOCAL), "cat", b"more", LONG)
        assert collect(pool) == {"again": Output(0, b"more", b"")}


def test_no_more_commands_run_at_a_time_than_the_size_says(tmp_path: Path) -> None:
    # Each leaves a mark while it runs, and counts those of the others.
    command = f"touch {tmp_path}/$$; sleep 0.1; ls {tmp_path} | wc -l; rm {tmp_path}/$$"
    with LinkPool(3) as pool:
        for number in range(9):
            pool.submit(str(number), HostLink(LOCAL), command, b"", LONG)
        seen = [int(outcome.stdout) for outcome in collect(pool).values() if isinstance(outcome, Output)]
    assert len(seen) == 9
    assert max(seen) in (2, 3)


def test_more_commands_may_follow_while_others_run(tmp_path: Path) -> None:
    waits = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo 3"
    with LinkPool(2) as pool:
        pool.submit("slow", HostLink(LOCAL), waits, b"", LONG)
        pool.submit("first", HostLink(LOCAL), "echo 1", b"", LONG)
        order = []
        for name, _outcome in pool.outcomes():
            order.append(name)
            if name == "first":
                pool.submit("second", HostLink(LOCAL), "echo 2", b"", LONG)
            if name == "second":
                (tmp_path / "go").touch()
    assert order == ["first", "second", "slow"]


@pytest.mark.parametrize("error", [AnsibleConnectionFailure("no route"), MemoryError(), TypeError("odd plugin")])
def test_an_error_of_one_link_is_the_outcome_of_that_one(error: Exception) -> None:
    with LinkPool(2) as pool:
        pool.submit("broken", Broken(error), "x", b"", LONG)
        pool.submit("well", HostLink(LOCAL), "echo well", b"", LONG)
        assert collect(pool) == {"broken": error, "well": Output(0, b"well\n", b"")}


def test_a_command_that_takes_too_long_is_given_up_and_its_process_killed(tmp_path: Path) -> None:
    link = ssh(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    with LinkPool(1) as pool:
        pool.submit("hangs", link, "x", b"", 0.5)
        pool.submit("next", HostLink(LOCAL), "echo next", b"", LONG)
        assert collect(pool) == {"hangs": Overdue(0.5), "next": Output(0, b"next\n", b"")}
        await_end(int((tmp_path / "pid").read_text()))


def test_a_file_that_takes_too_long_to_send_is_given_up_and_its_process_killed(tmp_path: Path) -> None:
    asked = 'case "$*" in *mkdir*) eval "$(echo "$*" | sed "s/^.*-c //")";; esac'
    transfer = tmp_path / "sftp"
    transfer.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid; exec sleep 600\n")
    transfer.chmod(0o755)
    made = "echo \"$*\" | grep -o 'backendai-[0-9a-f]*' | head -1"
    link = ssh(
        tmp_path,
        f'{asked}; case "$*" in *mkdir*) n=$({made}); echo "$n=/tmp/$n";; esac; exit 0',
        ansible_pipelining=False,
        ansible_sftp_executable=str(transfer),
        ansible_ssh_transfer_method="sftp",
    )
    with LinkPool(1) as pool:
        pool.submit("hangs", link, "cat", b"data", 2.0)
        assert collect(pool) == {"hangs": Overdue(2.0)}
        await_end(int((tmp_path / "pid").read_text()))


def test_the_time_of_a_command_begins_when_a_thread_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(link_pool.time, "monotonic", lambda: now[0])

    class TakesFour:
        def run(self, command: str, data: bytes | None = None) -> Output:
            del command, data
            now[0] += 4
            return Output(0, b"", b"")

    with LinkPool(1) as pool:
        for name in ("first", "second", "third"):
            pool.submit(name, TakesFour(), "x", b"", 5.0)
        assert list(collect(pool).values()) == [Output(0, b"", b"")] * 3


def test_each_command_that_takes_too_long_is_given_up() -> None:
    with LinkPool(1) as pool:
        for name in ("first", "second", "third"):
            pool.submit(name, HostLink(LOCAL), "sleep 30", b"", 0.3)
        assert list(collect(pool).values()) == [Overdue(0.3)] * 3


def test_leaving_kills_what_still_runs(tmp_path: Path) -> None:
    link = ssh(tmp_path, f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 600")
    pid = tmp_path / "pid"

    def stop_once_it_runs() -> None:
        if pid.exists():
            raise KeyboardInterrupt

    with LinkPool(1, stop_once_it_runs) as pool:
        pool.submit("runs", link, "x", b"", LONG)
        pool.submit("waits", HostLink(LOCAL), f"touch {tmp_path}/began", b"", LONG)
        with pytest.raises(KeyboardInterrupt):
            collect(pool)
    await_end(int(pid.read_text()))
    assert not (tmp_path / "began").exists()


def test_threads_end_with_the_pool() -> None:
    before = threading.active_count()
    with LinkPool(3) as pool:
        for number in range(3):
            pool.submit(str(number), HostLink(LOCAL), "sleep 0.1", b"", LONG)
        collect(pool)
        assert threading.active_count() == before + 3
    deadline = time.monotonic() + 20
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---- what a thread may do

FORBIDDEN = ("/jinja2/", "/ansible/template/", "/ansible/_internal/_templating/", "/ansible/plugins/loader.py")


@pytest.fixture
def reached() -> Iterator[set[str]]:
    """The forbidden code that threads which start from now on run."""
    found: set[str] = set()

    def note(frame: FrameType, _event: str, _argument: object) -> None:
        path = frame.f_code.co_filename
        if any(part in path for part in FORBIDDEN):
            found.add(f"{path}: {frame.f_code.co_name}")

    threading.setprofile(note)
    yield found
    threading.setprofile(cast(Any, None))


def become(folder: Path, **settings: Any) -> dict[str, Any]:
    """Return the settings of a host that becomes root by a program that asks for a password."""
    sudo = folder / "sudo"
    asks = 'while [ "$1" != /bin/sh ]; do [ "$1" != -p ] || prompt=$2; shift; done; printf %s "$prompt" >&2'
    sudo.write_text(f'#!/bin/sh\n{asks}; read -r word; exec "$@"\n')
    sudo.chmod(0o755)
    named = {"ansible_become": True, "ansible_become_user": "chief", "ansible_become_exe": str(sudo)}
    return {**named, "ansible_become_password": "word", "ansible_remote_tmp": str(folder / "remote"), **settings}


WAYS: dict[str, dict[str, Any]] = {
    "local": LOCAL,
    "local and a file": {**LOCAL, "ansible_pipelining": False},
    "ssh": {"ansible_host": "192.0.2.11", "ansible_user": "operator", "ansible_port": 2222},
    "ssh, again with nothing shared": {"ansible_host": "192.0.2.11", "renewed": True},
    "ssh that fails": {"ansible_host": "192.0.2.11", "fails": True},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("becomes", [False, True])
def test_no_thread_reaches_templates_or_the_loader_of_plugins(
    tmp_path: Path, reached: set[str], way: str, becomes: bool
) -> None:
    settings = dict(WAYS[way])
    renewed, fails = settings.pop("renewed", False), settings.pop("fails", False)
    program = tmp_path / "ssh"
    program.write_text(
        '#!/bin/sh\n[ "$2" != -O ] || exit 1\nfor word; do last=$word; done\n'
        + ("echo 'no route' >&2; exit 255\n" if fails else 'exec sh -c "$last"\n')
    )
    program.chmod(0o755)
    settings |= {"ansible_ssh_executable": str(program), "ansible_remote_tmp": str(tmp_path / "remote")}
    link = HostLink(become(tmp_path, **settings) if becomes else settings, renewed=renewed)
    with LinkPool(1) as pool:
        pool.submit("host", link, "cat", b"data", LONG)
        outcome = collect(pool)["host"]
    if fails:
        assert isinstance(outcome, AnsibleConnectionFailure)
    else:
        assert isinstance(outcome, Output)
        assert (outcome.code, outcome.stdout) == (0, b"data")
    assert reached == set()


def test_a_thread_that_renders_a_template_or_loads_a_plugin_is_seen(reached: set[str]) -> None:
    class Careless:
        def run(self, command: str, data: bytes | None = None) -> Output:
            del command, data
            HostLink({"ansible_connection": "local"})
            return Output(0, b"", b"")

    with LinkPool(1) as pool:
        pool.submit("host", Careless(), "x", b"", LONG)
        collect(pool)
    assert [name for name in reached if "/ansible/plugins/loader.py" in name]

"""The end of a task before its time, with real processes and signals."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils.interruption import InterruptionError, interruptible

#: Asks a host that does not answer; says what has ended it, and that it had time to undo something.
WORKER = """
import sys, time
from pathlib import Path
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_link import HostLink
from ansible_collections.backendai.cluster.plugins.plugin_utils.interruption import InterruptionError, interruptible
from ansible_collections.backendai.cluster.plugins.plugin_utils.link_pool import LinkPool

folder = Path(sys.argv[1])
link = HostLink({"ansible_ssh_executable": str(folder / "ssh"), "ansible_host": "192.0.2.11"})
try:
    with interruptible() as interruption, LinkPool(1, interruption.check) as pool:
        pool.submit("host", link, "x", b"", 600)
        list(pool.outcomes())
except InterruptionError as error:
    (folder / "undoing").write_text("yes")
    time.sleep(0.5)
    (folder / "ended").write_text(str(error))
"""
#: Displays more than a pipe holds that nobody reads any more, before it notices the end of the run, and after that.
SHOWING = """
import os, sys, time
from pathlib import Path
from types import SimpleNamespace
from ansible.errors import AnsibleError
from ansible.executor.process import worker as process
from ansible.executor.task_queue_manager import FinalQueue
from ansible.utils.display import Display
from ansible.utils.multiprocessing import context
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_link import displayed_while
from ansible_collections.backendai.cluster.plugins.plugin_utils.interruption import InterruptionError, interruptible

folder, parent, queue = Path(sys.argv[1]), os.getpid(), FinalQueue()

def work():
    display = Display(verbosity=3)
    display.set_queue(queue)
    process.current_worker = SimpleNamespace(worker_id=0)
    try:
        with interruptible() as interruption, displayed_while(interruption.heard):
            display.display("heard")
            (folder / "pid").write_text(str(os.getpid()))
            while os.getppid() == parent:
                time.sleep(0.01)
            display.display("x" * 100000)
            interruption.check()
    except InterruptionError as error:
        display.display("x" * 100000, stderr=True)
        display.warning("x" * 100000)
        display.vvv("x" * 100000)
        try:
            display.prompt_until("Go on?")
        except AnsibleError as refusal:
            (folder / "refused").write_text(str(refusal))
        (folder / "ended").write_text(str(error))

worker = context.Process(target=work)
worker.start()
(folder / "first").write_text(queue.get().args[0])
worker.join()
"""
SSH = """#!/bin/sh
echo $$ > {0}/pid.new; mv {0}/pid.new {0}/pid
exec sleep 600
"""


def await_file(path: Path) -> str:
    """Return the text of a file, once it has some: a file exists before it is written."""
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path.name} never came"
        time.sleep(0.01)
    return path.read_text()


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def await_end(pid: int) -> None:
    deadline = time.monotonic() + 60
    while not gone(pid):
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.01)


@pytest.fixture
def line(tmp_path: Path) -> list[str]:
    (tmp_path / "ssh").write_text(SSH.format(tmp_path))
    (tmp_path / "ssh").chmod(0o755)
    # Whoever runs the tests in the background may have signals ignored.
    return ["env", "--default-signal=INT,TERM,HUP", sys.executable, "-c", WORKER, str(tmp_path)]


@contextlib.contextmanager
def started(line: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process, which is killed if it has not ended with the block."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(line, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_wait_and_later_ones_do_not_stop_what_it_undoes(
    tmp_path: Path, line: list[str], number: signal.Signals
) -> None:
    with started(line) as worker:
        pid = int(await_file(tmp_path / "pid"))
        worker.send_signal(number)
        await_file(tmp_path / "undoing")
        for later in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            worker.send_signal(later)
        assert worker.wait(60) == 0
    assert (tmp_path / "ended").read_text() == f"interrupted by {number.name}"
    await_end(pid)


def test_a_worker_whose_run_was_killed_ends_by_itself(tmp_path: Path, line: list[str]) -> None:
    parent = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"
    with started([sys.executable, "-c", parent, *line]) as run:
        pid = int(await_file(tmp_path / "pid"))
        run.kill()
    await_file(tmp_path / "ended")
    assert (tmp_path / "ended").read_text() == "the process of this run has gone"
    await_end(pid)


def test_a_signal_that_was_ignored_stays_so(tmp_path: Path, line: list[str]) -> None:
    with started([*line[:2], "nohup", *line[2:]]) as worker:
        await_file(tmp_path / "pid")
        worker.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert (tmp_path / "ended").read_text() == "interrupted by SIGTERM"


def test_the_handlers_of_before_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with interruptible() as interruption:
        interruption.check()
        assert signal.getsignal(signal.SIGTERM) == interruption.handle
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
    with pytest.raises(ValueError, match="other"), interruptible():
        raise ValueError("other")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_an_interruption_is_none_of_the_errors_that_are_handled_on_the_way() -> None:
    assert not issubclass(InterruptionError, Exception)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_nobody_reads_any_more_does_not_stop_the_task_from_undoing(tmp_path: Path, number: signal.Signals) -> None:
    with started(["env", "--default-signal=TERM", sys.executable, "-c", SHOWING, str(tmp_path)]) as run:
        worker = int(await_file(tmp_path / "pid"))
        assert await_file(tmp_path / "first") == "heard"
        try:
            # The run ends, or only the task is told to, and the run goes on without reading.
            os.kill(run.pid if number == signal.SIGKILL else worker, number)
            reason = await_file(tmp_path / "ended")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
    assert reason == ("the process of this run has gone" if number == signal.SIGKILL else "interrupted by SIGTERM")
    assert (tmp_path / "refused").read_text() == "nobody can be asked: the run is over"

"""How much runs at once, and what is left of runs that were killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backendai_manager.errors import CancelledError
from backendai_manager.manager.run_folder import run_folder
from backendai_manager.manager.slots import Slots


def hold(slots: Slots, uid: int, said: list[str], tries: int = 2) -> contextlib.AbstractContextManager[None]:
    def wait(_seconds: float) -> None:
        nonlocal tries
        tries -= 1
        if not tries:
            raise CancelledError("cancelled.")

    return slots.hold(uid, wait, said.append)


def test_a_user_has_so_many_commands_and_the_next_waits_with_one_sentence(tmp_path: Path) -> None:
    said: list[str] = []
    slots = Slots(tmp_path / "slots", per_user=2, total=9)
    with hold(slots, 1, said), hold(slots, 1, said):
        with pytest.raises(CancelledError), hold(slots, 1, said, tries=3):
            pass
        assert said == ["2 of your commands run already: this one waits for one of them to end."]
        with hold(slots, 2, said):
            pass
    with hold(slots, 1, said):
        assert len(said) == 1


def test_all_users_have_so_many_commands(tmp_path: Path) -> None:
    said: list[str] = []
    slots = Slots(tmp_path / "slots", per_user=2, total=2)
    with hold(slots, 1, said), hold(slots, 2, said), pytest.raises(CancelledError), hold(slots, 3, said):
        pass
    assert said == ["2 commands of all users run already: this one waits for one of them to end."]
    with hold(slots, 3, said), hold(slots, 3, said):
        pass


HOLDER = """
import sys, time
from pathlib import Path
from backendai_manager.manager.run_folder import run_folder
from backendai_manager.manager.slots import Slots
with Slots(Path(sys.argv[1]) / "slots", 1, 1).hold(1, time.sleep, print), run_folder(Path(sys.argv[1])) as folder:
    (folder / "secret").write_text("hunter2")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_a_killed_run_leaves_neither_a_slot_nor_a_folder(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout
    stale = Path(process.stdout.readline().strip())
    with run_folder(tmp_path):
        assert (stale / "secret").exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with hold(Slots(tmp_path / "slots", 1, 1), 1, []), run_folder(tmp_path) as folder:
        assert not stale.exists()
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_is_removed_however_its_run_ends(tmp_path: Path) -> None:
    with contextlib.suppress(CancelledError), run_folder(tmp_path) as folder:
        (folder / "secret").write_text("hunter2")
        raise CancelledError("cancelled.")
    assert list(tmp_path.iterdir()) == []


STOPPED = """
import os, signal, sys
from pathlib import Path
from backendai_manager.manager import run_folder
def stop(*_arguments):
    print(next(Path(sys.argv[1]).iterdir()).name, flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
run_folder.fcntl.flock = stop
with run_folder.run_folder(Path(sys.argv[1])):
    pass
"""


def test_a_run_that_is_stopped_anywhere_stops_no_other(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout
    name = process.stdout.readline().strip()
    other = "from pathlib import Path; from backendai_manager.manager.run_folder import run_folder as r;"
    other += f"r(Path({str(tmp_path)!r})).__enter__()"
    try:
        subprocess.run([sys.executable, "-c", other], env=environment, check=True, timeout=20)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    # The empty folder stays for a minute: its run may go on.
    with run_folder(tmp_path):
        assert (tmp_path / name).exists()
    os.utime(tmp_path / name, (1, 1))
    with run_folder(tmp_path):
        assert not (tmp_path / name).exists()


def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    runtime = tmp_path / "run"
    runtime.mkdir()
    (runtime / "run-link").symlink_to(outside)
    with run_folder(runtime):
        pass
    assert (outside / "file").exists()

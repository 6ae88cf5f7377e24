"""The reply to a request: a result, an error sentence or a traceback, within the time limit."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from docker.errors import APIError, DockerException

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError
from ansible_collections.backendai.cluster.plugins.module_utils._program import health, main, unit
from ansible_collections.backendai.cluster.plugins.module_utils._program import reply as program_reply
from ansible_collections.backendai.cluster.plugins.module_utils._program.main import PACKAGE, PHASES, reply_to
from tests.unit.phases import reply_of

Act = Callable[[dict[str, Any], bool], dict[str, Any]]


def reply(act: Act, *, seconds: float = 60, diff: bool = False, check_mode: bool = False) -> dict[str, Any]:
    """Return the reply to a request with this function as its phase."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "phase", lambda _name: act)
        request = {"phase": "survey", "options": {"name": "x"}, "check_mode": check_mode, "diff": diff}
        return reply_to({**request, "seconds": seconds})


# ---- results


@pytest.mark.parametrize("name", PHASES)
def test_every_phase_has_a_function_of_its_name_and_begins_with_garbage_collection(name: str) -> None:
    gc.disable()
    assert main.phase(name).__name__ == name
    assert gc.isenabled()


def test_a_request_for_facts_imports_nothing_that_only_installations_and_starts_need() -> None:
    unneeded = ("concurrent.futures", "docker", "tempfile", "zipfile")
    modules = ", ".join(f"{PACKAGE}.{name}" for name in ("launcher", "main", PHASES["survey"]))
    line = f"import {modules}, sys; print([name for name in {unneeded} if name in sys.modules])"
    search = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run([sys.executable, "-c", line], env=search, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


@pytest.mark.parametrize("check_mode", [True, False])
def test_phase_gets_its_options_and_whether_it_is_check_mode(check_mode: bool) -> None:
    def act(options: dict[str, Any], check_mode: bool) -> dict[str, Any]:
        return {"options": options, "check_mode": check_mode}

    assert reply(act, check_mode=check_mode) == {"result": {"options": {"name": "x"}, "check_mode": check_mode}}


@pytest.mark.parametrize("diff", [True, False])
def test_diff_is_returned_if_requested(diff: bool) -> None:
    answer = reply(lambda _options, _dry: {"changed": True, "diff": {"after": "all files"}}, diff=diff)
    assert answer == {"result": {"changed": True, **({"diff": {"after": "all files"}} if diff else {})}}


# ---- failures


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ClusterError("agent1 is full"), "agent1 is full."),
        (ValueError("did you mean that?"), "did you mean that?"),
        (FileNotFoundError(2, "No such file or directory", "/x"), "[Errno 2] No such file or directory: '/x'."),
        (
            subprocess.CalledProcessError(1, ["ssh-keygen", "-q"], "", "no entropy\n"),
            "ssh-keygen failed: no entropy.",
        ),
        (APIError("500", explanation="driver failed"), "the Docker engine failed: driver failed."),
        (DockerException("bad certificate"), "the Docker engine failed: bad certificate."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_expected_error_is_one_sentence(error: Exception, sentence: str) -> None:
    def act(_options: Any, _dry: bool) -> NoReturn:
        raise error

    assert reply(act) == {"failed": sentence}


def test_unexpected_error_has_a_traceback() -> None:
    def act(_options: Any, _dry: bool) -> NoReturn:
        raise KeyError("slots")

    answer = reply(act)
    assert answer["failed"] == "KeyError: 'slots'"
    assert answer["traceback"].startswith("Traceback (most recent call last):\n")
    assert answer["traceback"].endswith("KeyError: 'slots'\n")


def test_unknown_phase_is_a_failure() -> None:
    answer = reply_of("nothing_of_that_name", {})
    assert answer["failed"] == "KeyError: 'nothing_of_that_name'"
    assert "Traceback" in answer["traceback"]


# ---- time limits


@pytest.fixture
def timed() -> Iterator[None]:
    """Fail a test that takes a minute or longer."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 60


LATE = {"failed": "it took more than 0.2 seconds, and was aborted."}


@pytest.mark.usefixtures("timed")
def test_hanging_phase_is_aborted() -> None:
    def act(_options: Any, _dry: bool) -> dict[str, Any]:
        time.sleep(600)
        return {}

    assert reply(act, seconds=0.2) == LATE


@pytest.mark.usefixtures("timed")
def test_phase_that_catches_errors_is_aborted_too() -> None:
    tries: list[None] = []

    def act(_options: Any, _dry: bool) -> dict[str, Any]:
        while len(tries) < 2:
            tries.append(None)
            try:
                time.sleep(600)
            except Exception:
                continue
        return {}

    assert (reply(act, seconds=0.2), len(tries)) == (LATE, 1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return the store of a provisioned agent."""
    (tmp_path / "lock").touch()
    return Store(str(tmp_path))


@pytest.mark.usefixtures("timed")
def test_phase_that_waits_for_a_lock_is_aborted(store: Store) -> None:
    def act(_options: Any, _dry: bool) -> dict[str, Any]:
        with store.lock():
            return {}

    with store.lock():
        assert reply(act, seconds=0.2) == LATE
    assert reply(act) == {"result": {}}


@pytest.mark.usefixtures("timed")
def test_aborted_phase_releases_its_locks(store: Store, tmp_path: Path) -> None:
    def act(_options: Any, _dry: bool) -> dict[str, Any]:
        with store.lock():
            time.sleep(600)
        return {}

    assert reply(act, seconds=0.2) == LATE
    handle = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)


def test_phase_within_its_time_limit_is_not_aborted() -> None:
    before = signal.getsignal(signal.SIGALRM)
    assert reply(lambda _options, _dry: {}, seconds=60) == {"result": {}}
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_threads_may_outlive_an_aborted_phase() -> None:
    ended = threading.Event()

    def act(_options: Any, _dry: bool) -> dict[str, Any]:
        threading.Thread(target=ended.wait).start()
        time.sleep(600)
        return {}

    assert reply(act, seconds=0.2) == LATE
    ended.set()


# ---- units


@pytest.mark.parametrize("code", [0, 1])
def test_command_is_that_of_systemd_units(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    calls: list[Any] = []

    def run(arguments: list[str]) -> int:
        calls.append(arguments)
        return code

    monkeypatch.setattr(unit, "main", run)
    assert (main.command(["--rules"]), calls) == (code, [["--rules"]])
    monkeypatch.setattr(health, "main", run)
    assert (main.command(["--health", "/x"]), calls[1:]) == (code, [["--health", "/x"]])


def test_a_look_at_the_health_imports_nothing_that_only_other_commands_need() -> None:
    unneeded = ("concurrent.futures", "docker", f"{PACKAGE}.unit", PACKAGE.replace("_program", "_firewall"))
    line = f"import {PACKAGE}.launcher, {PACKAGE}.main, {PACKAGE}.health, sys"
    line += f"; print([name for name in {unneeded} if name in sys.modules])"
    search = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run([sys.executable, "-c", line], env=search, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


# ---- large results


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let replies have 1 KiB."""
    monkeypatch.setattr(program_reply, "MAX_REPLY", 1024 + program_reply._ENVELOPE)


@pytest.mark.usefixtures("small")
def test_result_that_fits_is_returned_as_it_is() -> None:
    result = {"changed": True, "text": "x" * 900}
    assert program_reply.within_limit(result) is result


@pytest.mark.usefixtures("small")
def test_a_diff_that_is_too_large_is_left_out_before_anything_else() -> None:
    result = {"diff": {"before": "", "after": "x" * 2000}, "sessions": {"one": {"steps": ["claim"]}}}
    assert program_reply.within_limit(result) == {
        "diff": {"before": "", "after": "(what changes is too much to be shown)\n"},
        "sessions": {"one": {"steps": ["claim"]}},
    }


@pytest.mark.usefixtures("small")
def test_a_session_whose_result_is_too_large_is_an_error_of_that_session() -> None:
    small_one = {"steps": ["claim"]}
    result = {"sessions": {"one": {"printed": ["x" * 2000]}, "two": small_one, "three": {"printed": ["x" * 700]}}}
    sent = program_reply.within_limit(result)["sessions"]
    assert sent["one"]["failed"].startswith("the result of this session is larger than a reply may be, ")
    assert (sent["two"], sent["three"]) == (small_one, {"printed": ["x" * 700]})


@pytest.mark.usefixtures("small")
def test_another_result_that_is_too_large_is_one_sentence() -> None:
    answer = reply(lambda _options, _check_mode: {"parts": ["x" * 2000]})
    assert answer["failed"].startswith("its result is larger than ")
    assert list(answer) == ["failed"]

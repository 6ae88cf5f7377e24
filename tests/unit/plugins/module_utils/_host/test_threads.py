"""Calls side by side: the order of their results, their errors, and how many run at a time."""

from __future__ import annotations

import threading
import time

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.threads import in_threads, in_time


def test_calls_run_side_by_side_and_their_results_are_in_order() -> None:
    together = threading.Barrier(3, timeout=10)

    def wait(number: int) -> int:
        together.wait()
        return number

    assert in_threads(wait, [1, 2, 3]) == [1, 2, 3]


def test_the_first_error_is_raised_after_all_calls_have_ended() -> None:
    ended: list[int] = []

    def fail(number: int) -> None:
        if number < 3:
            raise ValueError(f"failure {number}")
        time.sleep(0.1)
        ended.append(number)

    with pytest.raises(ValueError, match="failure 1"):
        in_threads(fail, [1, 2, 3])
    assert ended == [3]


@pytest.mark.parametrize(("threads", "at_once"), [(1, 1), (2, 2)])
def test_no_more_threads_run_than_allowed(threads: int, at_once: int) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def count(_number: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1

    in_threads(count, range(6), threads=threads)
    assert most == at_once


def test_a_single_call_runs_in_the_thread_of_its_caller() -> None:
    assert in_threads(lambda _number: threading.current_thread(), [1]) == [threading.current_thread()]
    assert in_threads(lambda _number: threading.current_thread(), []) == []


def test_results_that_are_late_are_not_waited_for() -> None:
    hangs = threading.Event()
    began = time.monotonic()
    results = in_time(lambda number: number if number else hangs.wait(30), [1, 0, 2, 3], began + 1.5, threads=2)
    assert time.monotonic() - began < 15
    hangs.set()
    assert results == [1, None, 2, 3]


def test_what_cannot_begin_in_time_does_not_begin() -> None:
    assert in_time(lambda number: number, [1, 2], time.monotonic() - 1) == [None, None]


def test_an_error_in_time_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_time(lambda number: 1 / number, [1, 0], time.monotonic() + 5)

"""The time of a request, and the parts of it that sessions have."""

from __future__ import annotations

import signal
import time

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.time_limit import (
    TimeLimitError,
    TurnOverError,
    Turns,
    limited_to,
)


def left() -> float:
    return signal.getitimer(signal.ITIMER_REAL)[0]


def test_an_inner_limit_ends_its_block_alone_and_the_outer_one_goes_on() -> None:
    seen: list[float] = []

    def both() -> None:
        with limited_to(1.5):
            with pytest.raises(TimeLimitError), limited_to(0.1):
                time.sleep(5)
            seen.append(left())
            time.sleep(5)

    with pytest.raises(TimeLimitError):
        both()
    assert 0 < seen[0] <= 1.4
    assert left() == 0


def test_each_has_an_equal_part_of_the_time_and_what_one_leaves_is_for_the_others() -> None:
    turns, given = Turns(3), []
    with limited_to(60):
        for _session in range(3):
            with turns.turn() as seconds:
                given.append(seconds or 0.0)
    assert given == pytest.approx([18, 27, 54], abs=0.5)


def test_a_turn_that_is_over_is_an_error_of_its_session() -> None:
    turns = Turns(100)
    with limited_to(30):
        with pytest.raises(TurnOverError, match=r"^it took more than 0\.2\d* seconds, its part of the"), turns.turn():
            time.sleep(5)
        with turns.turn() as seconds:
            assert seconds is not None
            assert 0.1 < seconds < 0.28


def test_without_a_limit_of_the_request_no_turn_has_one() -> None:
    with Turns(1).turn() as seconds:
        assert (seconds, left()) == (None, 0)

"""The confidence interval of a median is between two of the values in order."""

from __future__ import annotations

import itertools

import pytest

from tests.bench.report import CONFIDENCE, median_interval


@pytest.mark.parametrize(("count", "rank"), [(6, 1), (8, 1), (9, 2), (20, 6), (25, 8), (100, 40)])
def test_interval_is_between_the_ranks_of_the_binomial_distribution(count: int, rank: int) -> None:
    values = [float(number) for number in range(count, 0, -1)]
    assert median_interval(values) == (rank, count + 1 - rank)


@pytest.mark.parametrize("count", range(6))
def test_fewer_than_six_values_have_no_interval(count: int) -> None:
    assert median_interval([1.0] * count) is None


def test_interval_contains_the_median_as_often_as_it_says() -> None:
    intervals = [median_interval(values) for values in itertools.product((-1.0, 1.0), repeat=12)]
    containing = [interval for interval in intervals if interval and interval[0] <= 0 <= interval[1]]
    assert CONFIDENCE <= len(containing) / len(intervals) < CONFIDENCE + 0.02

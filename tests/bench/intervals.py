"""The confidence interval of a median, which assumes nothing about the distribution."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

CONFIDENCE = 0.95


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the median of independent values; None for fewer than six.

    Each value is below the median with probability one half, so the number of values below it has a binomial
    distribution: of 20 values, the interval is from the 6th to the 15th in order.
    """
    count = len(values)
    # The probability that the median is below the smallest value, below the second smallest, ...
    outside, ranks = 0.5**count, 0
    while outside <= (1 - CONFIDENCE) / 2:
        ranks += 1
        outside += comb(count, ranks) * 0.5**count
    if not ranks:
        return None
    ordered = sorted(values)
    return ordered[ranks - 1], ordered[-ranks]

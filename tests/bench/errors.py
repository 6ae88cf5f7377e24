"""The error of the benchmark."""

from __future__ import annotations


class BenchError(Exception):
    """A measured command failed, or did not do what is to be measured."""

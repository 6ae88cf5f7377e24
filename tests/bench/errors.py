"""The error of the benchmark."""

from __future__ import annotations


class BenchError(Exception):
    """A command that is measured failed, or did something else than what is to be measured; one message."""

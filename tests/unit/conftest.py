"""How every unit test runs."""

from __future__ import annotations

from hypothesis import settings

# The same examples in every run: a gate may only fail for what was changed.
settings.register_profile("gate", deadline=None, derandomize=True, max_examples=150)
settings.load_profile("gate")

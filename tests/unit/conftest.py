"""How every unit test runs."""

from __future__ import annotations

import pytest
from ansible.module_utils.common import warnings
from hypothesis import settings

# The same examples in every run: a gate may only fail for what was changed.
settings.register_profile("gate", deadline=None, derandomize=True, max_examples=150)
settings.load_profile("gate")


@pytest.fixture(autouse=True)
def warnings_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible keeps what a module has warned of as long as the process lives, and here that is all of them."""
    monkeypatch.setattr(warnings, "_global_warnings", {})

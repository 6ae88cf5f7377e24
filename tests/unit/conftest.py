"""Settings of all unit tests."""

from __future__ import annotations

import gc

import pytest
from ansible.module_utils.common import warnings
from hypothesis import settings

# The same examples in every run, so that a gate fails only because of a change.
settings.register_profile("gate", deadline=None, derandomize=True, max_examples=150)
settings.load_profile("gate")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gateway-requests", type=int, default=1000, metavar="N", help="number of requests in test_gateway_limits.py"
    )
    parser.addoption(
        "--decisions",
        type=int,
        default=20,
        metavar="N",
        help="decisions in _placement/test_optimum.py and test_topology.py",
    )


def pytest_sessionstart() -> None:
    # The tests, a third of a million objects, stay; looking for garbage among them would take a fifth of the time.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def warnings_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the warnings of modules, which Ansible keeps for the lifetime of the process."""
    monkeypatch.setattr(warnings, "_global_warnings", {})

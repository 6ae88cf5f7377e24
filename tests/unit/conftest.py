"""Settings of all unit tests."""

from __future__ import annotations

import gc

import pytest
from ansible.module_utils.common import warnings
from hypothesis import HealthCheck, settings

# The speed of a busy machine says nothing about a strategy.
for _name, _examples in (("gate", 50), ("full", 500)):
    settings.register_profile(
        _name,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        # The same examples in every run, so that a gate fails only because of a change.
        derandomize=_name == "gate",
        max_examples=_examples,
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="try as many examples, decisions and requests as `make soak`, and wait as long as the gateway does",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("full" if config.getoption("full") else "gate")


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """Whether this is `make soak`."""
    return bool(pytestconfig.getoption("full"))


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

"""The limits of containers, from an agent's options."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.limits import (
    DEFAULT_LIMITS,
    ContainerLimits,
    parse_limits,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.module_utils._module import LIMIT_OPTIONS

DEFAULTS = {name: option["default"] for name, option in LIMIT_OPTIONS.items()}


def test_defaults_of_the_options_are_those_of_the_limits() -> None:
    assert parse_limits(DEFAULTS) == DEFAULT_LIMITS


@pytest.mark.parametrize(("cores", "expected"), [(0, 4096), (1, 4608), (96, 53248)])
def test_each_core_adds_to_the_limit_of_processes(cores: int, expected: int) -> None:
    assert DEFAULT_LIMITS.pids_of(cores) == expected


@pytest.mark.parametrize("value", [0, -1])
def test_zero_and_minus_one_are_no_limit_of_processes(value: int) -> None:
    assert parse_limits({**DEFAULTS, "pids_limit": value}).pids_of(4) is None


def test_the_size_of_a_log_is_in_bytes_or_units() -> None:
    assert parse_limits({**DEFAULTS, "log_max_size": "1g"}) == ContainerLimits(log_bytes=1 << 30)
    assert parse_limits({**DEFAULTS, "log_max_size": "0"}).log_bytes == 0


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        (
            "pids_limit",
            -2,
            "agent_pids_limit: -2 must be a whole number, zero or more; 0 and -1 are no limit.",
        ),
        ("pids_per_core", -1, "agent_pids_per_core: -1 must be a whole number, zero or more."),
        ("log_max_files", 0, "agent_log_max_files: 0 must be a whole number, one or more."),
        (
            "log_max_size",
            "much",
            "agent_log_max_size: 'much' must be bytes, such as 1g, 512m or 1073741824, or 0 for no limit.",
        ),
    ],
)
def test_invalid_option_is_one_sentence(option: str, value: Any, sentence: str) -> None:
    with pytest.raises(ValidationError) as refused:
        parse_limits({**DEFAULTS, option: value})
    assert str(refused.value) == sentence


def test_all_invalid_options_are_named() -> None:
    with pytest.raises(ValidationError) as refused:
        parse_limits({"pids_limit": -2, "pids_per_core": -2, "log_max_size": "-1", "log_max_files": -1})
    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == [
        "agent_pids_limit",
        "agent_pids_per_core",
        "agent_log_max_files",
        "agent_log_max_size",
    ]

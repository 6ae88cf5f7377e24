"""The health of an agent over time."""

from __future__ import annotations

from ansible_collections.backendai.cluster.plugins.module_utils._model.health import (
    MAX_HISTORY,
    Health,
    HealthChange,
    HealthProblem,
)

FULL = HealthProblem("disk", "full")
ECC = HealthProblem("gpu", "ECC", ("GPU-1",))


def test_a_problem_keeps_the_time_when_it_was_found_first() -> None:
    health = Health().after([FULL], [], 10.0).after([HealthProblem("disk", "fuller")], ["refused."], 20.0)
    assert health.problems == (HealthProblem("disk", "fuller", (), 10.0),)
    assert (health.checked_at, health.refused) == (20.0, ("refused.",))
    assert health.history == (HealthChange(10.0, "disk", "full"),)


def test_the_history_has_what_was_found_and_what_is_well_again() -> None:
    health = Health().after([FULL], [], 10.0).after([FULL, ECC], [], 20.0).after([ECC], [], 30.0)
    assert health.history == (
        HealthChange(10.0, "disk", "full"),
        HealthChange(20.0, "gpu", "ECC"),
        HealthChange(30.0, "disk", ""),
    )
    assert health.after([ECC], [], 40.0).history == health.history


def test_the_history_is_bounded() -> None:
    health = Health()
    for second in range(MAX_HISTORY * 2):
        health = health.after([FULL] if second % 2 else [], [], float(second))
    assert len(health.history) == MAX_HISTORY
    assert health.history[-1].at == MAX_HISTORY * 2 - 1


def test_devices_and_the_host_are_told_apart() -> None:
    health = Health().after([FULL, ECC], [], 10.0)
    assert health.host_problems == ["disk: full"]
    assert health.sick_devices == {"GPU-1": "gpu: ECC"}


def test_only_what_was_not_known_is_new() -> None:
    other = HealthProblem("gpu", "ECC", ("GPU-2",))
    assert Health().after([ECC], [], 10.0).new_problems([ECC, other]) == [other]

"""How long a session has lived and been idle: by the uptime of its agent, whatever happens to clocks and looks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.use import LOOK_SECONDS, Sample, SessionUse

QUIET = Sample({"main1:7": 2.0}, {"main1:7": 3}, in_use=False)
BEFORE = SessionUse("boot", 1000.0, lived=500.0, idle=90.0, cpu={"main1:7": 2.0}, accepted={"main1:7": 3})


def test_a_quiet_session_gets_older_and_idle() -> None:
    use = BEFORE.after(QUIET, "boot", 1030.0)
    assert (use.lived, use.idle, use.uptime) == (530.0, 120.0, 1030.0)


@pytest.mark.parametrize(
    "sample",
    [
        Sample(QUIET.cpu, QUIET.accepted, in_use=True),
        Sample({"main1:7": 3.6}, QUIET.accepted, in_use=False),
        Sample(QUIET.cpu, {"main1:7": 4}, in_use=False),
        Sample({"main1:9": 0.1}, {"main1:9": 0}, in_use=False),
    ],
    ids=["a login, command or GPU", "a process", "a connection", "a container that was restarted"],
)
def test_what_counts_as_use(sample: Sample) -> None:
    use = BEFORE.after(sample, "boot", 1030.0)
    assert (use.lived, use.idle) == (530.0, 0.0)


def test_a_little_work_is_none() -> None:
    assert BEFORE.after(Sample({"main1:7": 3.4}, QUIET.accepted, in_use=False), "boot", 1030.0).idle == 120.0


def test_an_instant_of_work_is_none() -> None:
    sample = Sample({"main1:7": 2.1}, QUIET.accepted, in_use=False)
    assert BEFORE.after(sample, "boot", 1000.1).idle == pytest.approx(90.1)


def test_work_counts_over_all_containers() -> None:
    sample = Sample({"main1:7": 2.8, "sub1:8": 0.8}, QUIET.accepted, in_use=False)
    assert BEFORE.after(sample, "boot", 1030.0).idle == 0.0


def test_a_gap_between_looks_counts_as_one_look() -> None:
    use = BEFORE.after(QUIET, "boot", 87400.0)
    assert (use.lived, use.idle) == (500.0 + 86400.0, 90.0 + LOOK_SECONDS)


@pytest.mark.parametrize("uptime", [20.0, 1000.0, 5000.0])
def test_a_reboot_counts_no_time_and_is_no_use(uptime: float) -> None:
    use = BEFORE.after(Sample({"main1:9": 1.0}, {"main1:9": 0}, in_use=False), "next boot", uptime)
    assert (use.lived, use.idle, use.boot, use.uptime) == (500.0, 90.0, "next boot", uptime)
    assert BEFORE.lived_at("next boot", uptime) == 500.0


def test_the_age_is_known_between_looks() -> None:
    assert BEFORE.lived_at("boot", 1012.0) == 512.0


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.floats(0, 1e6)), max_size=20))
def test_looks_at_any_moments_count_no_more_idle_time_than_their_number(moments: list[tuple[str, float]]) -> None:
    use = SessionUse("a", 0.0)
    for boot, uptime in moments:
        lived = use.lived
        use = use.after(Sample({}, {}, in_use=False), boot, uptime)
        assert use.lived >= lived
    assert 0.0 <= use.idle <= LOOK_SECONDS * len(moments)

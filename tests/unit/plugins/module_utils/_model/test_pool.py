"""An amount that several share."""

from __future__ import annotations

from ansible_collections.backendai.cluster.plugins.module_utils._model.pool import Pool, equal_parts


def test_parts_are_equal_if_nothing_is_given_back() -> None:
    pool = Pool(1000)
    assert [pool.take(part) for part in equal_parts(4)] == [250, 250, 250, 250]
    assert pool.take(1.0) == 0


def test_what_is_given_back_is_for_those_after() -> None:
    pool, parts = Pool(900), equal_parts(3)
    assert pool.take(next(parts)) == 300
    pool.give_back(300)
    assert [pool.take(next(parts)), pool.take(next(parts))] == [450, 450]
    pool.give_back(-5)
    assert pool.take(1.0) == 0


def test_a_part_may_have_a_limit() -> None:
    pool = Pool(900)
    assert (pool.take(0.5, 100), pool.take(1.0)) == (100, 800)

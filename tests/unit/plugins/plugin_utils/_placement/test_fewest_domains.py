"""The fewest domains for containers of one shape, compared with all sets of domains."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.fewest_domains import fewest_domains

LEVELS = 3
any_paths = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("cd"), st.sampled_from("ef")), min_size=1, max_size=7, unique=True
)
any_rooms = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=7, max_size=7)


def cost(
    paths: Sequence[tuple[str, ...]], rooms: Sequence[Sequence[int]], chosen: Sequence[int], size: int, *, as_many: bool
) -> list[int]:
    """Return how many domains of each level, and then agents, hold the containers; without the latter if none do."""
    domains = [len({paths[at][:level] for at in chosen}) for level in range(1, LEVELS + 1)]
    agents = sorted((room for at in chosen for room in rooms[at]), reverse=True)
    if sum(agents) < size:
        return []
    fewest = next(many for many in range(1, len(agents) + 1) if sum(agents[:many]) >= size)
    return [*domains, -min(size, len(agents)) if as_many else fewest]


@given(any_paths, any_rooms, st.integers(1, 40), st.booleans())
def test_no_other_set_of_domains_is_smaller_and_no_equal_one_comes_first(
    paths: list[tuple[str, ...]], rooms: list[list[int]], size: int, as_many: bool
) -> None:
    paths.sort()
    size = min(size, sum(map(sum, rooms[: len(paths)])))
    found = fewest_domains(paths, rooms[: len(paths)], size, as_many=as_many)
    sets = (chosen for many in range(1, len(paths) + 1) for chosen in itertools.combinations(range(len(paths)), many))
    costs = [(cost(paths, rooms, chosen, size, as_many=as_many), chosen) for chosen in sets]
    assert tuple(found) == min(each for each in costs if each[0])[1]

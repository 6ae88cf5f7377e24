"""The cordon of an agent, as it is stored there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.cordon import (
    DamagedCordonError,
    read_cordon,
    replace_cordon,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.cordon import Cordon
from tests.unit.builders import NOW

DISK = Cordon("disk", "carol", NOW)
DRAIN = Cordon("disk", "carol", NOW, NOW + 600)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return the store of a provisioned agent."""
    (tmp_path / "lock").touch()
    return Store(str(tmp_path))


def replaced(store: Store, *cordons: Cordon | None) -> list[Change]:
    """Return the changes by the last of these cordons, each of which replaces the one before."""
    changes: list[Change] = []
    for cordon in cordons:
        _after, changes = replace_cordon(store, cordon, check_mode=False)
    return changes


def test_an_agent_without_a_file_has_no_cordon(store: Store) -> None:
    assert read_cordon(store) is None
    assert replaced(store, None) == []


def test_a_cordon_is_kept_until_it_is_removed(store: Store) -> None:
    assert replaced(store, DISK) == [Change("cordon", None, "cordoned by carol (disk)")]
    assert read_cordon(store) == DISK
    assert replaced(store, None) == [Change("cordon", "cordoned by carol (disk)", None)]
    assert (read_cordon(store), store.cordon_file.exists()) == (None, False)


def test_check_mode_writes_nothing(store: Store) -> None:
    after, changes = replace_cordon(store, DISK, check_mode=True)
    assert (after, len(changes), read_cordon(store)) == (DISK, 1, None)


@pytest.mark.parametrize("later", [Cordon("disk", "dave", NOW + 60), DISK])
def test_the_same_cordon_again_changes_nothing(store: Store, later: Cordon) -> None:
    assert replaced(store, DISK, later) == []
    assert read_cordon(store) == DISK


@pytest.mark.parametrize(
    ("before", "wanted", "end"),
    [
        (DISK, DRAIN, NOW + 600),
        (DRAIN, Cordon("disk", "carol", NOW, NOW + 900), NOW + 600),
        (DRAIN, Cordon("disk", "carol", NOW, NOW), NOW),
        (DRAIN, DISK, None),
        (DRAIN, Cordon("memory", "carol", NOW, NOW + 900), NOW + 600),
    ],
)
def test_the_end_of_sessions_is_only_brought_forward_or_called_off(
    store: Store, before: Cordon, wanted: Cordon, end: float | None
) -> None:
    replaced(store, before, wanted)
    found = read_cordon(store)
    assert found is not None
    assert (found.reason, found.sessions_end_at) == (wanted.reason, end)


@pytest.mark.parametrize("text", ["", "[]", '{"version": 3, "reason": 1}', '{"version": 9}'])
def test_a_damaged_cordon_is_an_error_and_can_be_replaced(store: Store, text: str) -> None:
    store.cordon_file.write_text(text)
    with pytest.raises(DamagedCordonError, match=r"cordon\.json is damaged .*: run backendai\.cluster\."):
        read_cordon(store)
    (change,) = replaced(store, None)
    assert "is damaged" in str(change.before)
    assert not store.cordon_file.exists()


def test_a_cordon_says_who_why_and_until_when() -> None:
    assert Cordon("", "carol", NOW).description == "cordoned by carol"
    assert DRAIN.description == "cordoned by carol (disk), its sessions end by 2027-01-15 08:10 UTC"

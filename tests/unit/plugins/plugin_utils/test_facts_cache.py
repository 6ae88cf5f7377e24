"""Facts that are kept for a while: how old they may be, who can read them, and what is damaged."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.plugin_utils.facts_cache import FactsCache
from tests.unit.builders import agent_data

FACTS = {"agent1": agent_data("agent1"), "agent2": agent_data("agent2", 4)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "queue" / "facts"


def aged(folder: Path, seconds: float) -> None:
    """Make what is kept that many seconds old."""
    then = time.time() - seconds
    for path in folder.iterdir():
        os.utime(path, (then, then))


def test_facts_come_back_as_they_were_saved(folder: Path) -> None:
    FactsCache(folder).save(FACTS)
    assert {name: FactsCache(folder).load(name, 60) for name in FACTS} == FACTS


def test_saving_again_replaces_what_was_there_and_makes_it_young(folder: Path) -> None:
    cache = FactsCache(folder)
    cache.save(FACTS)
    aged(folder, 100)
    cache.save({"agent1": agent_data("agent1", 2)})
    assert cache.load("agent1", 60) == agent_data("agent1", 2)
    assert cache.load("agent2", 60) is None
    assert sorted(path.name for path in folder.iterdir()) == ["agent1.json", "agent2.json"]


@pytest.mark.parametrize(("age", "kept"), [(50, True), (70, False)])
def test_facts_are_used_as_long_as_they_are_young_enough(folder: Path, age: float, kept: bool) -> None:
    cache = FactsCache(folder)
    cache.save(FACTS)
    aged(folder, age)
    assert (cache.load("agent1", 60) is not None) is kept


def test_an_agent_that_was_never_asked_has_none(folder: Path) -> None:
    assert FactsCache(folder).load("agent1", 60) is None


@pytest.mark.parametrize("content", [b"", b"{", b'["agent"]', b"null", b"\xff\xfe"], ids=repr)
def test_what_is_damaged_is_not_there(folder: Path, content: bytes) -> None:
    cache = FactsCache(folder)
    cache.save(FACTS)
    (folder / "agent1.json").write_bytes(content)
    assert (cache.load("agent1", 60), cache.load("agent2", 60)) == (None, FACTS["agent2"])


def test_dropped_agents_are_forgotten_and_others_are_not(folder: Path) -> None:
    cache = FactsCache(folder)
    cache.drop(["agent1"])
    assert not folder.exists()
    cache.save(FACTS)
    cache.drop(["agent1", "agent9"])
    assert (cache.load("agent1", 60), cache.load("agent2", 60)) == (None, FACTS["agent2"])


@pytest.mark.parametrize("name", ["../agent1", "a/b", "agent 1", ".new", "ägent", "fd00::1"])
def test_whatever_an_agent_is_called_its_file_stays_in_the_folder(folder: Path, name: str) -> None:
    cache = FactsCache(folder)
    cache.save({name: FACTS["agent1"]})
    assert len(list(folder.iterdir())) == 1
    assert cache.load(name, 60) == FACTS["agent1"]
    cache.drop([name])
    assert cache.load(name, 60) is None


def test_facts_and_the_queue_beside_them_are_for_their_owner_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        FactsCache(folder).save(FACTS)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder, folder / "agent1.json")]
    assert modes == [0o700, 0o700, 0o600]


def test_a_folder_that_cannot_be_made_is_one_sentence(folder: Path) -> None:
    folder.parent.write_text("in the way")
    with pytest.raises(AnsibleActionFail) as refused:
        FactsCache(folder).save(FACTS)
    assert str(refused.value) == f"session_facts_max_age: facts cannot be kept in '{folder}': File exists."


def test_a_file_that_cannot_be_replaced_is_one_sentence_and_leaves_nothing(folder: Path) -> None:
    (folder / "agent1.json").mkdir(parents=True)
    with pytest.raises(AnsibleActionFail) as refused:
        FactsCache(folder).save({"agent1": FACTS["agent1"]})
    assert str(refused.value) == f"session_facts_max_age: facts cannot be kept in '{folder}': Is a directory."
    assert [path.name for path in folder.iterdir()] == ["agent1.json"]

"""The facts cache: maximum age, permissions, and dropped facts."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.utils.display import Display

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils.facts_cache import FactsCache
from tests.unit.builders import agent_facts

FACTS = {"agent1": agent_facts("agent1"), "agent2": agent_facts("agent2", 4)}
GROUP = 12345 if os.geteuid() == 0 else (os.getgroups() or [os.getegid()])[-1]


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run a test under a permissive, the usual and a strict umask."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the cache in an existing queue."""
    (tmp_path / "queue").mkdir(mode=0o700)
    return tmp_path / "queue" / "facts"


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the warnings that are shown."""
    shown: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _display, text, **_options: shown.append(text))
    return shown


def save(folder: Path, *facts: AgentFacts) -> FactsCache:
    """Save facts that were read just now; return the cache."""
    cache = FactsCache(folder)
    cache.save(facts or FACTS.values(), time.time())
    return cache


def aged(folder: Path, seconds: float) -> None:
    """Make the cached facts that many seconds old."""
    then = time.time() - seconds
    for path in folder.iterdir():
        os.utime(path, (then, then))


def modes(*paths: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in paths]


def test_facts_come_back_as_they_were_saved(folder: Path) -> None:
    save(folder)
    assert {name: FactsCache(folder).load(name, 60) for name in FACTS} == FACTS


def test_saving_again_replaces_what_was_there_and_makes_it_young(folder: Path) -> None:
    save(folder)
    aged(folder, 100)
    cache = save(folder, agent_facts("agent1", 2))
    assert cache.load("agent1", 60) == agent_facts("agent1", 2)
    assert cache.load("agent2", 60) is None
    assert sorted(path.name for path in folder.iterdir()) == ["agent1.json", "agent2.json"]


@pytest.mark.parametrize(("age", "kept"), [(50, True), (70, False)])
def test_facts_are_used_as_long_as_they_are_young_enough(folder: Path, age: float, kept: bool) -> None:
    cache = save(folder)
    aged(folder, age)
    assert (cache.load("agent1", 60) is not None) is kept


def test_an_agent_that_was_never_asked_has_none(folder: Path) -> None:
    assert FactsCache(folder).load("agent1", 60) is None


@pytest.mark.parametrize("content", [b"", b"{", b'["agent"]', b"null", b"\xff\xfe", b'{"version": 1}'], ids=repr)
def test_what_is_damaged_is_not_there_and_warned_of(folder: Path, content: bytes, warnings: list[str]) -> None:
    cache = save(folder)
    (folder / "agent1.json").write_bytes(content)
    assert (cache.load("agent1", 60), cache.load("agent2", 60)) == (None, FACTS["agent2"])
    assert warnings == [f"session_facts_max_age: {folder}/agent1.json is damaged, so agent1 is asked."]


def test_what_another_release_has_kept_is_not_there(folder: Path, warnings: list[str]) -> None:
    cache = save(folder)
    (folder / "agent1.json").write_text('{"version": 0}')
    assert (cache.load("agent1", 60), warnings) == (None, [])


def test_dropped_agents_are_forgotten_and_others_are_not(folder: Path) -> None:
    cache = save(folder)
    cache.drop(["agent1", "agent9"])
    assert (cache.load("agent1", 60), cache.load("agent2", 60)) == (None, FACTS["agent2"])


def test_where_nothing_was_ever_kept_there_is_nothing_to_drop(folder: Path) -> None:
    FactsCache(folder).drop(["agent1"])
    assert not folder.exists()


@pytest.mark.parametrize(("since", "kept"), [(-5, False), (5, True)], ids=["read before", "read after"])
def test_what_was_read_before_an_agent_was_dropped_is_not_kept(folder: Path, since: float, kept: bool) -> None:
    cache = save(folder)
    cache.drop(["agent1"])
    cache.save(FACTS.values(), time.time() + since)
    assert (cache.load("agent1", 60) is not None, cache.load("agent2", 60)) == (kept, FACTS["agent2"])


def test_the_last_drop_counts(folder: Path) -> None:
    cache = save(folder)
    cache.drop(["agent1"])
    aged(folder, 100)
    began = time.time() - 50
    cache.drop(["agent1"])
    cache.save(FACTS.values(), began)
    assert cache.load("agent1", 60) is None


@pytest.mark.parametrize("name", ["../agent1", "a/b", "agent 1", ".new", "ägent", "fd00::1", "agent1.dropped"])
def test_whatever_an_agent_is_called_its_file_stays_in_the_folder(folder: Path, name: str) -> None:
    cache = save(folder, agent_facts(name), FACTS["agent1"])
    assert cache.load(name, 60) == agent_facts(name)
    cache.drop([name])
    assert (cache.load(name, 60), cache.load("agent1", 60)) == (None, FACTS["agent1"])
    assert [path.name for path in folder.parent.iterdir()] == ["facts"]


@pytest.mark.usefixtures("umask")
def test_facts_are_for_their_owner_alone(folder: Path) -> None:
    save(folder)
    assert modes(folder, folder / "agent1.json") == [0o700, 0o600]


@pytest.mark.usefixtures("umask")
def test_facts_in_a_shared_queue_are_shared_with_its_group(folder: Path) -> None:
    folder.parent.chmod(0o770)
    os.chown(folder.parent, -1, GROUP)
    save(folder)
    assert modes(folder, folder / "agent1.json") == [0o770, 0o660]
    assert [path.stat().st_gid for path in (folder, folder / "agent1.json")] == [GROUP, GROUP]


@pytest.mark.parametrize("exists", [False, True], ids=["no queue yet", "a file in the way"])
def test_facts_that_cannot_be_written_are_not_cached(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "queue" / "facts"
    if exists:
        folder.parent.write_text("in the way")
    cache = save(folder)
    cache.drop(["agent1"])
    assert cache.load("agent1", 60) is None
    assert len(list(tmp_path.iterdir())) == exists


def test_a_file_that_cannot_be_replaced_leaves_nothing(folder: Path) -> None:
    (folder / "agent1.json").mkdir(parents=True)
    save(folder)
    assert [path.name for path in folder.iterdir()] == ["agent1.json"]

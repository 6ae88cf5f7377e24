"""Runs that are limited to some hosts, and names that two sessions have: an error says what to give instead."""

from __future__ import annotations

import pytest

from tests.integration.laboratory import AGENTS
from tests.integration.session_requests import SMALL
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.requests


def test_limit_without_localhost_is_refused(sessions: Sessions) -> None:
    run = sessions.create("--limit", "agent1")
    assert run.code != 0
    assert "--limit 'agent1' excludes localhost, which plans sessions" in run.text


def test_limit_restricts_agents_and_duplicate_names_need_an_id(sessions: Sessions) -> None:
    first, second = (sessions.create("--limit", f"localhost,{agent}", **SMALL) for agent in AGENTS[:2])
    assert (first.code, second.code) == (0, 0), first.output + second.output
    assert [run.record["kernels"][0]["agent"] for run in (first, second)] == list(AGENTS[:2])
    both = ", ".join(sorted((first.record["id"], second.record["id"])))
    refused = sessions.terminate(name=sessions.name)
    assert refused.code != 0
    assert f"session_name: 2 sessions are called '{sessions.name}': give session_id ({both})." in refused.text
    ended = sessions.terminate(id=first.record["id"])
    assert (ended.code, ended.changed > 0, ended.record["status"]) == (0, True, "TERMINATED"), ended.output

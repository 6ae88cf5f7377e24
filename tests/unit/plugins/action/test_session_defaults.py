"""What a request leaves open is decided once, for a new session: cores and memory by its GPUs, and its apps."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.advice import NO_FOLDER, NO_GATEWAY, NO_KEYS
from ansible_collections.backendai.cluster.plugins.plugin_utils._run import hosts, session_run
from tests.unit.builders import GIB, IMAGE, REPOSITORY
from tests.unit.plugins.action.asked_hosts import GONE, use_short_names
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.session_site import SessionSite, note_shown

ASKED: dict[str, Any] = {"name": "train-llm", "image": IMAGE, "resources": {"cuda.device": 2}}
FOLLOWED = {"cpu": 4, "mem": 32 * GIB, "cuda.device": 2}
FIXED = {"cpu": 1, "mem": GIB, "cuda.device": 2}
TERMINAL = {"__session_defaults": {"apps": [{"name": "terminal", "path": "none"}]}}
GATEWAY = ("gateway1",)

MakeSite = Callable[..., SessionSite]


@pytest.fixture
def make_site(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSite:
    """Return a function that makes a site of two agents with 8 cores, 64 GiB and 4 GPUs each."""
    use_short_names(monkeypatch)
    for module in (session_run, hosts):
        monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)

    def make(gateways: tuple[str, ...] = ()) -> SessionSite:
        site = SessionSite(run, tmp_path, (8, 8), gateways)
        for agent in site.agents.values():
            agent.gpus = 4
        note_shown(site, monkeypatch)
        return site

    return make


def stored(queue: QueueStore) -> dict[str, Any]:
    (entry,) = queue.entries()
    return entry.spec or {}


def test_cores_and_memory_follow_the_gpus_and_a_line_says_so(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site()
    result = site.session(**ASKED)
    share = "the smallest share per GPU of the agents that could hold it. Name cpu and mem for others."
    notes = [
        f"Each container with cuda.device 2 gets cpu 4, mem 32g: {share}",
        NO_FOLDER,
        NO_GATEWAY.format("the inventory"),
    ]
    assert (result["notes"], site.shown[:3]) == (notes, notes)
    assert (stored(queue)["resources"], result["session"]["resources"]["container"]) == (FOLLOWED, FOLLOWED)


def test_a_session_that_exists_keeps_its_amounts_whatever_its_agents_have_now(
    make_site: MakeSite, queue: QueueStore
) -> None:
    site = make_site()
    site.session(**ASKED)
    for agent in site.agents.values():
        agent.cpu = 16
    again = site.session(**ASKED, variables={"__session_defaults": {"per_gpu": {"cpu": 3}}})
    assert (again.get("msg"), again["session"]["status"], "notes" in again) == (None, "RUNNING", False)
    assert stored(queue)["resources"] == FOLLOWED
    named = site.session(**{**ASKED, "resources": {"cuda.device": 2, "cpu": 5}})
    assert "differs in session_resources" in named["msg"]


def test_a_session_that_waits_keeps_its_amounts_too(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site()
    asked = {**ASKED, "cluster_size": 5}
    assert site.session(**asked)["session"]["status"] == "PENDING"
    before = stored(queue)["resources"]
    for agent in site.agents.values():
        agent.cpu = 16
    assert site.session(**asked)["session"]["status"] == "PENDING"
    assert stored(queue)["resources"] == before


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"cuda.device": 2, "cpu": 3}, {"cpu": 3, "mem": 32 * GIB}),
        ({"cuda.device": 2, "mem": "5g"}, {"cpu": 4, "mem": 5 * GIB}),
        ({"cuda.device": 0}, {"cpu": 1, "mem": GIB}),
        ({}, {"cpu": 1, "mem": GIB}),
        ('{"cuda.device": 1, "cpu": 3}', {"cpu": 3, "mem": 16 * GIB}),
    ],
    ids=["cores named", "memory named", "no GPU", "nothing", "as text"],
)
def test_only_what_is_open_follows(
    make_site: MakeSite, queue: QueueStore, resources: Any, expected: dict[str, int]
) -> None:
    make_site().session(**{**ASKED, "resources": resources})
    assert {slot: stored(queue)["resources"][slot] for slot in expected} == expected


def test_each_role_follows_its_own_gpus(make_site: MakeSite, queue: QueueStore) -> None:
    roles = {
        "main": {},
        "worker": {"replicas": 2, "resources": {"cuda.device": 1}},
        "large": {"resources": {"cuda.device": 2, "cpu": 1}},
    }
    make_site().session(name="train-llm", image=IMAGE, cluster_mode="multi-node", roles=roles)
    assert [
        (role["name"], role["resources"]["cpu"], role["resources"]["mem"] // GIB) for role in stored(queue)["roles"]
    ] == [
        ("main", 1, 1),
        ("worker", 2, 16),
        ("large", 1, 32),
    ]


def test_the_policy_says_what_a_gpu_brings_with_it(make_site: MakeSite, queue: QueueStore) -> None:
    policy = {"__session_defaults": {"per_gpu": {"cpu": 1, "mem": "3g"}}}
    result = make_site().session(**ASKED, variables=policy)
    assert stored(queue)["resources"] == {"cpu": 2, "mem": 6 * GIB, "cuda.device": 2}
    assert "cpu 2, mem 6g: the policy's share per GPU. " in result["notes"][0]


def test_create_session_has_one_core_and_one_gib_and_warns_the_one_difference(
    make_site: MakeSite, queue: QueueStore
) -> None:
    (play,) = yaml.safe_load((REPOSITORY / "playbooks/create_session.yml").read_text())
    (task,) = play["tasks"]
    result = make_site().session(**ASKED, variables=task["vars"])
    assert (stored(queue)["resources"], result["notes"][0]) == (FIXED, NO_FOLDER)
    assert result["warnings"] == [
        "cpu 1, mem 1g are the defaults, whatever GPUs a container has, here 2: name them in session_resources."
    ]
    plain = make_site().session(name="other", image=IMAGE, variables=task["vars"])
    assert plain["session"]["resources"]["container"] == {"cpu": 1, "mem": GIB}
    assert "warnings" not in plain


def test_create_session_warns_as_the_command_does(make_site: MakeSite) -> None:
    (play,) = yaml.safe_load((REPOSITORY / "playbooks/create_session.yml").read_text())
    fixed = play["tasks"][0]["vars"]
    of_manager = {"__session_limits": {"max_sessions": 9}}
    site = make_site(GATEWAY)
    app = {"name": "terminal", "path": "none"}
    asked: dict[str, Any] = {"name": "train-llm", "image": IMAGE, "cluster_size": 2, "apps": [app]}
    total, *others, link = site.session(**asked, variables=fixed)["notes"]
    assert total == "Resources are of one container: 2 × (cpu 1, mem 1g) = cpu 2, mem 2g in all."
    assert (others, link.partition(": ")[0]) == ([NO_FOLDER, NO_KEYS], "terminal has no link")
    *same, link = site.session(**{**asked, "name": "other"}, variables=of_manager)["notes"]
    assert (same, link.partition(": ")[0]) == ([total, *others], "terminal has no link")
    # It is said once, of a new session.
    assert "notes" not in site.session(**asked, variables=fixed)
    alone = make_site().session(name="third", image=IMAGE, variables=of_manager)
    assert alone["notes"][-1] == NO_GATEWAY.format("this manager")


def test_where_no_agent_is_known_for_its_gpus_the_defaults_are_said(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site()
    site.agents["agent1"].gpus = site.agents["agent2"].gpus = 0
    site.fault = lambda asked: GONE if asked.host == "agent1" else None
    result = site.session(**ASKED)
    assert (result["session"]["status"], stored(queue)["resources"]) == ("PENDING", FIXED)
    assert "gets cpu 1, mem 1g: the defaults, because no agent is known that could hold it. " in result["notes"][0]


def test_check_mode_says_what_would_be_decided(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site()
    result = site.session(**ASKED, check_mode=True)
    assert (result["notes"][0].partition(":")[0], queue.entries()) == (
        "Each container with cuda.device 2 gets cpu 4, mem 32g",
        [],
    )


def apps(site: SessionSite, **asked: Any) -> list[str]:
    """Return the apps of a session of a manager's user."""
    result = site.session(variables=TERMINAL, **{**ASKED, **asked})
    return [app["name"] for app in result["session"]["apps"]]


def test_a_session_gets_a_terminal_where_there_is_a_gateway(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site(GATEWAY)
    assert apps(site) == ["terminal"]
    assert stored(queue)["apps"][0]["path"] == "none"
    # A second run changes nothing.
    assert apps(site) == ["terminal"]
    assert "notes" not in site.session(variables=TERMINAL, **ASKED)


@pytest.mark.parametrize(
    ("gateways", "asked", "expected"),
    [
        ((), {}, []),
        (GATEWAY, {"command": "true"}, []),
        (GATEWAY, {"network_driver": "host"}, []),
        (GATEWAY, {"apps": [{"name": "web", "port": 7681}]}, ["web"]),
        (GATEWAY, {"apps": [{"name": "terminal", "port": 9000}]}, ["terminal"]),
        (GATEWAY, {"apps": ["jupyter"]}, ["jupyter", "terminal"]),
    ],
    ids=[
        "no gateway",
        "a batch session",
        "the host's network",
        "its port is taken",
        "its name is taken",
        "beside others",
    ],
)
def test_a_terminal_is_added_only_where_it_works(
    make_site: MakeSite, gateways: tuple[str, ...], asked: dict[str, Any], expected: list[str]
) -> None:
    assert apps(make_site(gateways), **asked) == expected


def test_a_session_that_exists_keeps_the_apps_that_it_has(make_site: MakeSite) -> None:
    site = make_site(GATEWAY)
    site.session(**ASKED)
    assert apps(site) == []
    assert "terminal" not in json.dumps(site.record["apps"])


REFUSES = {"__session_defaults": {"refuses_never": True}}


def test_what_never_fits_is_refused_where_a_manager_says_so(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site()
    asked = {**ASKED, "resources": {"cuda.device": 5}}
    result = site.session(**asked, variables=REFUSES)
    assert (result["failed"], result["refused"], queue.entries()) == (True, True, [])
    assert result["msg"].startswith("no room for 1 of 1 containers on 2 agents: short of cuda.device 5")
    assert result["msg"].endswith(
        "; it does not fit even on an empty cluster; --wait-for-hosts lets it wait for agents with more room."
    )
    # What the policy forbids does not wait for hosts either.
    beyond = site.session(
        **{**asked, "cluster_size": 4}, variables={**REFUSES, "__session_limits": {"max_containers": 3}}
    )
    assert beyond["msg"].startswith("max_containers: 4 containers are requested")
    # Whoever waits already goes on.
    site.session(**asked)
    again = site.session(**asked, variables=REFUSES)
    assert (again["session"]["status"], again.get("failed")) == ("PENDING", None)


def test_what_fits_on_an_empty_cluster_waits_and_says_the_next_end(make_site: MakeSite) -> None:
    site = make_site()
    first = site.session(**{**ASKED, "cluster_size": 2, "max_lifetime": 3600}, variables=REFUSES)["session"]
    result = site.session(**{**ASKED, "name": "second", "resources": {"cuda.device": 4}, "cluster_size": 1})
    assert result["session"]["status"] == "RUNNING"
    result = site.session(**{**ASKED, "name": "third"}, variables=REFUSES)
    assert (result["session"]["status"], "outlook" in result["session"]["pending"]) == ("PENDING", False)
    assert "next_end_at" not in result["session"]["pending"]
    for name in ("third", "second"):
        site.session(name=name, state="absent")
    site.session(**{**ASKED, "name": "second", "resources": {"cuda.device": 4}, "max_lifetime": 7200})
    result = site.session(**{**ASKED, "name": "fourth"}, variables=REFUSES)
    assert abs(result["session"]["pending"]["next_end_at"] - first["created_at"] - 3600) < 60


def test_a_pass_over_the_queue_says_what_may_be_expected(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site()
    site.session(**{**ASKED, "resources": {"cuda.device": 5}})
    (entry,) = queue.entries()
    bare = {name: entry.record["pending"][name] for name in ("reason", "shortfall")}
    queue.save(dataclasses.replace(entry, record={**entry.record, "pending": bare}))
    site.queue()
    (entry,) = queue.entries()
    assert entry.record["pending"]["outlook"] == "it does not fit even on an empty cluster"
    assert "  it does not fit even on an empty cluster" in site.shown

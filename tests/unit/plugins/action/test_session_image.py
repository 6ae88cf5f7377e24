"""The action session_image: images are pulled before sessions need them, or removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action import session_image
from ansible_collections.backendai.cluster.plugins.action.session_image import ActionModule
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS
from tests.unit.builders import DIGEST, IMAGE, agent_data, image_data
from tests.unit.plugins.action.conftest import Run

SETTINGS = {"registry_check": [], "allow_registry_login": False}
OTHER = "registry:5000/other:1"
STARTED = {
    "changed": True,
    "diff": {"after": "pulled"},
    "images": {},
    "under_way": ["x"],
    "started": True,
    "progress": "",
}
READER = {"username": "reader", "password": "hunter2"}
Pull = Callable[..., dict[str, Any]]


def under_way(progress: str = "") -> dict[str, Any]:
    return {**STARTED, "started": False, "progress": progress}


def pulled(name: str = IMAGE) -> dict[str, Any]:
    return {"changed": False, "diff": {"after": ""}, "images": {name: image_data()}, "under_way": [], "progress": ""}


class Clock:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of the action."""
    created = Clock()
    monkeypatch.setattr(session_image, "time", created)
    return created


@pytest.fixture
def sent() -> list[dict[str, Any]]:
    """Return the requests to the agent, one for each poll, without connection options."""
    return []


@pytest.fixture
def ask(run: Run, sent: list[dict[str, Any]], clock: Clock) -> Pull:
    """Return a function that runs the action without a session, with these replies to its requests."""
    assert clock.slept == []

    def ask_for(
        replies: list[dict[str, Any]], args: dict[str, Any], *, check_mode: bool = False, **hostvars: Any
    ) -> dict[str, Any]:
        replying = iter(replies)

        class Asked(ActionModule):
            def call(self, phase: str, options: Any, *_how: Any) -> dict[str, Any]:
                sent.append(
                    {"phase": phase, **{name: options[name] for name in options if name not in CONNECTION_OPTIONS}}
                )
                reply = next(replying)
                if "failed" in reply:
                    raise AnsibleActionFail(reply["failed"])
                return reply

        variables = {"inventory_hostname": "agent2", "ansible_play_batch": ["agent2"] * 9, "ansible_forks": 1}
        known = {name: hostvars.get(name, {}) for name in ("agent1", "agent2")}
        registries = {"session_registries": {"registry:5000": READER}}
        return run(Asked, args, {**variables, **registries, "hostvars": known}, check_mode=check_mode)

    return ask_for


def prefetch(*images: str) -> dict[str, Any]:
    return {"state": "present", "images": [*images], "agents": ["agent1", "agent2"]}


def test_image_is_pulled_without_a_session_as_a_session_would(
    ask: Pull, sent: list[dict[str, Any]], printed: list[str]
) -> None:
    result = ask(
        [STARTED, under_way("1.0 of 3.0 MB,\n0 of 1 layers"), {**pulled(OTHER), "size": 3 * 10**6}], prefetch(OTHER)
    )
    assert (result["changed"], result["images"], result["missing"]) == (True, {OTHER: image_data()}, [])
    request = {name: sent[0][name] for name in ("phase", "session_id", "name", "reference", "logins", "registry")}
    login = {"registry:5000": READER}
    assert request == {
        "phase": "pull",
        "session_id": "",
        "name": OTHER,
        "reference": OTHER,
        "logins": login,
        "registry": SETTINGS,
    }
    assert len({entry["nonce"] for entry in sent}) == 1
    assert printed == [
        "agent2: pulling registry:5000/other:1: 1.0 of 3.0 MB, 0 of 1 layers",
        "agent2: registry:5000/other:1 was pulled, 3.0 MB.",
    ]


def test_content_that_another_agent_has_is_pulled(ask: Pull, sent: list[dict[str, Any]], printed: list[str]) -> None:
    images = {IMAGE: image_data(registry="lab/python"), OTHER: None}
    read = {"__session_agent": {"agent": agent_data("agent1", images=images)}}
    read["__agent_images"] = {"images": {OTHER: image_data(registry="registry:5000/other")}}
    ask([{**pulled(), "size": 10}, {**pulled(OTHER), "size": 10}], prefetch(IMAGE, OTHER), agent1=read)
    assert [entry["reference"] for entry in sent] == [f"lab/python@{DIGEST}", f"registry:5000/other@{DIGEST}"]
    assert printed == ["agent2: lab/python:1 was there, 0.0 kB.", "agent2: registry:5000/other:1 was there, 0.0 kB."]


def test_image_that_cannot_be_pulled_does_not_keep_others_from_it(ask: Pull) -> None:
    result = ask([{"failed": "session_image: 'x' is not on this host (no)."}, pulled(OTHER)], prefetch(IMAGE, OTHER))
    assert (result["failed"], result["msg"]) == (True, "agent_images: 'x' is not on this host (no).")
    assert (result["missing"], list(result["images"])) == ([IMAGE], [OTHER])


def test_images_that_differ_between_agents_are_not_pulled(ask: Pull, sent: list[dict[str, Any]]) -> None:
    first, second = (
        {"__session_agent": {"agent": agent_data("agent1", images={IMAGE: image_data(n)})}} for n in (1, 2)
    )
    result = ask([], prefetch(IMAGE), agent1=first, agent2=second)
    assert result["msg"].startswith("agent_images: 'lab/python:1' is not the same on all agents: sha256:1… on agent1, ")
    assert sent == []


def test_damaged_facts_of_an_agent_lead_nowhere(ask: Pull, sent: list[dict[str, Any]]) -> None:
    damaged = {
        "__session_agent": {"agent": {**agent_data("agent1"), "images": {IMAGE: {"reference": "evil@sha256:1"}}}}
    }
    ask([pulled()], prefetch(IMAGE), agent1=damaged)
    assert sent[0]["reference"] == IMAGE


def test_check_mode_says_what_would_be_pulled(ask: Pull, printed: list[str]) -> None:
    result = ask([{**STARTED, "under_way": []}], prefetch(IMAGE), check_mode=True)
    assert (result["changed"], result["missing"]) == (True, [])
    assert printed == ["agent2: lab/python:1 would be pulled."]


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (["", " "], "agent_images is required: the images to pull, as a list or comma-separated."),
        (["a b"], "agent_images: 'a b' is not the name of an image."),
        (["a\x1b"], "agent_images: 'a\\x1b' is not the name of an image."),
    ],
)
def test_names_that_are_none_are_refused(
    ask: Pull, sent: list[dict[str, Any]], images: list[str], sentence: str
) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        ask([], prefetch(*images))
    assert (str(refused.value), sent) == (sentence, [])


# ---- removal

REMOVED = {
    "changed": True,
    "removed": [{"name": IMAGE, "size": 4 * 10**9, "unused_days": 1}],
    "kept": ["other:1: the engine keeps it (no)."],
    "folder": "/var/lib/docker",
    "free_before": 10**9,
    "free": 5 * 10**9,
}


def remove(**options: Any) -> dict[str, Any]:
    return {"state": "absent", "images": [OTHER], **options}


def test_images_are_removed_by_the_rules_of_the_operator(
    ask: Pull, sent: list[dict[str, Any]], printed: list[str]
) -> None:
    result = ask([REMOVED], remove(unused_days="7", free_space="5g", others="yes"))
    rules = {"unused_days": 7, "free_bytes": 5 << 30, "needed": [OTHER], "others": True}
    assert sent == [{"phase": "prune", "rules": rules}]
    assert printed == [
        "agent2: lab/python:1 was removed, 4.0 GB, not needed for 1 day.",
        "agent2: 1 image removed, 5.0 GB are free in /var/lib/docker.",
    ]
    left = "the images that are left are needed, or did not come with sessions."
    assert result["warnings"] == [
        "agent2: other:1: the engine keeps it (no).",
        f"agent2: 5.0 GB are free in /var/lib/docker, less than agent_image_free_space, 5.4 GB: {left}",
    ]


def test_by_default_images_go_that_were_not_needed_for_a_month(
    ask: Pull, sent: list[dict[str, Any]], printed: list[str]
) -> None:
    result = ask([{**REMOVED, "removed": [], "kept": []}], remove())
    assert sent[0]["rules"] == {"unused_days": 30, "free_bytes": 0, "needed": [OTHER], "others": False}
    assert ("warnings" in result, printed) == (
        False,
        ["agent2: no images removed, 5.0 GB are free in /var/lib/docker."],
    )


def test_check_mode_says_what_would_be_removed(ask: Pull, printed: list[str]) -> None:
    ask([REMOVED], remove(), check_mode=True)
    assert printed == [
        "agent2: lab/python:1 would be removed, 4.0 GB, not needed for 1 day.",
        "agent2: 1 image would be removed, at most 5.0 GB would be free in /var/lib/docker.",
    ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"unused_days": -1}, "agent_image_unused_days: -1 must be 0 or more."),
        ({"free_space": "much"}, "agent_image_free_space: 'much' must be bytes, such as 1g, 512m or 1073741824."),
    ],
)
def test_rules_that_make_no_sense_are_refused(
    ask: Pull, sent: list[dict[str, Any]], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        ask([], remove(**options))
    assert (str(refused.value), sent) == (sentence, [])

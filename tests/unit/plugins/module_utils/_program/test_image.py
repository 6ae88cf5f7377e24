"""The pull phase on an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import ImagePullError, Progress
from ansible_collections.backendai.cluster.plugins.module_utils._host.local_session import LocalSession
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import Credential, ImageIdentity
from ansible_collections.backendai.cluster.plugins.module_utils._program import image
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim_guard import ClaimLostError
from ansible_collections.backendai.cluster.plugins.module_utils._session.image_access import ImageAccess
from ansible_collections.backendai.cluster.plugins.module_utils._session.prune import Pruned, PruneRules, RemovedImage
from ansible_collections.backendai.cluster.plugins.module_utils._session.pull import (
    ForRun,
    ForSession,
    Pull,
    PullStatus,
    Purpose,
)
from tests.unit.builders import IMAGE, SESSION_ID, held, image_data, plan
from tests.unit.fake_docker import FakeDocker
from tests.unit.phases import NOWHERE, failure_of, result_of

HELD = held(plan({"agent1": 1}))
PULLED = {"before": "", "after": f"image {IMAGE}: pulled\n"}
NOTHING = {"before": "", "after": ""}


@pytest.fixture
def look(tmp_path: Path) -> dict[str, Any]:
    """Return the options of a request that only renews the claim."""
    claim = {"session_id": SESSION_ID, "nonce": "nonce-1", "seconds": 60}
    nothing = {"name": "", "reference": "", "logins": {}, "registry": {}}
    return {"docker_host": NOWHERE, "state_path": str(tmp_path), **claim, **nothing}


@pytest.fixture
def pull(look: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a request with an image."""
    return {**look, "name": IMAGE, "reference": "lab/python@sha256:a"}


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the recorded calls: renewed claims and pulls; a pull is running."""
    calls: list[Any] = []

    def renew(_store: Any, *claim: Any) -> LocalSession:
        calls.append(claim)
        return HELD

    def look_at(_client: Any, docker_host: str, purpose: Purpose, pull_request: Pull) -> PullStatus:
        calls.append((docker_host, type(purpose), purpose.nonce, pull_request))
        return PullStatus(None, Progress(10_000_000, 30_000_000, 0, 1), started=True)

    monkeypatch.setattr(image, "connect", lambda _address: FakeDocker())
    monkeypatch.setattr(image, "renew_claim", renew)
    monkeypatch.setattr(image, "ensure_pull", look_at)
    return calls


def test_without_an_image_only_the_claim_is_renewed(calls: list[Any], look: dict[str, Any]) -> None:
    assert result_of("pull", look) == {"changed": False, "images": {}, "under_way": []}
    assert calls == [(SESSION_ID, "nonce-1", 60)]


def test_running_pull_is_returned(calls: list[Any], pull: dict[str, Any]) -> None:
    assert result_of("pull", {**pull, "logins": {"docker.io": {"username": "reader", "password": "hunter2"}}}) == {
        "changed": True,
        "diff": PULLED,
        "images": {},
        "size": 0,
        "under_way": [IMAGE],
        "started": True,
        "progress": "10.0 of 30.0 MB, 0 of 1 layers",
    }
    pull_request = Pull(IMAGE, "lab/python@sha256:a", ImageAccess({"docker.io": Credential("reader", "hunter2")}))
    assert calls == [(SESSION_ID, "nonce-1", 60), (NOWHERE, ForSession, "nonce-1", pull_request)]


def test_without_a_password_no_credential_is_used(calls: list[Any], pull: dict[str, Any]) -> None:
    result_of("pull", {**pull, "registry": {"registry_check": ["docker.io"], "allow_registry_login": True}})
    assert calls[1][3] == Pull(IMAGE, "lab/python@sha256:a", ImageAccess({}, ["docker.io"], True))


def test_present_image_is_returned(pull: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "ensure_pull", lambda *_look: PullStatus(ImageIdentity("sha256:1", "sha256:1")))
    result = result_of("pull", pull)
    assert (result["changed"], result["images"], result["under_way"]) == (False, {IMAGE: image_data()}, [])
    assert result["diff"] == NOTHING


def test_without_a_session_the_run_wants_the_image(calls: list[Any], pull: dict[str, Any], tmp_path: Path) -> None:
    result = result_of("pull", {**pull, "session_id": "", "nonce": "run-1"})
    assert result["under_way"] == [IMAGE]
    assert calls == [(NOWHERE, ForRun, "run-1", Pull(IMAGE, "lab/python@sha256:a"))]
    with ForRun(Store(str(tmp_path)), "").wanted(IMAGE) as nonce:
        assert nonce == "run-1"


def test_images_are_pruned_by_the_rules_of_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def prune(_client: Any, _store: Any, rules: PruneRules, _now: float, *, check_mode: bool) -> Pruned:
        asked.extend([rules, check_mode])
        return Pruned("/var/lib/docker", 10, 30, [RemovedImage(IMAGE, 20, 40)], ["other:1: the engine keeps it (no)."])

    monkeypatch.setattr(image, "prune_images", prune)
    rules = {"unused_days": 30, "free_bytes": 0, "needed": [IMAGE], "others": False}
    request = {"docker_host": NOWHERE, "state_path": str(tmp_path), "rules": rules}
    assert result_of("prune", request, check_mode=True) == {
        "changed": True,
        "diff": {"before": f"image {IMAGE}: present\n", "after": ""},
        "removed": [{"name": IMAGE, "size": 20, "unused_days": 40}],
        "kept": ["other:1: the engine keeps it (no)."],
        "folder": "/var/lib/docker",
        "free_before": 10,
        "free": 30,
    }
    assert asked == [PruneRules(30, 0, [IMAGE]), True]


@pytest.mark.parametrize("step", ["ensure_pull", "renew_claim"])
@pytest.mark.parametrize("error", [ImagePullError("no"), ClaimLostError("no")])
def test_errors_are_one_sentence(
    pull: dict[str, Any], monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    def fail(*_given: Any) -> PullStatus:
        raise error

    monkeypatch.setattr(image, step, fail)
    assert failure_of("pull", pull) == "no."


@pytest.mark.parametrize(
    ("name", "changed", "images", "diff"),
    [
        (IMAGE, False, {IMAGE: image_data()}, NOTHING),
        ("other:1", True, {}, {**PULLED, "after": "image other:1: pulled\n"}),
    ],
    ids=["there", "missing"],
)
def test_check_mode_returns_the_pull_and_needs_no_claim(
    calls: list[Any], pull: dict[str, Any], name: str, changed: bool, images: dict[str, Any], diff: dict[str, str]
) -> None:
    result = result_of("pull", {**pull, "name": name}, check_mode=True)
    assert (result["changed"], result["images"], result["under_way"]) == (changed, images, [])
    assert (result["diff"], calls) == (diff, [])


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_stopped_engine_fails_with_one_sentence(
    pull: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, check_mode: bool
) -> None:
    monkeypatch.undo()
    sentence = failure_of("pull", pull, check_mode=check_mode)
    assert sentence.startswith(f"the Docker engine at {NOWHERE} does not answer the Docker SDK for Python ")
    assert list(tmp_path.iterdir()) == []

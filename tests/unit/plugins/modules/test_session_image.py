"""What the module says of one look at one image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import ImageUnavailable
from ansible_collections.backendai.cluster.plugins.module_utils._docker.pull_progress import Progress
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import KnownImage
from ansible_collections.backendai.cluster.plugins.module_utils._model.registries import Credential
from ansible_collections.backendai.cluster.plugins.module_utils._session.pull import Pull, Seen
from ansible_collections.backendai.cluster.plugins.modules import session_image
from tests.unit.builders import IMAGE, SESSION_ID, held, image_data, plan
from tests.unit.engine import Engine
from tests.unit.plugins.modules.test_failures import result_of

LOOK = {"session_id": SESSION_ID, "nonce": "nonce-1", "seconds": 60}
ONE = {**LOOK, "name": IMAGE, "reference": "lab/python@sha256:a"}
PULLED = {"before": "", "after": f"image {IMAGE}: pulled\n"}
NOTHING = {"before": "", "after": ""}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what is asked of the agent: claims that go on, and looks; the last one is what a look sees."""
    calls: list[Any] = []

    def renew(_store: Any, *claim: Any) -> Any:
        calls.append(claim)
        return held(plan({"agent1": 1}))

    def look(_client: Any, docker_host: str, _store: Any, _held: Any, wanted: Pull) -> Seen:
        calls.append((docker_host, wanted))
        return Seen(None, Progress(10_000_000, 30_000_000, 0, 1), started=True)

    monkeypatch.setattr(session_image, "connect", lambda _address: Engine())
    monkeypatch.setattr(session_image, "renew", renew)
    monkeypatch.setattr(session_image, "look", look)
    return calls


def said(args: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path, **how: bool) -> dict[str, Any]:
    result = result_of("session_image", {**args, "state_path": str(tmp_path)}, capsys, **how)
    result.pop("invocation")
    return result


def test_without_an_image_only_the_claim_goes_on(
    asked: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert said(LOOK, capsys, tmp_path) == {"changed": False, "images": {}, "under_way": []}
    assert asked == [(SESSION_ID, "nonce-1", 60)]


def test_a_pull_that_is_under_way_is_told(asked: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    login = {"username": "reader", "password": "hunter2"}
    assert said({**ONE, **login}, capsys, tmp_path) == {
        "changed": True,
        "diff": PULLED,
        "images": {},
        "under_way": [IMAGE],
        "started": True,
        "progress": "10.0 of 30.0 MB, 0 of 1 layers",
    }
    wanted = Pull(IMAGE, "lab/python@sha256:a", Credential("reader", "hunter2"))
    assert asked == [(SESSION_ID, "nonce-1", 60), ("unix:///var/run/docker.sock", wanted)]


def test_without_a_password_none_is_used(asked: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said(ONE, capsys, tmp_path)
    assert asked[1][1] == Pull(IMAGE, "lab/python@sha256:a", None)


@pytest.mark.usefixtures("asked")
def test_an_image_that_is_there_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_image, "look", lambda *_look: Seen(KnownImage("sha256:1", "sha256:1")))
    result = said(ONE, capsys, tmp_path)
    assert (result["changed"], result["images"], result["under_way"]) == (False, {IMAGE: image_data()}, [])
    assert result["diff"] == NOTHING


@pytest.mark.usefixtures("asked")
def test_a_pull_that_fails_fails_with_its_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_look: Any) -> Seen:
        raise ImageUnavailable("no")

    monkeypatch.setattr(session_image, "look", fail)
    result = said(ONE, capsys, tmp_path)
    assert (result["failed"], result["msg"]) == (True, "no.")


@pytest.mark.parametrize(
    ("name", "changed", "images", "diff"),
    [
        (IMAGE, False, {IMAGE: image_data()}, NOTHING),
        ("other:1", True, {}, {**PULLED, "after": "image other:1: pulled\n"}),
    ],
    ids=["there", "missing"],
)
def test_check_mode_tells_what_would_be_pulled_and_needs_no_claim(
    asked: list[Any],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    name: str,
    changed: bool,
    images: dict[str, Any],
    diff: dict[str, str],
) -> None:
    result = said({**ONE, "name": name}, capsys, tmp_path, check_mode=True)
    assert (result["changed"], result["images"], result["under_way"]) == (changed, images, [])
    assert result["diff"] == diff
    assert asked == []


@pytest.mark.usefixtures("asked")
def test_a_password_is_not_in_what_the_module_says_it_was_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    registries = {"localhost": {"username": "reader", "password": "hunter3"}}
    login = {"username": "reader", "password": "hunter2", "registries": registries}
    result = result_of("session_image", {**ONE, **login, "state_path": str(tmp_path)}, capsys)
    assert "hunter" not in str(result)

"""An agent's part of a session's logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._session.logs import read_logs
from ansible_collections.backendai.cluster.plugins.module_utils._session.reply_logs import ReplyLogs
from tests.unit.builders import SESSION_ID, held, own_labels, plan

APPS = [{"name": "jupyter", "port": 8080}, {"name": "tensorboard", "port": 6006}]
MADE = plan({"agent1": 2, "agent2": 1}, apps=APPS)
TIME = b"2026-03-01T02:59:57.120395714Z "


def write_app_logs(store: Store, **contents: bytes) -> Path:
    """Write the logs of apps of the session on its agent, by name; return their folder."""
    folder = store.homes.folder(SESSION_ID, "main1") / "log"
    folder.mkdir(parents=True, exist_ok=True)
    for app, content in contents.items():
        (folder / f"{app}.log").write_bytes(content)
    return folder


def add(engine: Any, hostname: str, *, state: str = "running", **more: Any) -> None:
    """Add a container of the session to an engine."""
    bears = own_labels(hostname)
    bears[labels.IMAGE_DIGEST] = "sha256:1"
    engine.made.append(
        {"Id": f"id-{hostname}", "Names": [f"/backendai-train-llm-{hostname}"], "Labels": bears, "State": state, **more}
    )


def by_hostname(engine: Any) -> dict[str, Any]:
    """Return the containers of the session."""
    return {entry["Labels"][labels.HOSTNAME]: entry for entry in engine.made}


def test_logs_of_containers_and_of_apps_in_main1_are_read(engine: Any, store: Store) -> None:
    write_app_logs(store, jupyter=b"served\n")
    add(engine, "main1", Log=[(TIME, b"one\n"), (TIME, b"two\n")])
    ended = {"ExitCode": 3, "FinishedAt": "2026-03-01T03:00:00.5Z"}
    add(engine, "sub1", state="exited", Log=[(TIME, b"out of memory\n")], **ended)
    part = read_logs(engine, store, held(MADE, expires_at=1.0), "", 1, ReplyLogs())
    assert (part["id"], part["batch"]) == (MADE.id, bool(MADE.command))
    assert {name: (state["status"], state["exit_code"]) for name, state in part["containers"].items()} == {
        "main1": ("running", None),
        "sub1": ("exited", 3),
    }
    assert part["logs"] == {
        "main1": {"log": json.dumps([f"{TIME.decode()}two"]), "apps": {"jupyter": '["served"]'}, "error": None},
        "sub1": {"log": json.dumps([f"{TIME.decode()}out of memory"]), "apps": {}, "error": None},
    }


def test_only_the_logs_of_a_named_container_are_read(engine: Any, store: Store) -> None:
    add(engine, "main1", Log=APIError("never asked"))
    add(engine, "sub1")
    assert read_logs(engine, store, held(MADE), "sub1", 9, ReplyLogs())["logs"] == {
        "sub1": {"log": "[]", "apps": {}, "error": None}
    }
    assert read_logs(engine, store, held(MADE), "sub2", 9, ReplyLogs())["logs"] == {}


def test_missing_containers_have_no_logs(engine: Any, store: Store) -> None:
    add(engine, "sub1")
    assert list(read_logs(engine, store, held(MADE), "", 9, ReplyLogs())["logs"]) == ["sub1"]


@pytest.mark.parametrize("driver", [False, True], ids=["app", "app and driver"])
def test_unreadable_log_is_an_error_and_the_rest_is_read(engine: Any, store: Store, driver: bool) -> None:
    refusal = APIError("501", None, "configured logging driver does not support reading")
    (write_app_logs(store, jupyter=b"served\n") / "tensorboard.log").mkdir()
    add(engine, "main1", Log=refusal if driver else [(TIME, b"one\n")])
    sentences = ["its log cannot be read: configured logging driver does not support reading"] if driver else []
    sentences.append("/var/log/backendai/tensorboard.log is not a regular file")
    assert read_logs(engine, store, held(MADE), "", 9, ReplyLogs())["logs"]["main1"] == {
        "log": json.dumps([] if driver else [f"{TIME.decode()}one"]),
        "apps": {"jupyter": '["served"]'},
        "error": "; ".join(sentences),
    }

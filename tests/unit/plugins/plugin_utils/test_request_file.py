"""The options that users give in a file: read as data, and only those that are theirs."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import NetworkPools
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import SessionSpec
from ansible_collections.backendai.cluster.plugins.plugin_utils.request_file import MAX_BYTES, read_user_options
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import (
    specification,
    user_options,
    user_run_options,
)

SECRET = "hunter2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "request.json"


def refusal(path: Path, **variables: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        read_user_options({"session_request_path": str(path), **variables})
    return str(refused.value)


@pytest.mark.parametrize("path", [None, ""])
def test_without_a_file_there_are_no_options(path: str | None) -> None:
    assert read_user_options({"session_name": "t1"}) == {}
    assert read_user_options({"session_name": "t1", "session_request_path": path}) == {}


def test_options_are_returned_as_they_are_in_the_file(path: Path) -> None:
    options = {
        "session_name": "{{ 1 + 1 }}",
        "session_env": {"{% raw %}": "$(id)"},
        "session_mounts": [],
        "session_uid": 7,
    }
    path.write_text(json.dumps(options))
    assert read_user_options({"session_request_path": str(path)}) == options


def test_a_path_may_begin_with_the_home_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(path.parent))
    path.write_text('{"session_name": "t1"}')
    assert read_user_options({"session_request_path": "~/request.json"}) == {"session_name": "t1"}


def test_options_of_a_session_are_the_users_and_no_path_pool_template_or_queue_is() -> None:
    fields = {f"session_{field.name}" for field in dataclasses.fields(SessionSpec)}
    assert {*user_options()} == fields - {"session_no_new_privileges"}
    assert user_run_options() == (
        *(
            "session_id",
            "session_kernel",
            "session_logs_lines",
            "session_token_ttl",
            "session_force",
            "session_fresh_home",
        ),
        "session_wait",
        "session_history",
    )
    users = {*user_options(), *user_run_options()}
    assert users < set(specification())
    words = ("_path", "_template", "_pool", "_port", "_queue", "_limit", "_user", "_registries", "_facts", "_claim")
    assert [name for name in users if any(word in name for word in words)] == []
    pools = {f"session_{field.name}" for field in dataclasses.fields(NetworkPools)}
    assert users & pools == {"session_max_lifetime", "session_idle_timeout"}


@pytest.mark.parametrize("option", sorted({*specification()} - {*user_options(), *user_run_options()}))
def test_an_option_of_operators_is_refused(path: Path, option: str) -> None:
    path.write_text(json.dumps({"session_name": "t1", option: SECRET}))
    assert refusal(path) == f"{option} is an option of operators, and must not be in session_request_path."


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("session_nmae", "'session_nmae' is not an option of a session; did you mean session_name?"),
        ("cluster_size", "'cluster_size' is not an option of a session; did you mean session_cluster_size?"),
        ("session_imagee", "'session_imagee' is not an option of a session; did you mean session_image?"),
    ],
)
def test_an_unknown_word_is_refused_with_the_nearest_that_is_allowed(path: Path, name: str, sentence: str) -> None:
    path.write_text(json.dumps({name: SECRET}))
    assert refusal(path) == f"session_request_path: {sentence}"


@pytest.mark.parametrize("name", ["ansible_connection", "\x1b[2J", "", "x" * 100_000, "{{ lookup('pipe', 'id') }}"])
def test_a_word_that_is_no_name_is_shown_escaped_and_short(path: Path, name: str) -> None:
    path.write_text(json.dumps({name: SECRET}))
    sentence = refusal(path)
    assert sentence.startswith(f"session_request_path: {name[:80]!r}")
    assert len(sentence.partition("; ")[0]) < 160
    assert "\x1b" not in sentence
    assert f"allowed are {', '.join([*user_options(), *user_run_options()])}." in sentence


def test_an_option_that_is_a_variable_too_is_refused(path: Path) -> None:
    path.write_text(json.dumps({"session_name": "t1", "session_uid": 7}))
    assert (
        refusal(path, session_uid=7)
        == "session_uid is both in session_request_path and a variable; remove one of them."
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        SECRET.encode(),
        b"session_name: t1",
        b'{"session_name": "\xff"}',
        b'{"session_name": "\\ud800"}',
        b"[" * 100_000,
    ],
)
def test_a_file_that_is_not_json_is_refused_without_its_content(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert refusal(path) == f"session_request_path: {str(path)!r} is not JSON in UTF-8."


@pytest.mark.parametrize("value", [[], "x", 1, None, [{"session_name": "t1"}]])
def test_json_that_is_no_mapping_is_refused(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))
    assert refusal(path) == f"session_request_path: {str(path)!r} must contain a mapping of options."


def test_a_file_may_have_a_mebibyte_and_no_more(path: Path) -> None:
    path.write_text('{"session_name": "t1"}'.ljust(MAX_BYTES))
    assert read_user_options({"session_request_path": str(path)}) == {"session_name": "t1"}
    path.write_text('{"session_name": "t1"}'.ljust(MAX_BYTES + 1))
    assert refusal(path) == f"session_request_path: {str(path)!r} is larger than 1048576 bytes."


def test_a_huge_file_is_not_read(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    assert refusal(path) == f"session_request_path: {str(path)!r} is larger than 1048576 bytes."


def test_a_fifo_is_refused_at_once(path: Path) -> None:
    os.mkfifo(path)
    assert refusal(path) == f"session_request_path: {str(path)!r} is not a regular file."


def test_a_device_or_folder_is_refused(path: Path) -> None:
    assert refusal(Path("/dev/zero")) == "session_request_path: '/dev/zero' is not a regular file."
    assert refusal(path.parent) == f"session_request_path: {str(path.parent)!r} cannot be read: Is a directory."


def test_a_link_is_refused(path: Path) -> None:
    path.with_name("target").write_text('{"session_name": "t1"}')
    path.symlink_to("target")
    assert refusal(path) == f"session_request_path: {str(path)!r} cannot be read: it is a link."


def test_a_missing_file_is_refused(path: Path) -> None:
    assert refusal(path) == f"session_request_path: {str(path)!r} cannot be read: No such file or directory."
    assert refusal(path / "x\0") == f"session_request_path: {str(path / chr(120)) + chr(0)!r} is not a path."


@pytest.mark.parametrize("value", [7, ["x"], {"a": 1}])
def test_a_path_that_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError, match=r"^session_request_path must be the path of a file\.$"):
        read_user_options({"session_request_path": value})

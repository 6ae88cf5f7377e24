"""Whatever a registry or an engine reports, a pull or a log ends with one sentence."""

from __future__ import annotations

import types
from typing import Any

from docker.errors import APIError
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import PullLayers, find_image, pull_image
from ansible_collections.backendai.cluster.plugins.module_utils._docker.logs import tail_of
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import (
    EXPECTED,
    ClusterError,
    reason,
    sentence,
)
from tests.unit.fuzz.mutations import JUNK, assert_sentence, damaged, fuzz

LINES = [
    {"status": "Pulling from library/python", "id": "3.12"},
    {"status": "Pulling fs layer", "progressDetail": {}, "id": "a"},
    {"status": "Downloading", "progressDetail": {"current": 10, "total": 100}, "progress": "[>]", "id": "a"},
    {"status": "Pull complete", "progressDetail": {}, "id": "a"},
    {"errorDetail": {"message": "denied"}, "error": "denied"},
]
IMAGE = {
    "Id": "sha256:1",
    "RepoDigests": ["registry.example.org/python@sha256:2"],
    "Config": {"Env": ["PATH=/bin", "EMPTY"], "Entrypoint": ["/entry"], "Cmd": None},
}
NAME = "registry.example.org/python:3"
ERRORS = st.one_of(
    st.builds(APIError, st.text(max_size=20), explanation=JUNK),
    st.builds(OSError, st.integers(-5, 200), st.text(max_size=20)),
    st.builds(ValueError, JUNK),
    st.builds(ClusterError, st.text(min_size=1, max_size=20)),
)


@fuzz
@given(damaged(LINES, most=4), damaged(IMAGE))
def test_any_output_of_a_pull_is_progress_or_an_error(lines: Any, image: Any) -> None:
    client: Any = types.SimpleNamespace(
        pull=lambda *_args, **_options: iter(lines if isinstance(lines, list) else [lines]),
        tag=lambda *_args: True,
        inspect_image=lambda _name: image,
    )
    layers = PullLayers()
    try:
        pull_image(client, NAME, NAME, {}, layers.update)
        found = find_image(client, NAME)
        assert found is not None
        assert isinstance(found.identity.digest, str)
    except EXPECTED as error:
        assert_sentence(str(sentence(error)))
    assert isinstance(layers.progress().describe(), str)


@fuzz
@given(ERRORS)
def test_any_error_of_the_engine_is_one_sentence(error: Exception) -> None:
    text = sentence(error)
    assert text is not None
    assert text.endswith((".", "?"))
    assert "\n" not in reason(error)


@fuzz
@given(st.lists(st.binary(max_size=50), max_size=5), ERRORS | st.none())
def test_any_log_is_read_or_refused(chunks: list[bytes], error: Exception | None) -> None:
    def stream(*_args: object, **_options: object) -> Any:
        yield from chunks
        if error:
            raise error

    client: Any = types.SimpleNamespace(logs=stream)
    try:
        assert tail_of(client, "c", 5, timestamps=True) is not None
    except EXPECTED as refused:
        assert_sentence(str(sentence(refused)))

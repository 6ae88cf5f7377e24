"""Tests for the exit of modules: with a result, an error message of one sentence, or a traceback for bugs."""

from __future__ import annotations

import os
import subprocess
from typing import Any, NoReturn

import pytest
from docker.errors import APIError, DockerException

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError
from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import ImagePullError
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import NotProvisionedError
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError
from ansible_collections.backendai.cluster.plugins.module_utils._module import run_module
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import NetworkError


class ExitedError(Exception):
    """The module exited with this result."""

    def __init__(self, **result: Any) -> None:
        super().__init__(result)
        self.result = result


class Module:
    """The methods of AnsibleModule that exit."""

    def exit_json(self, **result: Any) -> NoReturn:
        raise ExitedError(**result)

    def fail_json(self, msg: str) -> NoReturn:
        raise ExitedError(failed=True, msg=msg)


def end(error: Exception) -> dict[str, Any]:
    """Return the result of a module that raises this error."""

    def act() -> dict[str, Any]:
        raise error

    module: Any = Module()
    with pytest.raises(ExitedError) as raised:
        run_module(module, act)
    return raised.value.result


def test_module_exits_with_its_result() -> None:
    module: Any = Module()
    with pytest.raises(ExitedError) as raised:
        run_module(module, lambda: {"changed": True})
    assert raised.value.result == {"changed": True}


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ClusterError("agent1 no longer has room"), "agent1 no longer has room."),
        (DockerUnavailableError("start docker."), "start docker."),
        (ImagePullError("no image"), "no image."),
        (NotProvisionedError("not ready"), "not ready."),
        (NetworkError("ip -batch: no"), "ip -batch: no."),
        (ValueError("did you mean that?"), "did you mean that?"),
        (FileNotFoundError(2, "No such file or directory", "/x"), "[Errno 2] No such file or directory: '/x'."),
        (
            subprocess.CalledProcessError(1, ["ssh-keygen", "-q"], "", "no entropy\n"),
            "ssh-keygen failed: no entropy.",
        ),
        (APIError("500", explanation="driver failed"), "the Docker engine failed: driver failed."),
        (APIError("500 Server Error"), "the Docker engine failed: 500 Server Error."),
        (DockerException("bad certificate"), "the Docker engine failed: bad certificate."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_expected_error_is_one_sentence(error: Exception, sentence: str) -> None:
    assert end(error) == {"failed": True, "msg": sentence}


def test_unexpected_error_is_a_traceback() -> None:
    def act() -> dict[str, Any]:
        raise KeyError("slots")

    module: Any = Module()
    with pytest.raises(KeyError, match="slots"):
        run_module(module, act)


def test_what_a_module_says_is_safe_to_print() -> None:
    assert end(ClusterError("nft: \x1b]0;owned\x07"))["msg"] == "nft: \\x1b]0;owned\\x07."
    assert end(APIError("500", None, "no such \x1b[2Jprogram"))["msg"].endswith("no such \\x1b[2Jprogram.")
    module: Any = Module()
    with pytest.raises(ExitedError) as raised:
        run_module(module, lambda: {"diff": {"before": "a\n\x1b[2J"}})
    assert raised.value.result == {"diff": {"before": "a\n\\x1b[2J"}}


def test_a_module_finds_programs_of_root_whatever_path_the_login_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    module: Any = Module()
    with pytest.raises(ExitedError) as exited:
        run_module(module, lambda: {"path": os.environ["PATH"]})
    assert exited.value.result["path"] == "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

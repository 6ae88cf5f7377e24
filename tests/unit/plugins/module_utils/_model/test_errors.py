"""Why something ended, as a phrase within a sentence."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleError

from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError, cause
from ansible_collections.backendai.cluster.plugins.plugin_utils.interruption import InterruptionError


@pytest.mark.parametrize(
    ("error", "phrase"),
    [
        (ClusterError("agent1 is full."), "agent1 is full"),
        (InterruptionError("interrupted by SIGINT"), "interrupted by SIGINT"),
        (AnsibleError("the template is none."), "the template is none"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (ValueError(" a\nb\x1b[2J "), "a b\\x1b[2J"),
    ],
)
def test_the_message_of_an_error_is_why(error: BaseException, phrase: str) -> None:
    assert cause(error) == phrase


@pytest.mark.parametrize(
    ("error", "phrase"),
    [(MemoryError(), "MemoryError"), (KeyboardInterrupt(), "KeyboardInterrupt"), (ClusterError("."), "ClusterError")],
)
def test_an_error_without_a_message_is_named(error: BaseException, phrase: str) -> None:
    assert cause(error) == phrase


@pytest.mark.parametrize(
    ("error", "phrase"),
    [
        (KeyError("before"), "KeyError: 'before'"),
        (AttributeError("'list' has no 'values'"), "AttributeError: 'list' has no 'values'"),
        (RuntimeError("a\nb"), "RuntimeError: a b"),
    ],
)
def test_a_bug_is_named_with_its_message(error: BaseException, phrase: str) -> None:
    assert cause(error) == phrase

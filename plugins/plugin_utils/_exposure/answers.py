# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what hosts have answered: without an answer, or with a damaged one, there is a reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...module_utils._model.errors import as_phrase
from ...module_utils._model.plain_data import DataError, from_plain
from ..agent_calls import Answer, Failure
from ..agent_results import HIDDEN

T = TypeVar("T")

Answers = Mapping[str, Answer]
"""The answers of hosts by name; there is none of a host that ``--limit`` hides."""

Shown = Callable[[Sequence[str]], Sequence[str]]
"""Returns those of some hosts that ``--limit`` does not hide."""


def read_answer(kind: type[T], answer: Answer | None) -> T:
    """Return the fields of an answer, which has others as well. Raises :class:`DataError` with a phrase."""
    if answer is None:
        raise DataError(HIDDEN)
    if isinstance(answer, Failure):
        raise DataError(as_phrase(answer.message))
    # Every dataclass has fields.
    fields: Any = kind
    names = {field.name for field in dataclasses.fields(fields)}
    return from_plain(kind, {name: answer[name] for name in names & answer.keys()}, "its reply is damaged")

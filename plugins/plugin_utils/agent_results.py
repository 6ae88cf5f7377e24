# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the results of tasks on hosts from their variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..module_utils._model.errors import as_phrase

HIDDEN = "hidden by --limit"


def describe_missing_result(result: Mapping[str, Any]) -> str:
    """Return why a host has no usable result, as a phrase; ``result`` is empty if there was no task on that host."""
    return as_phrase(result.get("error") or result.get("msg", "it returned no result")) if result else HIDDEN

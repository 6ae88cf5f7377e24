# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parses JSON that another host, another release or a user's editor wrote."""

from __future__ import annotations

import json
import sys
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return the value in JSON text.

    Raises :class:`ValueError`, also for what Python reads but cannot write or print: infinite numbers and NaN, halves
    of surrogate pairs, too many levels.
    """
    # Not json.loads(bytes), which accepts other encodings and surrogates.
    decoded = text.decode() if isinstance(text, bytes) else text.encode().decode()
    if decoded.startswith("\ufeff"):
        # As json.loads does.
        raise json.JSONDecodeError("Unexpected UTF-8 BOM (decode using utf-8-sig)", decoded, 0)
    try:
        data = _DECODER.decode(decoded)
        if "\\u" in decoded:
            json.dumps(data, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it has too many levels") from None
    except UnicodeEncodeError:
        raise ValueError("it contains half of a surrogate pair") from None
    return data


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _parse_finite(text: str) -> float:
    number = float(text)
    if abs(number) > sys.float_info.max:
        raise ValueError("a number is too large")
    return number


# Made once: a long queue has many small texts.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_parse_finite)

"""A row of the table of options."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """How an option is seen to have an effect.

    ``test`` is ``FILE::NAME`` below ``tests``, or ``molecule SCENARIO::CLAIM``, a claim of its ``verify.yml``. The
    ``value`` is set in the file of the test, or in ``set_in``. A test of this folder names its ``bundle``. Where only a
    plan can be looked at, ``plan`` says why, and the test is a unit test.
    """

    value: str
    seen: str
    test: str
    bundle: str = ""
    set_in: str = ""
    plan: str = ""

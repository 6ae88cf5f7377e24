"""Parts of the lab tests, so that several labs can share them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Part(NamedTuple):
    """Every ``of``-th file, beginning with the ``number``-th."""

    number: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> Part:
        """Parse a part, such as ``1/2``. Raises :class:`argparse.ArgumentTypeError`."""
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        part = cls(*map(int, match.groups())) if match else None
        if part is None or not 1 <= part.number <= part.of:
            raise argparse.ArgumentTypeError(f"{text!r} is no part of the tests: give one such as 1/2")
        return part

    def select(self, files: Iterable[Path]) -> set[Path]:
        """Return the files of this part."""
        return {*sorted({*files})[self.number - 1 :: self.of]}

"""Parts of the lab tests."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests.integration.parts import Part

FILES = [Path(f"test_{letter}.py") for letter in "dbaecbb"]


@pytest.mark.parametrize("of", [1, 2, 3, 7])
def test_each_file_is_in_one_part(of: int) -> None:
    selected = [path for number in range(1, of + 1) for path in Part.parse(f"{number}/{of}").select(FILES)]
    assert sorted(selected) == sorted({*FILES})


def test_parts_alternate() -> None:
    assert Part(2, 2).select(FILES) == {Path("test_b.py"), Path("test_d.py")}
    assert Part().select(FILES) == {*FILES}


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/2/3", "a/b", "-1/2"])
def test_an_impossible_part_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no part of the tests: give one such as 1/2"):
        Part.parse(text)

"""`make clean` removes what was left, with the tools or without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.builders import REPOSITORY


@pytest.mark.parametrize("left", [True, False], ids=["simulated agents", "none"])
def test_a_checkout_without_its_tools_is_cleaned(tmp_path: Path, left: bool) -> None:
    if left:
        (tmp_path / ".lab-large").mkdir()
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@" >> ran\n')
    python.chmod(0o755)
    subprocess.run(["make", f"--makefile={REPOSITORY}/Makefile", "clean", f"PYTHON={python}"], check=True, cwd=tmp_path)
    assert (tmp_path / "ran").read_text().splitlines() == ["-m tests.lab down", *["-m tests.large"] * left]


def test_simulated_agents_are_removed_without_any_package() -> None:
    # Not run, for it would remove those of this checkout.
    subprocess.run([sys.executable, "-S", "-c", "import tests.large.agents"], check=True, cwd=REPOSITORY)

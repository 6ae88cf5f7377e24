"""The Dockerfiles of the images pass a linter."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.integration.ansible_settings import ROOT
from tests.lab.debian import require

DOCKERFILES = sorted((ROOT / "extensions" / "images").glob("*/Dockerfile"))


def test_dockerfiles_pass_the_linter(tmp_path: Path) -> None:
    require("npm")
    shutil.copy(Path(__file__).with_name("package.json"), tmp_path)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", tmp_path], check=True)
    assert len(DOCKERFILES) == 2
    for dockerfile in DOCKERFILES:
        linter = (tmp_path / "node_modules/.bin/dockerfile-utils", "lint", dockerfile)
        done = subprocess.run(linter, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

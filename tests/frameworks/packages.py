"""Folders of Python packages for the Python of ``lab/python:1``, and their copies on agents."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.integration.laboratory import ssh

PYTHON_OF_THE_IMAGE = "3.11"


def install_packages(requirements: Path, folder: Path) -> None:
    """Install packages into a folder; their programs run with the Python of the image."""
    wheels = ("--python-version", PYTHON_OF_THE_IMAGE, "--implementation", "cp", "--only-binary", ":all:")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--no-compile", "--requirement", requirements)
    # Nothing in the folder is for the Python that runs pip.
    subprocess.run([*pip, "--no-warn-conflicts", "--target", folder, *wheels], check=True)
    for program in (folder / "bin").iterdir():
        first, _newline, rest = program.read_bytes().partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            program.write_bytes(b"#!/usr/bin/env python3\n" + rest)


def copy_to_agent(folder: Path, agent: str, target: str) -> None:
    """Copy a folder to an agent."""
    unpack = ssh(agent, f"rm -rf {target} && mkdir {target} && tar -C {target} --no-same-owner -xf -")
    with subprocess.Popen(["tar", "-C", folder, "-cf", "-", "."], stdout=subprocess.PIPE) as pack:
        subprocess.run(unpack, stdin=pack.stdout, check=True)
    assert pack.returncode == 0

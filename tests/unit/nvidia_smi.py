"""A stand-in for the program of NVIDIA's driver."""

from __future__ import annotations

from pathlib import Path


class NvidiaSmi:
    """A program ``nvidia-smi`` in a folder, which runs a script of the shell and writes down how it was called."""

    def __init__(self, folder: Path) -> None:
        self._program, self._log = folder / "nvidia-smi", folder / "nvidia-smi.calls"

    def says(self, script: str) -> None:
        """Let the program run a script from now on."""
        self._program.write_text(f'#!/bin/sh\necho "$*" >> {self._log}\n{script}\n')
        self._program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        """The arguments of each call so far."""
        return self._log.read_text().splitlines() if self._log.exists() else []

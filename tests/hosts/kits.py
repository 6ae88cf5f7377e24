"""A runtime kit as a file, for agents whose own programs are none."""

from __future__ import annotations

from pathlib import Path

from tests.integration.laboratory import Run, run_playbook


def build_kit(folder: Path) -> tuple[Path, Run]:
    """Make a kit of this machine's packages, and return its path and what the playbook said."""
    kit = folder / "kit.tar.gz"
    built = run_playbook("build_kit", folder, {"agent_kit_path": str(kit), "agent_kit_host": "localhost"})
    assert built.code == 0, built.output
    return kit, built

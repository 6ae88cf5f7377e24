"""Control groups that stay busy for a moment after their last process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.lab.command import LabError
from tests.lab.leftovers import _remove_cgroups


@pytest.fixture(name="cgroups")
def busy_cgroups(tmp_path: Path) -> list[Path]:
    """Folders that cannot be removed yet."""
    folders = [tmp_path / str(number) for number in range(20)]
    for folder in folders:
        folder.mkdir()
        (folder / "busy").touch()
    return folders


def test_all_busy_cgroups_are_waited_for_at_once(cgroups: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        for cgroup in cgroups:
            (cgroup / "busy").unlink(missing_ok=True)

    monkeypatch.setattr(time, "sleep", sleep)
    _remove_cgroups(cgroups)
    assert waits == [0.1]
    assert not any(cgroup.exists() for cgroup in cgroups)


def test_a_cgroup_that_stays_busy_is_named(cgroups: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    with pytest.raises(LabError, match=rf"^the kernel keeps {cgroups[0]} busy although no process is in it$"):
        _remove_cgroups(cgroups)

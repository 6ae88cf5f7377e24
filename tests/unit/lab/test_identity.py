"""Several labs of one checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import __main__ as command
from tests.lab.identity import Lab, labs_of


def test_labs_of_a_checkout_share_what_is_cached_and_nothing_else(tmp_path: Path) -> None:
    first, second = Lab(tmp_path), Lab(tmp_path, 2)
    names = ("id", "folder", "run_folder", "connections", "name", "veth", "bridge", "metric", "inventory", "shared")
    assert not [name for name in names if getattr(first, name) == getattr(second, name)]
    assert (first.cache, first.wheels) == (second.cache, second.wheels)


def test_all_labs_of_a_checkout_are_removed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (".lab", ".lab3", ".lab-large", ".labels"):
        (tmp_path / name).mkdir()
    removed: list[Lab] = []
    monkeypatch.setattr(command, "_clear", removed.append)
    assert command.down(Lab(tmp_path)) == 0
    assert removed == labs_of(tmp_path) == [Lab(tmp_path), Lab(tmp_path, 3)]

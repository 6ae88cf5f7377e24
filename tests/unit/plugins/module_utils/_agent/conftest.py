"""An agent without a host: an engine of lists, a store in a folder, no commands of iproute2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from tests.unit.engine import Engine


@pytest.fixture
def engine() -> Any:
    """Return an engine that has the session image."""
    return Engine()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return the store of an agent that is provisioned."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "lock").touch()
    (tmp_path / "kit" / "0123456789ab").mkdir(parents=True)
    (tmp_path / "kit" / "current").symlink_to("0123456789ab")
    return Store(str(tmp_path))

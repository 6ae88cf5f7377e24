"""Fixtures of an agent without a host: fake Docker, fake network, and a store in a temporary folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import storage, sync
from ansible_collections.backendai.cluster.plugins.module_utils._host import health, port_reservations, withdrawn
from ansible_collections.backendai.cluster.plugins.module_utils._host.path_look import Folder
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.image_look import ImageLook
from ansible_collections.backendai.cluster.plugins.module_utils._session import (
    admission,
    before_start,
    command,
    ended_commands,
    leftovers,
    mount_sources,
    remove,
    service_state,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session import apply as slicing
from ansible_collections.backendai.cluster.plugins.module_utils._session.host_capabilities import HostCapabilities
from tests.unit.fake_docker import FakeDocker
from tests.unit.fake_network import FakeNetwork, patch_network


@pytest.fixture
def engine() -> Any:
    """Return a fake Docker client that has the session image."""
    return FakeDocker()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return the store of a provisioned agent."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "lock").touch()
    (tmp_path / "kit" / "0123456789ab").mkdir(parents=True)
    (tmp_path / "kit" / "current").symlink_to("0123456789ab")
    for name in ("sessions", "removed"):
        (tmp_path / "engine" / name).mkdir(parents=True)
    (tmp_path / "homes").symlink_to(tmp_path / "engine")
    return Store(str(tmp_path))


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNetwork:
    """Return the fake network of the agent, so that tests never change the network of this machine."""
    # No path of this machine is looked at; what is mounted is what was asked for.
    monkeypatch.setattr(mount_sources, "look", lambda places: {at: Folder(at.path, 1, 1, 0) for at in places})
    monkeypatch.setattr(mount_sources, "find_writable", lambda _mounts, _table: [])
    # Its homes are mounted as provisioning has them.
    monkeypatch.setattr(service_state, "is_protected", lambda _folder: True)
    # Nor is anything mounted from a storage server.
    monkeypatch.setattr(storage, "read_mounts", list)
    monkeypatch.setattr(sync, "on_link", lambda _address: True)
    monkeypatch.setattr(leftovers, "SEEN", tmp_path / "leftovers")
    # Nor is a unit of this machine started.
    monkeypatch.setattr(leftovers, "start_removal", lambda: None)
    monkeypatch.setattr(remove, "start_removal", lambda: None)
    for starting in (command, ended_commands):
        monkeypatch.setattr(starting, "start_units", lambda _names: None)
    monkeypatch.setattr(port_reservations, "DRAINING", tmp_path / "draining")
    monkeypatch.setattr(withdrawn, "FOLDER", tmp_path / "withdrawn")
    monkeypatch.setattr(health, "VERDICT", tmp_path / "verdict" / "health.json")
    monkeypatch.setattr(before_start, "make_nodes", lambda _nodes, _uid: None)
    monkeypatch.setattr(before_start, "require_keys", lambda *_of: None)
    # The fake engine starts no process that could wait.
    monkeypatch.setattr(admission, "runs", lambda _pid: False)
    monkeypatch.setattr(slicing, "read_host", lambda _client: HostCapabilities())
    monkeypatch.setattr(slicing, "await_ready", lambda *_asked: True)
    # Its images have nothing odd, and no home.
    for module in (slicing, before_start):
        monkeypatch.setattr(module, "look_at_image", lambda *_asked: ImageLook())
    monkeypatch.setattr(before_start, "judge_container", lambda *_asked: None)
    return patch_network(monkeypatch)

"""Fixtures for control-node actions, which run in Ansible without a host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.task import Task
from ansible.template import Templar

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueStore:
    """Return the queue that actions use: the one of the folder that they run in."""
    monkeypatch.chdir(tmp_path)
    return QueueStore(".queue")


@pytest.fixture
def run(queue: QueueStore) -> Run:
    """Return a function that runs an action with arguments and variables."""
    assert queue.entries() == []

    def run_action(
        action: type[ControlAction], args: dict[str, Any], arguments: dict[str, Any], *, check_mode: bool = False
    ) -> dict[str, Any]:
        # Ansible always has them.
        variables = {"hostvars": {}, **arguments}
        task = Task()
        task.args, task.check_mode = args, check_mode
        loader = DataLoader()
        hostvars = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None), _play_context=SimpleNamespace(no_log=False))
        ready = action(task, hostvars, None, loader, Templar(loader=loader, variables=variables))
        return dict(ready.run(task_vars=variables))

    return run_action


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that actions display."""
    from ansible.plugins import action

    lines: list[str] = []
    monkeypatch.setattr(action.display, "display", lambda text, *_how, **_else: lines.extend(text.splitlines()))
    return lines

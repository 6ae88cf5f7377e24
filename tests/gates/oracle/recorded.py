"""Run tests of the working directory, and write what their fake engines and networks were asked: ``recorded.py FILE``.

It imports nothing of the tests of this commit, because those of the working directory are another one's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SCENES = [f"tests/unit/plugins/module_utils/{name}" for name in ("_session", "_firewall", "_program", "_docker")]


class Recorder:
    """A plugin of pytest: what the fakes of a test were asked for, by the test's name."""

    def __init__(self) -> None:
        self.scenes: dict[str, list[str]] = {}
        self._scene: list[str] = []
        self._engines: list[Any] = []

    def pytest_collection_finish(self) -> None:
        """Let the fakes tell what they are asked for, once the working directory can be imported."""
        from tests.unit.fake_docker import FakeDocker
        from tests.unit.fake_network import FakeNetwork, FakeTable

        self._after(FakeDocker, "__init__", lambda engine, *_: self._engines.append(engine))
        self._after(FakeNetwork, "batch", lambda _network, command, lines, _pid: self._say(" ".join(command), lines))
        self._after(FakeNetwork, "apply_table", lambda _network, text: self._say("nft", text.splitlines()))
        self._after(FakeTable, "apply", lambda _table, text: self._say("nft", text.splitlines()))

    def _after(self, kind: type, name: str, record: Callable[..., None]) -> None:
        method = getattr(kind, name)

        def recorded(*arguments: Any, **options: Any) -> Any:
            record(*arguments)
            return method(*arguments, **options)

        setattr(kind, name, recorded)

    def _say(self, asked: str, lines: list[str]) -> None:
        if not lines:
            return
        self._scene += [asked, *(f"    {line}" for line in lines)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Keep what a test has asked for."""
        self._scene, self._engines = [], []
        try:
            return (yield)
        finally:
            for engine in self._engines:
                self._say("engine", engine.calls)
                self._say("engine was asked for", [_plain(asked) for asked in engine.asked])
            if self._scene:
                self.scenes[item.nodeid] = self._scene


def _plain(asked: Any) -> str:
    return json.dumps(asked, default=repr, sort_keys=True)


def main() -> None:
    """Run the scenes."""
    recorder = Recorder()
    pytest.main([*SCENES, "-q", "-p", "no:cacheprovider", "--basetemp=/tmp/scenes"], plugins=[recorder])
    Path(sys.argv[1]).write_text(json.dumps(recorder.scenes, indent=1))


if __name__ == "__main__":
    main()

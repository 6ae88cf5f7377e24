"""Record what the engine of a lab's agent answers: ``python -m tests.large.record`` writes ``tests/large/recorded``."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.laboratory import AGENTS, BUSYBOX, PYTHON, run_on
from tests.large.engine import RECORDED

_READ = f"""
import docker, json
engine = docker.APIClient()
images = {{name: engine.inspect_image(name) for name in {(PYTHON, BUSYBOX)}}}
others = {{name: getattr(engine, name)() for name in ('version', 'info', 'networks')}}
print(json.dumps({{'images': images, **others}}))
"""
#: What says more of the machine than of the engine.
_LEFT_OUT = ("ID", "KernelVersion", "SystemTime")


def main() -> None:
    """Ask the first agent, which must not run a session now."""
    for name, answer in json.loads(run_on(AGENTS[0], f'python3 -c "{_READ}"')).items():
        (RECORDED / f"{name}.json").write_text(json.dumps(_kept(answer), indent=2, sort_keys=True) + "\n")


def _kept(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {name: _kept(value) for name, value in answer.items() if name not in _LEFT_OUT}
    return [_kept(value) for value in answer] if isinstance(answer, list) else answer


if __name__ == "__main__":
    main()

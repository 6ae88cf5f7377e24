"""The commands of docs/frameworks.md, as they are written there, over three agents."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from tests.integration.ansible_settings import ROOT
from tests.integration.laboratory import run_in
from tests.integration.sessions import StartedSession

PAGE = (ROOT / "docs" / "frameworks.md").read_text()
ROW = re.compile(r"^\| (?P<name>[^|]+) \| (?P<version>[^|]+) \| `(?P<command>[^`|]+)` \|", re.MULTILINE)
COMMANDS = {row["name"]: row["command"] for row in ROW.finditer(PAGE)}
APPS = dict(re.findall(r"^\| ([^|]+) \|.*`session_apps: \[(\w+)\]`", PAGE, re.MULTILINE))
(TORCHRUN,) = re.findall(r"^torchrun .+$", PAGE, re.MULTILINE)
HOSTS = ["main1", "sub1", "sub2"]


def of_each(**same: Any) -> list[dict[str, Any]]:
    """Return what each container prints: its host, its rank, and what is the same in all."""
    return [{"host": host, "rank": rank, **same} for rank, host in enumerate(HOSTS)]


EXPECTED: dict[str, list[dict[str, Any]]] = {
    "PyTorch DDP": of_each(loss=0.0, weights=120.0),
    "Lightning": of_each(size=3),
    "Horovod": of_each(size=3, weights=120.0),
    "PyTorch FSDP": [{"host": host, "of": 4995} for host in HOSTS],
    "Accelerate": [{"host": host, "processes": [0, 1, 2], "batches": 5, "losses": 3} for host in HOSTS],
    "TensorFlow": [{"host": host, "workers": 3, "weight": 1.0} for host in HOSTS],
    "mpi4py": [{"hosts": HOSTS, "sum": 111.0, "equal": True}],
    "JAX": [{"host": host, "processes": 3, "ranks": [0, 1, 2], "total": 3072.0} for host in HOSTS],
    "DeepSpeed": of_each(weights=120.0),
    "Dask": [{"workers": HOSTS, "total": sum(range(100))}],
    "Ray": [{"hosts": HOSTS, "complete": True}],
    "Ray Tune": [{"hosts": HOSTS, "rate": 0.5}],
    "Spark": [{"hosts": HOSTS, "total": sum(number * number for number in range(1000))}],
    "MLflow": [{"host": host, "error": error} for host, error in zip(HOSTS, (1.0, 0.5, 0.333), strict=True)],
    "NNI": [{"hosts": HOSTS, "trials": 9}],
}


def run_command(session: StartedSession, name: str) -> list[dict[str, Any]]:
    """Run a framework's command in main1, and return the JSON objects that were printed, by host."""
    line = COMMANDS[name].replace("TORCHRUN", TORCHRUN)
    main = session.kernels[0]
    printed = run_in(main, "ssh", "main1", f"timeout 600 bash -c {shlex.quote(line)} 2> errors.log || cat errors.log")
    results = [json.loads(text) for text in re.findall(r'\{"[^{}]+\}', printed)]  # lines of several hosts may mix
    assert results, printed
    return sorted(results, key=lambda result: str(result.get("host")))


def check_row(session: StartedSession, name: str) -> None:
    results, expected = run_command(session, name), EXPECTED[name]
    assert [{key: result[key] for key in wanted} for result, wanted in zip(results, expected, strict=True)] == expected


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in APPS])
def test_framework_runs_over_three_agents_as_its_row_says(session: StartedSession, name: str) -> None:
    check_row(session, name)


# Last, because an app takes time that Ray does not have.
@pytest.mark.parametrize("name", APPS)
def test_framework_with_an_app_runs_as_its_row_says(with_mlflow: StartedSession, name: str) -> None:
    check_row(with_mlflow, name)


def test_every_row_is_run() -> None:
    assert sorted(COMMANDS) == sorted(EXPECTED)
    assert APPS == {"MLflow": "mlflow"}

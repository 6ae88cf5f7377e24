"""What others use on an agent is not offered, with ``agent_reserve: auto``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.laboratory import run_on
from tests.integration.session_requests import SMALL
from tests.integration.sessions import Sessions

AUTO = ("-e", "agent_reserve=auto")
NAMES = ("of-others", "of-others-limited")
GPU = "GPU-5d8b3bb5-0c7f-4a46-8f6a-1d9e4a2b7c11"
PROGRAM, HOOK = "/usr/local/bin/nvidia-smi", "/usr/local/bin/nvidia-container-runtime-hook"
COMPUTES = "/run/lab-computes"
SMI = f"""#!/bin/sh
case $* in
    *compute-apps*) echo "{GPU}, $(cat {COMPUTES})" ;;
    *) echo "{GPU}, 00000000:3B:00.0" ;;
esac
"""


@pytest.fixture
def others() -> Iterator[None]:
    """Run two containers on agent1 that are of no session: one without limits, and one with limits."""
    run_on("agent1", f"docker run -d --name {NAMES[0]} lab/busybox:1 sleep 3600")
    run_on("agent1", f"docker run -d --name {NAMES[1]} --cpus 0.5 --memory 256m lab/busybox:1 sleep 3600")
    yield
    run_on("agent1", f"docker rm -f {' '.join(NAMES)}")


@pytest.fixture
def gpu() -> Iterator[None]:
    """Give agent1 a fake GPU, on which the process computes that the file names."""
    try:
        run_on("agent1", f"echo {shlex.quote(SMI)} > {PROGRAM} && chmod +x {PROGRAM} && ln -s /bin/true {HOOK}")
        yield
    finally:
        run_on("agent1", f"rm -f {PROGRAM} {HOOK} {COMPUTES}")


def compute_in(container: str) -> str:
    """Let the first process of a container on agent1 compute on the GPU, and return it."""
    process = run_on("agent1", f"docker inspect --format '{{{{.State.Pid}}}}' {container}").strip()
    run_on("agent1", f"echo {process} > {COMPUTES}")
    return process


def list_agent1(sessions: Sessions, path: Path, *options: str) -> tuple[dict[str, int], str]:
    """Return the slots of agent1 in the list of agents, and all that was printed."""
    listed = sessions.run("list_agents", "-e", f"agent_list_path={path}", *options)
    assert listed.code == 0, listed.output
    return next(row["total"] for row in json.loads(path.read_text())["agents"] if row["name"] == "agent1"), listed.text


@pytest.mark.usefixtures("others")
def test_containers_of_others_are_taken_out_of_what_is_offered(sessions: Sessions, tmp_path: Path) -> None:
    fixed, text = list_agent1(sessions, tmp_path / "fixed.json")
    assert "containers of others" not in text
    measured, text = list_agent1(sessions, tmp_path / "auto.json", *AUTO)
    amounts = "1 core and 1.3 GB are not offered"
    assert f"agent1: agent_reserve: auto: {amounts}, because containers of others use them: {', '.join(NAMES)}." in text
    # Of each core, eight are offered.
    assert fixed["cpu"] - measured["cpu"] == 8
    assert fixed["mem"] - measured["mem"] == (256 << 20) + (1 << 30)
    request = {"designated_agents": ["agent1"], "resources": {"cpu": 1, "mem": fixed["mem"]}}
    waiting = sessions.create(*AUTO, **request)
    assert waiting.record["status"] == "PENDING", waiting.output


@pytest.mark.usefixtures("others", "gpu")
def test_a_gpu_on_which_others_compute_is_not_offered(agent1_sessions: Sessions, tmp_path: Path) -> None:
    sessions = agent1_sessions
    process = compute_in(NAMES[0])
    assert list_agent1(sessions, tmp_path / "fixed.json")[0]["cuda.device"] == 1
    measured, text = list_agent1(sessions, tmp_path / "auto.json", *AUTO)
    assert measured.get("cuda.device", 0) == 0
    assert f"{GPU} is assigned to no container: sleep (process {process}), which is of no session, computes on" in text
    compute_in(sessions.start(**SMALL).kernels[0]["container"])
    assert list_agent1(sessions, tmp_path / "own.json", *AUTO)[0]["cuda.device"] == 1

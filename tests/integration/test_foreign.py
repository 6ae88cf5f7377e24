"""What runs on an agent beside sessions is warned of, and devices that are named are not offered."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.laboratory import run_on
from tests.integration.session_requests import SMALL
from tests.integration.sessions import Sessions

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
WARNED = f"agent1: containers {', '.join(NAMES)}: of no session, and not counted: keep what they need"


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
def test_containers_of_others_are_warned_of_and_not_counted(agent1_sessions: Sessions, tmp_path: Path) -> None:
    sessions = agent1_sessions
    offered, text = list_agent1(sessions, tmp_path / "agents.json")
    assert WARNED in text
    assert offered["cpu"] == 8 * int(run_on("agent1", "getconf _NPROCESSORS_ONLN"))
    created = sessions.create(**SMALL)
    assert (created.code, WARNED in created.text) == (0, True), created.output
    again = sessions.create(**SMALL)
    assert (again.code, WARNED in again.text) == (0, False), again.output


@pytest.mark.usefixtures("others", "gpu")
def test_a_gpu_that_others_use_is_warned_of_until_it_is_reserved(agent1_sessions: Sessions, tmp_path: Path) -> None:
    sessions = agent1_sessions
    process = compute_in(NAMES[0])
    warning = f"agent1: {GPU} is used by sleep (pid {process}): name it in agent_reserved_devices."
    offered, text = list_agent1(sessions, tmp_path / "used.json")
    assert (offered["cuda.device"], warning in text) == (1, True), text
    named = ("-e", json.dumps({"agent_reserved_devices": [GPU]}))
    kept, text = list_agent1(sessions, tmp_path / "reserved.json", *named)
    assert (kept.get("cuda.device", 0), GPU in text) == (0, False), text
    compute_in(sessions.start(**SMALL).kernels[0]["container"])
    assert GPU not in list_agent1(sessions, tmp_path / "own.json")[1]


def test_device_nodes_that_are_reserved_are_not_offered(agent1_sessions: Sessions, tmp_path: Path) -> None:
    sessions = agent1_sessions
    whole, _text = list_agent1(sessions, tmp_path / "all.json")
    held = sessions.start(resources={**SMALL["resources"], "lab.device": 1}).kernels[0]["container"]
    shape = "{{(index .HostConfig.Devices 0).PathInContainer}}"
    node = run_on("agent1", f"docker inspect --format '{shape}' {held}").strip()
    named = ("-e", json.dumps({"agent_reserved_devices": [node]}))
    meanwhile, text = list_agent1(sessions, tmp_path / "held.json", *named)
    assert meanwhile["lab.device"] == whole["lab.device"]
    stays = f"agent1: agent_reserved_devices: {node} stays with the session {sessions.name} until that ends."
    assert stays in text
    assert sessions.terminate().code == 0
    after, text = list_agent1(sessions, tmp_path / "ended.json", *named)
    assert (whole["lab.device"] - after["lab.device"], node in text) == (1, False), text


@pytest.mark.usefixtures("others")
def test_provisioning_warns_of_others_and_refuses_what_cannot_name_a_device(agent1_sessions: Sessions) -> None:
    provisioned = agent1_sessions.run("provision_agents")
    assert (provisioned.code, WARNED in provisioned.text) == (0, True), provisioned.output
    wrong = agent1_sessions.run("provision_agents", "-e", json.dumps({"agent_reserved_devices": ["0"]}))
    assert wrong.code != 0
    assert "agent_reserved_devices: '0' must be the UUID of an NVIDIA GPU or MIG instance" in wrong.text

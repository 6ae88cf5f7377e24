"""Any image becomes a cluster: Debian, a static busybox, one with its own ssh and sshd, one with its own entrypoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.conftest import Sessions
from tests.integration.laboratory import AGENTS, BUSYBOX, PYTHON, Run, inside, on

MPI, ENTRYPOINT = "lab/mpi:1", "lab/entrypoint:1"
WIDE = {
    "cluster_mode": "multi-node",
    "cluster_size": 3,
    "agent_selection": "dispersed",
    "resources": {"cpu": 1, "mem": "128m"},
}


@pytest.fixture(scope="module", params=[PYTHON, BUSYBOX, MPI, ENTRYPOINT])
def image(request: pytest.FixtureRequest) -> str:
    """Each of the lab's images in turn."""
    return str(request.param)


@pytest.fixture(scope="module")
def three(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Three containers of the image, one on each agent; a second run has found nothing to change."""
    made = Sessions(tmp_path_factory.mktemp("three"))
    run = made.create(**WIDE, image=image)
    assert run.code == 0, run.output
    again = made.create(**WIDE, image=image)
    assert (again.code, again.changed) == (0, 0), again.output
    yield run
    assert made.terminate().code == 0


def shell(run: Run, script: str) -> str:
    """Run a script of the shell in main1, as user work."""
    return inside(run.record["kernels"][0], "sh", "-c", script)


def test_it_runs_on_every_agent(three: Run) -> None:
    assert three.record["status"] == "RUNNING"
    assert sorted(kernel["agent"] for kernel in three.record["kernels"]) == list(AGENTS)
    assert [kernel["status"] for kernel in three.record["kernels"]] == ["running"] * 3


def test_ssh_reaches_the_others_as_work_and_without_a_question(three: Run) -> None:
    assert shell(three, "for sub in sub1 sub2; do ssh $sub 'hostname; id -un'; done").split() == [
        "sub1",
        "work",
        "sub2",
        "work",
    ]


def test_a_command_over_ssh_has_the_sessions_environment(image: str, three: Run) -> None:
    seen = dict(line.split("=", 1) for line in shell(three, "ssh sub1 env").splitlines() if "=" in line)
    assert seen["BACKENDAI_CLUSTER_HOST"] == "sub1"
    assert seen["BACKENDAI_SESSION_NAME"] == three.record["name"]
    assert seen["NCCL_SOCKET_IFNAME"] == "cluster0"
    own = {"TF_CONFIG": '{"image": 1}', "BACKENDAI_DIST_MASTER_PORT": "31000", "MASTER_PORT": "31000"}
    if image == ENTRYPOINT:
        assert {name: seen[name] for name in own} == own
    else:
        assert seen["MASTER_PORT"] == "29500"


def test_a_login_shows_who_and_where_one_is(three: Run) -> None:
    assert "work@sub1" in shell(three, "echo exit | ssh -tt sub1")


def test_scp_carries_a_file_there_and_back(three: Run) -> None:
    there = "head -c 300000 /dev/urandom > /tmp/given; scp -q /tmp/given sub2:/tmp/taken"
    back = "scp -q sub2:/tmp/taken /tmp/returned; cmp /tmp/given /tmp/returned && wc -c < /tmp/returned"
    assert shell(three, f"{there} && {back}").strip() == "300000"


def test_an_image_keeps_its_own_ssh_and_others_get_one(image: str, three: Run) -> None:
    used = shell(three, "readlink -f $(command -v ssh)").strip()
    if image == MPI:
        assert used == "/usr/bin/ssh"
        assert "OpenSSH" in shell(three, "ssh -V 2>&1")
    else:
        assert used == "/opt/backendai/bin/ssh"


def test_the_images_own_entrypoint_and_command_run_as_work(image: str, three: Run) -> None:
    traces = ["image entrypoint runs as work", "image command runs as work", "ENTRY=ran"]
    look = """
        cat /tmp/entrypoint /tmp/command 2> /dev/null
        cat /proc/[0-9]*/environ 2> /dev/null | tr '\\0' '\\n' | grep ^ENTRY=
        exit 0
    """
    for kernel in three.record["kernels"]:
        assert inside(kernel, "sh", "-c", look).splitlines() == (traces if image == ENTRYPOINT else [])


def test_a_container_goes_on_when_its_images_command_ends(image: str, three: Run) -> None:
    ended = {PYTHON: "own command (bash) ended", BUSYBOX: "own command (sh) ended", MPI: "(/usr/sbin/sshd -D) ended"}
    for kernel in three.record["kernels"]:
        told = ended.get(image, "own command")
        log = on(kernel["agent"], f"docker logs {kernel['container']} 2>&1")
        assert (told in log) == (image in ended), log

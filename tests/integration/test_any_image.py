"""Sessions of any image: Debian, a static busybox, one with its own ssh and sshd, one with its own entrypoint.

All are in one session, each on each agent, so every pair of images is tested, on both engines.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.integration.containers import parse_environment
from tests.integration.laboratory import AGENTS, BUSYBOX, PYTHON, Kernel, in_parallel, run_in, run_on
from tests.integration.sessions import StartedSession, started_session

pytestmark = [pytest.mark.containers, pytest.mark.images]

MPI, ENTRYPOINT = "lab/mpi:1", "lab/entrypoint:1"
IMAGES = {"busybox": BUSYBOX, "debian": PYTHON, "mpi": MPI, "entrypoint": ENTRYPOINT}

# Images by role: in this order, each agent gets four containers, one of each image.
ROLES = {f"{name}{turn}": image for turn in ("one", "two", "three") for name, image in IMAGES.items()}
ROLES = {"main" if role == "busyboxone" else role: image for role, image in ROLES.items()}

REQUEST = {
    "cluster_mode": "multi-node",
    "agent_selection": "dispersed",
    "resources": {"cpu": 1, "mem": "128m"},
    "roles": {role: {"image": image} for role, image in ROLES.items()},
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Three containers of each image, one on each agent; a second run changed nothing."""
    with started_session(tmp_path_factory.mktemp("images"), **REQUEST) as session:
        rerun = session.create_again()
        assert (rerun.code, rerun.changed) == (0, 0), rerun.output
        yield session


@pytest.fixture(scope="module", params=IMAGES.values())
def image(request: pytest.FixtureRequest) -> str:
    """Each of the images in turn."""
    return str(request.param)


@pytest.fixture
def three(session: StartedSession, image: str) -> list[Kernel]:
    """Return the containers of an image, which is on every agent."""
    found = [kernel for kernel in session.kernels if ROLES[kernel["role"]] == image]
    assert sorted(kernel["agent"] for kernel in found) == list(AGENTS)
    assert [kernel["status"] for kernel in found] == ["running"] * 3
    return found


def shell(kernel: Kernel, script: str) -> str:
    """Run a shell script in a container, as user work."""
    return run_in(kernel, "sh", "-c", script)


def other_images(session: StartedSession, kernel: Kernel) -> list[str]:
    """Return the names of other containers, one of each image."""
    by_image = {ROLES[other["role"]]: other["hostname"] for other in session.kernels if other is not kernel}
    return list(by_image.values())


def test_ssh_reaches_every_image_as_work_without_prompts(session: StartedSession, three: list[Kernel]) -> None:
    def log_in_to_others(kernel: Kernel) -> list[str]:
        names = " ".join(other_images(session, kernel))
        return shell(kernel, f"for name in {names}; do ssh $name 'hostname; id -un'; done").split()

    for kernel, words in zip(three, in_parallel(*[partial(log_in_to_others, kernel) for kernel in three]), strict=True):
        names = other_images(session, kernel)
        assert words == [word for name in names for word in (name, "work")]
        assert len(names) == len(IMAGES)


def test_a_command_over_ssh_has_the_sessions_environment(
    session: StartedSession, image: str, three: list[Kernel]
) -> None:
    main = session.kernels[0]
    image_values = {"TF_CONFIG": '{"image": 1}', "BACKENDAI_DIST_MASTER_PORT": "31000", "MASTER_PORT": "31000"}
    printed = in_parallel(*[partial(shell, main, f"ssh {kernel['hostname']} env") for kernel in three])
    for kernel, environment in zip(three, map(parse_environment, printed), strict=True):
        assert environment["BACKENDAI_CLUSTER_HOST"] == kernel["hostname"]
        assert environment["BACKENDAI_SESSION_NAME"] == session.record["name"]
        assert environment["NCCL_SOCKET_IFNAME"] == "cluster0"
        expected = image_values if image == ENTRYPOINT else {"MASTER_PORT": "29500"}
        assert {name: environment[name] for name in expected} == expected


def test_login_prompt_shows_user_and_host(session: StartedSession, three: list[Kernel]) -> None:
    names = [kernel["hostname"] for kernel in three]
    # The terminal stays open until the shell has read from it.
    logins = [partial(shell, session.kernels[0], f"(echo exit; sleep 4) | ssh -tt {name}") for name in names]
    for name, shown in zip(names, in_parallel(*logins), strict=True):
        assert f"work@{name}" in shown


def test_scp_copies_files_in_both_directions(session: StartedSession, three: list[Kernel]) -> None:
    def copy_both_ways(name: str) -> str:
        sent, returned = f"/tmp/given-{name}", f"/tmp/returned-{name}"
        forth = f"head -c 300000 /dev/urandom > {sent}; scp -q {sent} {name}:/tmp/taken"
        return_copy = f"scp -q {name}:/tmp/taken {returned}; cmp {sent} {returned} && wc -c < {returned}"
        return shell(three[0], f"{forth} && {return_copy}").strip()

    copies = in_parallel(*[partial(copy_both_ways, name) for name in other_images(session, three[0])])
    assert copies == ["300000"] * len(IMAGES)


def test_image_keeps_its_own_ssh_and_others_get_one(image: str, three: list[Kernel]) -> None:
    for kernel in three:
        assert shell(kernel, "readlink -f $(command -v ssh)").strip() == "/usr/bin/ssh"
        is_kit = "/opt/backendai/bin/busybox grep -q '^#!/opt/backendai/' /usr/bin/ssh && echo kit || echo own"
        assert shell(kernel, is_kit).strip() == ("own" if image == MPI else "kit")
        assert "OpenSSH" in shell(kernel, "ssh -V 2>&1")


def test_the_images_own_entrypoint_and_command_run_as_work(image: str, three: list[Kernel]) -> None:
    traces = ["image entrypoint runs as work", "image command runs as work", "ENTRY=ran"]
    script = """
        cat /tmp/entrypoint /tmp/command 2> /dev/null
        cat /proc/[0-9]*/environ 2> /dev/null | tr '\\0' '\\n' | grep ^ENTRY=
        exit 0
    """
    for output in in_parallel(*[partial(shell, kernel, script) for kernel in three]):
        assert output.splitlines() == (traces if image == ENTRYPOINT else [])


def test_container_keeps_running_after_its_image_command(image: str, three: list[Kernel]) -> None:
    ended = {PYTHON: "own command (bash) ended", BUSYBOX: "own command (sh) ended", MPI: "(/usr/sbin/sshd -D) ended"}
    for kernel in three:
        log = run_on(kernel["agent"], f"docker logs {kernel['container']} 2>&1")
        assert (ended.get(image, "own command") in log) == (image in ended), log

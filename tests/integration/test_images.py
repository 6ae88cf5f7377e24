"""Images from a registry: the same content on all agents, progress output, and a password that stays secret."""

from __future__ import annotations

import base64
import json
import random
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.internals import AGENT_STATE, IMAGES, REGISTRIES, SESSIONS, TASK_PULL
from tests.integration.interruptions import await_task, kill_run
from tests.integration.laboratory import (
    AGENTS,
    BUSYBOX,
    QUEUE,
    TIMEOUT,
    command,
    in_parallel,
    launch,
    memory_share,
    run_on,
    run_on_all,
    ssh,
    stored_sessions,
)
from tests.integration.made_images import archive_member, lab_image
from tests.integration.programs import registry, source
from tests.integration.session_requests import TWO
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until
from tests.lab.image_archive import Image, add_file, write_archive

pytestmark = pytest.mark.images

NAME = "127.0.0.1:5000/pulled:1"
FOLDER = "/tmp/registry"
PASSWORD = "correct-horse-battery"
FILLER = 6 << 20
DOCKER_LOGIN = "/root/.docker/config.json"
REQUEST = {**TWO, "image": NAME}
Serve = Callable[..., None]

#: Removes all images of the registry from an agent.
REMOVE_IMAGES = (
    f"docker images --all --quiet --filter reference='{NAME.rpartition(':')[0]}'"
    " | sort -u | xargs -r docker rmi --force"
)


def write_image_archive(path: Path, seed: int) -> Path:
    """Write an image archive: the lab's busybox, and random bytes that no engine has yet."""
    layer = path.with_suffix(".busybox")
    settings = lab_image(BUSYBOX, layer)
    filler = path.with_suffix(".filler")
    with tarfile.open(filler, "w") as tar:
        add_file(tar, "filler", random.Random(seed).randbytes(FILLER))
    write_archive(path, [Image(NAME, (layer, filler), settings)])
    return path


def write_both(path: Path, newer: Path, older: Path) -> Path:
    """Write an archive with two images; the newer one keeps the name that both had."""
    entries = []
    with tarfile.open(path, "w") as tar:
        for archived in (newer, older):
            with tarfile.open(archived) as image:
                entries += json.loads(archive_member(image, "manifest.json"))
                for name in {*image.getnames()} - {"manifest.json", *tar.getnames()}:
                    add_file(tar, name, archive_member(image, name))
        entries[1]["RepoTags"] = ["older"]
        add_file(tar, "manifest.json", json.dumps(entries).encode())
    return path


def write_file_on(agent: str, path: str, content: bytes) -> None:
    """Write a file on an agent."""
    subprocess.run(ssh(agent, f"umask 077; cat > {path}"), input=content, check=True, timeout=TIMEOUT)


@pytest.fixture
def first_archive(tmp_path: Path) -> Path:
    """Return an archive with the image."""
    return write_image_archive(tmp_path / "first.tar", 1)


@pytest.fixture
def second_archive(tmp_path: Path) -> Path:
    """Return an archive with another image of the same name."""
    return write_image_archive(tmp_path / "second.tar", 2)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that runs a registry on an agent; afterwards the registry and its images are removed.

    Tests request this fixture before sessions, so that sessions are terminated first.
    """
    running: dict[str, str] = {}

    def start_registry(agent: str, image: Path, rate: int = 0) -> None:
        stop_registry(agent)
        run_on(agent, f"mkdir -p {FOLDER}")
        write_file_on(agent, f"{FOLDER}/images.tar", image.read_bytes())
        write_file_on(agent, f"{FOLDER}/registry.py", source("registry").encode())
        write_file_on(agent, f"{FOLDER}/login", f"reader:{PASSWORD}".encode())
        line = f"cd {FOLDER} && python3 registry.py images.tar --login login --rate {rate}"
        running[agent] = run_on(agent, line).strip()

    def stop_registry(agent: str) -> None:
        if agent in running:
            run_on(agent, f"kill {running.pop(agent)}; rm -r {FOLDER}")

    yield start_registry
    in_parallel(*[partial(stop_registry, agent) for agent in list(running)])
    run_on_all(f"{REMOVE_IMAGES}; rm -rf {REGISTRIES}")


@pytest.fixture
def docker_login() -> Iterator[None]:
    """Let root have a login to the registry on agent1."""
    auth = base64.b64encode(f"reader:{PASSWORD}".encode()).decode()
    run_on("agent1", f"mkdir -p {DOCKER_LOGIN.rpartition('/')[0]} && test ! -e {DOCKER_LOGIN}")
    write_file_on("agent1", DOCKER_LOGIN, json.dumps({"auths": {"127.0.0.1:5000": {"auth": auth}}}).encode())
    yield
    run_on("agent1", f"rm {DOCKER_LOGIN}")


def registry_login(password: str = PASSWORD) -> dict[str, dict[str, str]]:
    return {"127.0.0.1:5000": {"username": "reader", "password": password}}


def digests(image: Path) -> set[str]:
    return set(registry.Content(image).tags.values())


def test_agents_pull_the_same_image_with_progress_and_hidden_password(
    serve: Serve, sessions: Sessions, first_archive: Path, second_archive: Path
) -> None:
    in_parallel(*[partial(serve, agent, first_archive, FILLER // 12) for agent in AGENTS])
    # Claims are short, so that they are renewed meanwhile.
    request = {**REQUEST, "cluster_size": 3, "registries": registry_login(), "claim_ttl": 24}
    run = sessions.create("-vvv", **request)
    assert run.code == 0, run.output
    assert {kernel["image_digest"] for kernel in run.record["kernels"]} == digests(first_archive)
    shown = re.findall(
        rf"^(agent\d): pulling {NAME}: \d\.\d of (?:at least )?\d\.\d MB, \d of 2 layers$", run.output, re.M
    )
    assert set(shown) == set(AGENTS), run.output
    assert all(f"{TASK_PULL} ({agent}): done" in run.output for agent in AGENTS), run.output

    assert PASSWORD not in run.output
    assert not [path for path in QUEUE.rglob("*.json") if PASSWORD in path.read_text()]
    look = f"docker inspect $(docker ps --all --quiet) | grep -c {PASSWORD}; grep -rc {PASSWORD} {AGENT_STATE}"
    for output in run_on_all(look, check=False):
        assert {line.rpartition(":")[2] for line in output.splitlines()} == {"0"}, output

    rerun = sessions.create(**request)
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output

    # An agent without the image gets the one of the others, although its registry has another under that name now.
    assert sessions.terminate().code == 0
    run_on("agent3", REMOVE_IMAGES)
    serve("agent3", write_both(second_archive.with_name("both.tar"), second_archive, first_archive))
    later = sessions.create(**{**request, "name": f"{sessions.name}-b"})
    assert later.code == 0, later.output
    assert {kernel["image_digest"] for kernel in later.record["kernels"]} == digests(first_archive)


def test_pulled_image_is_only_for_users_whom_the_registry_lets_read_it(
    serve: Serve, agent1_sessions: Sessions, first_archive: Path
) -> None:
    serve("agent1", first_archive)
    request = {"image": NAME, "designated_agents": ["agent1"], "resources": {"mem": "64m"}}
    assert agent1_sessions.create(**request, registries=registry_login()).code == 0

    other = {**request, "name": f"{agent1_sessions.name}-b"}
    private = f"session_image: '{NAME}' is private, and its registry 127.0.0.1:5000 does not let"
    without = f"{private} this session read it without a password: add 127.0.0.1:5000 to session_registries."
    wrong = f"{private} the user 'reader' read it: correct session_registries.127.0.0.1:5000."
    for registries, sentence in (({}, without), (registry_login("wrong-horse"), wrong)):
        refused = agent1_sessions.create("-vvv", **other, registries=registries)
        assert refused.code != 0
        assert refused.record["error"] == f"the session '{other['name']}' was not created: agent1: {sentence}"
        assert "wrong-horse" not in refused.output
    (image_id,) = set(run_on("agent1", f"docker images --no-trunc --quiet {NAME}").split())
    by_id = agent1_sessions.create(**{**other, "image": image_id}, registries=registry_login())
    assert f"session_image: '{image_id}' is the id of a private image: specify" in by_id.record["error"]

    allowed = agent1_sessions.create("-vvv", **other, registries=registry_login())
    assert (allowed.code, allowed.record["status"]) == (0, "RUNNING"), allowed.output
    # Sessions that run are not asked for a password.
    assert agent1_sessions.create(**other).code == 0
    assert PASSWORD not in allowed.output
    assert run_on("agent1", f"grep -rc -e {PASSWORD} -e wrong-horse {AGENT_STATE} | grep -v ':0$'", check=False) == ""
    assert run_on("agent1", f"find {REGISTRIES} -type f ! -perm 600 -o -type d ! -perm 700") == ""


@pytest.mark.usefixtures("docker_login")
def test_docker_login_of_an_agent_is_used_only_if_it_allows_that(
    serve: Serve, agent1_sessions: Sessions, first_archive: Path
) -> None:
    serve("agent1", first_archive)
    request = {"image": NAME, "designated_agents": ["agent1"], "resources": {"mem": "64m"}}
    allow = ("-e", '{"agent_allow_registry_login": true}')
    assert "cannot be pulled" in agent1_sessions.create(**request).record["error"]
    assert agent1_sessions.create(*allow, **request).record["status"] == "RUNNING"
    other = {**request, "name": f"{agent1_sessions.name}-b"}
    assert "is private" in agent1_sessions.create(**other).record["error"]
    assert agent1_sessions.create(*allow, **other).record["status"] == "RUNNING"


def test_pending_session_is_pulled_with_the_password_of_the_starting_run(
    serve: Serve, agent1_sessions: Sessions, first_archive: Path
) -> None:
    serve("agent1", first_archive)
    on_agent1 = {"designated_agents": ["agent1"]}
    assert agent1_sessions.create(image=BUSYBOX, resources={"mem": memory_share(1)}, **on_agent1).code == 0
    pending_request: dict[str, Any] = {
        "name": f"{agent1_sessions.name}-b",
        "image": NAME,
        "resources": {"mem": "128m"},
        **on_agent1,
    }
    pending = agent1_sessions.create(**pending_request, registries=registry_login("wrong-horse"))
    assert pending.record["status"] == "PENDING", pending.output
    assert not [path for path in QUEUE.rglob("*.json") if "wrong-horse" in path.read_text()]
    assert agent1_sessions.terminate(name=agent1_sessions.name, registries=registry_login()).code == 0
    record = agent1_sessions.list_by_name()[pending_request["name"]]
    assert (record["status"], {record["kernels"][0]["image_digest"]}) == ("RUNNING", digests(first_archive))


def test_different_images_under_one_name_are_refused(
    serve: Serve, sessions: Sessions, first_archive: Path, second_archive: Path
) -> None:
    serve("agent1", first_archive)
    serve("agent2", second_archive)
    agents = ["agent1", "agent2"]
    run = sessions.create(**REQUEST, designated_agents=agents, registries=registry_login())
    assert run.code != 0
    (first_digest,), (second_digest,) = (
        [digest[:19] for digest in digests(image)] for image in (first_archive, second_archive)
    )
    assert (
        f"session_image: '{NAME}' is not the same on all agents: {first_digest}… on agent1, {second_digest}… on agent2;"
        " remove the outdated one (docker rmi) or specify the image by its digest"
    ) in run.record["error"]


def claims_expire_at() -> dict[str, float]:
    """Return when the claims of agents expire, as their uptimes."""
    return {
        agent: session["expires_at"]["uptime"]
        for agent, sessions_there in stored_sessions().items()
        for session in sessions_there
    }


def uptime(agent: str) -> float:
    return float(run_on(agent, "cat /proc/uptime").split()[0])


def test_pull_renews_its_claim_and_stops_with_its_run(
    serve: Serve, sessions: Sessions, first_archive: Path, tmp_path: Path
) -> None:
    # The second agent has the image already, so it only has to renew its claim.
    with first_archive.open("rb") as stream:
        subprocess.run(ssh("agent2", "docker load"), stdin=stream, check=True, capture_output=True, timeout=TIMEOUT)
    serve("agent1", first_archive, FILLER // 180)
    request = {**REQUEST, "designated_agents": ["agent1", "agent2"], "registries": registry_login()}
    variables = {**request, "name": sessions.name, "claim_ttl": 18}
    line = command("create_session", tmp_path, {f"session_{key}": value for key, value in variables.items()})
    with launch(line) as run:
        assert TASK_PULL in await_task(run, TASK_PULL)
        first = claims_expire_at()
        wait_until(lambda: all(uptime(agent) > first[agent] for agent in first), TIMEOUT)
        assert run.poll() is None
        renewed = claims_expire_at()
        assert all(renewed[agent] > uptime(agent) for agent in ("agent1", "agent2")), (first, renewed)
        kill_run(run)
        run.communicate(timeout=TIMEOUT)
    lock = f"{SESSIONS}/*/pulls/*.lock"
    assert run_on("agent1", f"flock --nonblock {lock} true || echo pulling") == "pulling\n"
    run_on("agent1", f"flock --timeout 180 {lock} true")
    assert NAME not in run_on("agent1", "docker images --format '{{.Repository}}:{{.Tag}}'")
    # The next run of the scheduler removes what is left.
    assert sessions.run("schedule_sessions").code == 0
    assert not any(stored_sessions().values())


def test_prefetched_image_is_private_and_makes_a_session_that_pulls_nothing(
    serve: Serve, sessions: Sessions, first_archive: Path, second_archive: Path
) -> None:
    serve("agent1", first_archive)
    # Here the tag has another content by now.
    serve("agent2", write_both(first_archive.with_name("both.tar"), second_archive, first_archive))
    prefetch = partial(sessions.run, "prefetch_images", "-e", f"agent_images={NAME}", registries=registry_login())
    first = prefetch("-vvv", "-e", "agent_names=agent1")
    assert (first.code, first.changed) == (0, 1), first.output
    assert re.search(rf"^agent1: {NAME} was pulled, \d+\.\d MB\.$", first.output, re.M), first.output
    assert PASSWORD not in first.output

    request = {**REQUEST, "designated_agents": ["agent1", "agent2"]}
    told = sessions.create("--check", "-e", "agent_disk_reserve=900t", **request, registries=registry_login())
    assert re.search(rf"agent2: its disk may get full: the images \({NAME}\) take \d+\.\d MB, ", told.text), told.output

    both = prefetch("-e", "agent_names=agent1,agent2")
    assert (both.code, both.changed) == (0, 1), both.output
    refused = sessions.create(**request)
    assert "is private, and its registry 127.0.0.1:5000 does not let" in refused.record["error"]
    run = sessions.create(**request, registries=registry_login())
    assert run.code == 0, run.output
    assert f"{TASK_PULL} (" not in run.output
    assert {kernel["image_digest"] for kernel in run.record["kernels"]} == digests(first_archive)


def test_images_are_pruned_but_not_those_of_sessions_and_of_the_queue(
    serve: Serve, agent1_sessions: Sessions, first_archive: Path, second_archive: Path
) -> None:
    older = NAME.replace(":1", ":older")
    serve("agent1", write_both(first_archive.with_name("both.tar"), second_archive, first_archive))
    login = {"registries": registry_login()}
    absent = f"{NAME.rpartition(':')[0]}:absent"
    run = agent1_sessions.run("prefetch_images", "-e", f"agent_images={NAME},{absent},{older}", **login)
    assert run.code != 0
    assert f"agent_images: '{absent}' is not on this host and cannot be pulled (" in run.text
    assert "Not all of the images are on agent1." in run.text

    def prune(*options: str) -> str:
        # All of them would go, if nothing needed them.
        run_on("agent1", f"touch -d '2 days ago' {IMAGES}/*.json")
        pruned = agent1_sessions.run("prune_images", "-e", "agent_image_free_space=900t", *options)
        assert pruned.code == 0, pruned.output
        return pruned.text

    on_agent1 = {"designated_agents": ["agent1"], **login}
    running = agent1_sessions.create(image=NAME, resources={"mem": memory_share(1)}, **on_agent1)
    assert running.record["status"] == "RUNNING", running.output
    waiting = {"name": f"{agent1_sessions.name}-b", "image": older, "resources": {"mem": "128m"}, **on_agent1}
    assert agent1_sessions.create(**waiting).record["status"] == "PENDING"
    assert "agent1: no images removed" in prune()
    assert agent1_sessions.terminate(name=waiting["name"]).code == 0
    assert f"agent1: {older} would be removed, " in prune("--check")
    text = prune()
    assert f"agent1: {older} was removed, " in text
    assert "less than agent_image_free_space, 989.6 TB" in text
    left = run_on("agent1", "docker images --format '{{.Repository}}:{{.Tag}}'").split()
    assert (NAME in left, older in left, BUSYBOX in left) == (True, False, True)
    # What nothing needs goes by its age alone, too.
    assert agent1_sessions.terminate().code == 0
    for days, stays in ((3, True), (1, False)):
        run_on("agent1", f"touch -d '2 days ago' {IMAGES}/*.json")
        aged = agent1_sessions.run("prune_images", "-e", f"agent_image_unused_days={days}")
        assert aged.code == 0, aged.output
        assert (NAME in run_on("agent1", "docker images --format '{{.Repository}}:{{.Tag}}'").split()) == stays

"""Agents as strangers keep them: settings of their engine, of root and of others do not decide what a session gets."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.engines import start_engine
from tests.integration.laboratory import AGENTS, PYTHON, run_in, run_on, run_playbook
from tests.integration.session_requests import SMALL, TWO
from tests.integration.sessions import Sessions, StartedSession, started_session
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.containers

OLD, NEW = AGENTS[0], AGENTS[2]
IMAGE = "test/roots-home:1"
SETTINGS, ROOTS, SHELL = "/etc/docker/daemon.json", "/root/.docker/config.json", "/root/.bashrc"
# As few processes as the containers of a session have with one terminal each.
PROCESSES = 200
ENGINE = {
    "log-driver": "local",
    "default-ulimits": {"nproc": {"Name": "nproc", "Soft": PROCESSES, "Hard": PROCESSES}},
    "default-network-opts": {"bridge": {"com.docker.network.bridge.enable_icc": "false"}},
}
CONFIG = {
    "auths": {"https://index.docker.io/v1/": {"auth": "dckr_pat_aBcDeFgHiJkLmNoPqRsTuVwXyZ0"}},
    "proxies": {"default": {"httpProxy": "http://192.0.2.1:3128", "noProxy": "localhost"}},
}


def write(agent: str, path: str, text: str) -> None:
    run_on(agent, f"test ! -e {path} && mkdir -p {Path(path).parent} && printf %s {shlex.quote(text)} > {path}")


@contextmanager
def engine_with(agent: str, settings: object, folder: Path) -> Iterator[None]:
    """Restart the engine of an agent without sessions with these settings; it is as before at the end."""
    assert run_on(agent, "docker ps --quiet 2> /dev/null") == ""
    try:
        write(agent, SETTINGS, json.dumps(settings))
        run_on(agent, "systemctl restart docker")
        yield
    finally:
        run_on(agent, f"rm -f {SETTINGS}; systemctl restart docker", check=False)
        start_engine(agent, folder)


def test_a_session_works_where_the_engine_gives_containers_other_users(tmp_path: Path) -> None:
    """With userns-remap the engine has another data folder, without the images and the network of before."""
    saved, network = "/root/test-image.tar", ["--limit", NEW, "--tags", "network"]
    run_on(NEW, f"docker save --output {saved} {PYTHON}")
    try:
        with engine_with(NEW, {"userns-remap": "default"}, tmp_path):
            assert "name=userns" in run_on(NEW, "docker info --format '{{.SecurityOptions}}'")
            run_on(NEW, f"docker load --input {saved}")
            provisioned = run_playbook("provision_agents", tmp_path, {}, *network)
            assert provisioned.code == 0, provisioned.output
            with started_session(tmp_path, **SMALL, designated_agents=[NEW]) as session:
                (kernel,) = session.kernels
                assert run_in(kernel, "sh", "-c", "touch /home/work/x && id -un").strip() == "work"
                assert session.create_again().code == 0
            run_on(NEW, "docker network rm backendai-default")
    finally:
        run_on(NEW, f"rm -rf {saved} /var/lib/docker/[0-9]*.[0-9]*", check=False)
        provisioned = run_playbook("provision_agents", tmp_path, {}, *network)
    assert provisioned.code == 0, provisioned.output


def test_a_library_of_pip_beside_the_sdk_is_named_where_that_is_needed(tmp_path: Path) -> None:
    """The place is that of pip; what the library says is not what an incompatible one would."""
    place = run_on(OLD, "python3 -c \"import sys; print('/usr/local/lib/python%d.%d' % sys.version_info[:2])\"").strip()
    folder = f"{place}/dist-packages"
    with Sessions(tmp_path) as sessions:
        # The agent looks at the image by the SDK, once.
        assert sessions.create(**SMALL, designated_agents=[OLD]).record["status"] == "RUNNING"
        try:
            write(OLD, f"{folder}/requests/__init__.py", "raise ImportError('no DEFAULT_CIPHERS in urllib3')")
            started = sessions.create(**SMALL, name=f"{sessions.name}-second", designated_agents=[OLD])
            assert started.record["status"] == "RUNNING"
            absent = {"name": f"{sessions.name}-absent", "image": "nowhere.invalid/lab/absent:1"}
            run = sessions.create(**{**SMALL, **absent}, designated_agents=[OLD])
            ended = sessions.terminate(name=f"{sessions.name}-second")
        finally:
            run_on(OLD, f"rm -rf {folder}/requests", check=False)
    assert ended.code == 0, ended.output
    assert run.code != 0
    assert "(no DEFAULT_CIPHERS in urllib3)" in run.text
    assert f" in {folder}" in run.text
    assert "remove what pip has installed beside the packages of the distribution" in run.text


def test_lists_of_an_ini_inventory_and_a_broken_package_source_are_no_obstacles(tmp_path: Path) -> None:
    source, closed = "/etc/apt/sources.list.d/test-odd.list", "10.99.0.0/16"
    team = tmp_path / "team.ini"
    team.write_text(f"[agents]\n{OLD}\n[agents:vars]\nagent_closed_networks='[\"{closed}\"]'\n")
    network = ["--limit", OLD, "--tags", "packages,network"]
    try:
        write(OLD, source, "deb http://192.0.2.1/ nowhere main\n")
        old = {"agent_apt_cache_valid_time": 1}
        run = run_playbook("provision_agents", tmp_path, old, *network, "-i", str(team))
        assert run.code == 0, run.output
        wait_until(lambda: closed in run_on(OLD, "nft list table inet backendai"), seconds=20)
    finally:
        run_on(OLD, f"rm -f {source}", check=False)
        again = run_playbook("provision_agents", tmp_path, {}, *network)
    assert again.code == 0, again.output
    wait_until(lambda: closed not in run_on(OLD, "nft list table inet backendai"), seconds=20)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Two containers on an agent where all of that is at once."""
    folder = tmp_path_factory.mktemp("odd-hosts")
    change = f"docker commit --change 'ENV HOME=/root' test-home {IMAGE} && docker rm test-home"
    path = "PATH=/usr/local/bin:/usr/bin:/bin"
    try:
        run_on(NEW, f"docker create --name test-home {PYTHON} && {change}")
        run_on(NEW, f"cp -a {SHELL} {SHELL}.before 2> /dev/null; sed -i '1i {path}' {SHELL} || echo {path} > {SHELL}")
        write(NEW, ROOTS, json.dumps(CONFIG))
        request = {**TWO, "image": IMAGE, "designated_agents": [NEW]}
        with (
            engine_with(NEW, ENGINE, folder),
            started_session(folder, "-e", "agent_log_max_files=1", **request) as session,
        ):
            yield session
    finally:
        run_on(
            NEW, f"rm -rf {Path(ROOTS).parent} {SHELL}; mv {SHELL}.before {SHELL}; docker rmi -f {IMAGE}", check=False
        )


def test_containers_of_one_agent_talk_http_by_name(two: StartedSession) -> None:
    main, sub = two.kernels
    get = "import urllib.request; print(urllib.request.urlopen('http://main1:8000/', timeout=5).status)"
    run_on(NEW, f"docker exec --detach {main['container']} python3 -m http.server 8000")
    wait_until(lambda: "200" in run_in(sub, "python3", "-c", get, check=False))
    assert "proxy" not in run_in(sub, "env").lower()


def test_processes_of_a_container_are_not_counted_with_those_of_others(two: StartedSession) -> None:
    many = f"for each in $(seq {PROCESSES}); do sleep 20 & done; jobs -p | wc -l; kill $(jobs -p)"
    for kernel in two.kernels:
        assert str(PROCESSES) in run_in(kernel, "bash", "-c", many).split()


def test_a_session_may_watch_more_files_than_the_kernel_allows_a_person(two: StartedSession) -> None:
    take = "import ctypes; take = ctypes.CDLL(None).inotify_init; print(sum(take() >= 0 for _ in range(1000)))"
    assert "1000" in run_in(two.kernels[0], "python3", "-c", take).split()


def test_the_home_of_docker_exec_is_not_that_of_the_image(two: StartedSession) -> None:
    line = "echo $HOME && touch $HOME/written && ls $HOME/written && id -un"
    # The docker command complains of root's configuration.
    assert {"/home/work", "/home/work/written", "work"} <= {*run_in(two.kernels[0], "sh", "-c", line).split()}


def test_a_session_goes_on_when_what_needrestart_would_restart_is_restarted(sessions: Sessions) -> None:
    """Of what sessions need it leaves the engine alone, but not the engine's containerd and our own services."""
    started = sessions.start(**SMALL)
    kernel = started.kernels[0]
    agent, first = kernel["agent"], f"docker inspect --format '{{{{.State.Pid}}}}' {kernel['container']}"
    before = run_on(agent, first)
    run_on(agent, "systemctl restart containerd; systemctl try-restart 'backendai-output@*.service'")
    wait_until(lambda: run_on(agent, first, check=False) == before)
    # The client on this host says that its configuration is damaged, too.
    assert run_in(kernel, "echo", "answers").startswith("answers\n")
    verified = sessions.run("verify_session", name=sessions.name)
    assert (verified.code, verified.record["drift"]) == (0, []), verified.output

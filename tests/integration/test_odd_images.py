"""An image and variables that make ssh, shells and loaders say and do odd things: the session works all the same."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial

import pytest

from tests.integration.containers import parse_environment
from tests.integration.laboratory import AGENTS, PYTHON, TIMEOUT, in_parallel, run_in, run_on, ssh
from tests.integration.session_requests import TWO
from tests.integration.sessions import StartedSession, started_session

pytestmark = [pytest.mark.containers, pytest.mark.images]

IMAGE = "test/odd:1"
HOSTS = (AGENTS[0], AGENTS[2])

# As images for other clusters have it, and then some.
SSH_CONFIG = (
    *("Host *", "Port 2222", "UserKnownHostsFile /dev/null", "StrictHostKeyChecking no", "ProxyCommand /bin/false"),
    *("HostKeyAlias other", "HostName 192.0.2.1", "BindAddress 192.0.2.2", "RequestTTY force", "ControlMaster auto"),
    *("ControlPath /nowhere/%C", "PreferredAuthentications password", "ServerAliveInterval 33", "NoSuchOption yes"),
)
SCRIPT = " && ".join(
    [
        "mkdir -p /etc/ssh",
        f"printf '%s\\n' {' '.join(f'{line!r}' for line in SSH_CONFIG)} > /etc/ssh/ssh_config",
        "echo 'echo noise; echo more noise >&2' > /etc/noise",
    ]
)
VARIABLES = {
    "BASH_ENV": "/etc/noise",
    "HTTPS_PROXY": "http://192.0.2.9:3128",
    "LC_ALL": "en_US.UTF-8",
    "LD_PRELOAD": "/nowhere/libgone.so",
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Two containers, one on each engine."""
    tag = f"docker commit test-odd {IMAGE} && docker rm test-odd"
    first, second = HOSTS
    try:
        run_on(first, f'docker run --name test-odd --user 0 --entrypoint sh {PYTHON} -c "{SCRIPT}" && {tag}')
        # All agents of a session have the same image.
        with subprocess.Popen(ssh(first, f"docker save {IMAGE}"), stdout=subprocess.PIPE) as saved:
            subprocess.run(ssh(second, "docker load --quiet"), stdin=saved.stdout, check=True, timeout=TIMEOUT)
        request = {**TWO, "image": IMAGE, "designated_agents": list(HOSTS), "agent_selection": "dispersed"}
        with started_session(tmp_path_factory.mktemp("odd"), **request, env=VARIABLES) as session:
            yield session
    finally:
        calls = [partial(run_on, agent, f"docker rmi --force {IMAGE}", check=False) for agent in HOSTS]
        in_parallel(*calls)


def test_ssh_by_name_works_as_the_user_types_it(two: StartedSession) -> None:
    for kernel, peer in zip(two.kernels, reversed(two.kernels), strict=True):
        for name in (peer["hostname"], peer["address"]):
            assert peer["hostname"] in run_in(kernel, "ssh", name, "hostname").splitlines()
    shown = run_in(two.kernels[0], "ssh", "-G", "sub1").splitlines()
    assert {"port 22", "stricthostkeychecking true", "serveraliveinterval 33"} <= set(shown)


def test_ssh_to_other_hosts_obeys_the_image(two: StartedSession) -> None:
    shown = run_in(two.kernels[0], "ssh", "-G", "git.example.com").splitlines()
    assert {"port 2222", "hostkeyalias other"} <= set(shown)


def test_such_a_session_is_healthy_and_needs_no_repair(two: StartedSession) -> None:
    verified = two.sessions.run("verify_session", name=two.record["name"])
    assert (verified.code, verified.record["healthy"]) == (0, True), verified.output
    again = two.create_again()
    assert (again.code, again.changed) == (0, 0), again.output


def test_programs_find_the_interface_and_the_names_of_the_session(two: StartedSession) -> None:
    main, sub = two.kernels
    for text in (run_in(main, "env"), run_in(main, "ssh", sub["hostname"], "env")):
        environment = parse_environment(text)
        names = ("UCX_NET_DEVICES", "FI_TCP_IFACE", "HYDRA_IFACE", "I_MPI_HYDRA_IFACE", "TP_SOCKET_IFNAME")
        assert [environment[name] for name in names] == ["cluster0"] * 5
        assert environment["no_proxy"] == environment["NO_PROXY"] == "localhost,127.0.0.1,main1,sub1"
        assert {name: environment[name] for name in VARIABLES} == VARIABLES

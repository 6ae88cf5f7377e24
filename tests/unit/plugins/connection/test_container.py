"""The connection plugin, with a fake Docker client that runs commands on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader

from ansible_collections.backendai.cluster.plugins.connection import container
from ansible_collections.backendai.cluster.plugins.connection.container import Connection

OPTIONS = {
    "backendai_container": "backendai-train-llm-main1",
    "backendai_agent": "agent1",
    "backendai_agent_connection": {"ansible_connection": "local"},
}

RUNS = """\
for word; do echo "$word"; done > "$0.asked"
while [ "${1#/opt/}" = "$1" ]; do shift; done
shift
exec /bin/sh "$@"
"""


@pytest.fixture(autouse=True)
def requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a fake client; return the file with its arguments, one per line."""
    client(tmp_path, RUNS)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "docker.asked"


def client(folder: Path, script: str) -> None:
    (folder / "docker").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "docker").chmod(0o755)


def connect(**variables: Any) -> Connection:
    name = "backendai.cluster.container"
    connection_loader._load_config_defs(name, container, container.__file__)
    connection = Connection(PlayContext())
    connection._load_name = name
    connection.set_options(var_options={**OPTIONS, **variables})
    return connection


def test_command_runs_as_work_in_a_login_shell(requests: Path) -> None:
    assert connect().exec_command("echo 'two words'; echo oops >&2; exit 3") == (3, b"two words\n", b"oops\n")
    words = requests.read_text().splitlines()
    engine = ["--host", "unix:///var/run/docker.sock", "exec", "--workdir", "/home/work"]
    assert words[:-3] == [*engine, "backendai-train-llm-main1"]
    assert words[-3:] == ["/opt/backendai/shell/sh", "-c", "echo 'two words'; echo oops >&2; exit 3"]


def test_command_has_stdin_only_with_data(requests: Path) -> None:
    connection = connect()
    assert connection.exec_command("cat", in_data=b"\x00\xff") == (0, b"\x00\xff", b"")
    assert "--interactive" in requests.read_text().splitlines()
    connection.exec_command("true")
    assert "--interactive" not in requests.read_text().splitlines()


def test_user_and_docker_host_are_options(requests: Path) -> None:
    connect(ansible_user="one", ansible_container_user="0", backendai_docker_host="unix:///its.sock").exec_command("id")
    words = requests.read_text().splitlines()
    assert words[:2] == ["--host", "unix:///its.sock"]
    assert words[words.index("--user") + 1] == "0"


def test_remote_user_keyword_sets_the_user(requests: Path) -> None:
    connection = connect()
    connection.set_options(var_options=OPTIONS, task_keys={"remote_user": "1234"})
    connection.exec_command("id")
    words = requests.read_text().splitlines()
    assert words[words.index("--user") + 1] == "1234"


@pytest.mark.parametrize("content", [b"", bytes(range(256))], ids=["empty", "binary"])
def test_files_are_transferred_unchanged(requests: Path, tmp_path: Path, content: bytes) -> None:
    source, hostvars, back = tmp_path / "here", tmp_path / "the other's", tmp_path / "back"
    source.write_bytes(content)
    connection = connect()
    connection.put_file(str(source), str(hostvars))
    assert hostvars.read_bytes() == content
    assert "/opt/backendai/bin/sh" in requests.read_text().splitlines()
    connection.fetch_file(str(hostvars), str(back))
    assert back.read_bytes() == content


def test_missing_local_file_cannot_be_sent(requests: Path, tmp_path: Path) -> None:
    with pytest.raises(AnsibleFileNotFound, match="does not exist: it cannot be sent to container backendai-train-llm"):
        connect().put_file(str(tmp_path / "nothing"), "/there")
    assert not requests.exists()


def test_transfer_error_names_file_and_container(tmp_path: Path) -> None:
    where = "container backendai-train-llm-main1 on agent1"
    (tmp_path / "here").touch()
    with pytest.raises(AnsibleError, match=f"/no/where cannot be written in {where}: .*/no/where"):
        connect().put_file(str(tmp_path / "here"), "/no/where")
    with pytest.raises(AnsibleError, match=f"/no/where cannot be read in {where}: .*/no/where"):
        connect().fetch_file("/no/where", str(tmp_path / "back"))
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    "error",
    [
        "Error: No such container: backendai-train-llm-main1",
        "Error response from daemon: No such container: backendai-train-llm-main1",
        "Error response from daemon: Container 0123abcd is not running",
        "Error response from daemon: container 0123abcd is not running",
        "Error response from daemon: Container backendai-train-llm-main1 is paused, unpause the container before exec",
    ],
)
def test_stopped_container_is_unreachable(tmp_path: Path, error: str) -> None:
    client(tmp_path, f"echo '{error}' >&2; exit 1")
    with pytest.raises(AnsibleConnectionFailure) as failed:
        connect().exec_command("true")
    assert str(failed.value) == (
        "container backendai-train-llm-main1 on agent1 is not running: its session has ended, or needs a repair."
    )


@pytest.mark.parametrize(
    "error",
    [
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
    ],
)
def test_unavailable_docker_is_unreachable(tmp_path: Path, error: str) -> None:
    client(tmp_path, f"echo '{error}' >&2; exit 1")
    with pytest.raises(AnsibleConnectionFailure, match=f"on agent1 cannot be reached: {error[:30]}"):
        connect().exec_command("true")


def test_failed_command_is_no_connection_error() -> None:
    error = "Error: No such container: mine"
    assert connect().exec_command(f"echo first >&2; echo '{error}' >&2; exit 1") == (
        1,
        b"",
        f"first\n{error}\n".encode(),
    )
    assert connect().exec_command(f"echo '{error}' >&2; exit 2") == (2, b"", f"{error}\n".encode())


def test_closed_connection_reopens() -> None:
    connection = connect()
    connection.exec_command("true")
    connection.close()
    assert not connection.connected
    connection.reset()
    assert connection.exec_command("echo hello") == (0, b"hello\n", b"")


@pytest.mark.parametrize("missing", ["backendai_container", "backendai_agent_connection"])
def test_container_and_agent_are_required(missing: str) -> None:
    with pytest.raises(AnsibleError, match=r"[Rr]equired"):
        connect(**{missing: None})

"""The lab and the session that the acceptance tests share. A test that changes a session makes one of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.integration.gateway_client import GATEWAY, USER
from tests.integration.laboratory import AGENTS, agent_state, run_counts, run_on, run_on_all, run_playbook
from tests.integration.managers import MANAGER
from tests.integration.session_requests import FOUR
from tests.integration.sessions import Sessions, StartedSession, end_all_sessions
from tests.lab.identity import SHARED

#: A folder that all agents have, and each with a file that says whose it is; one that can be written, one that cannot.
#: The name of the latter begins like that of a folder that is never mounted.
DATA, GIVEN = "/srv/acceptance-data", "/devel-acceptance"
#: A folder in the file system that agents share.
SHARED_DATA = f"{SHARED}/acceptance"
#: The folder of the user's key on user1.
KEYS = "/tmp/acceptance"
SECRET = "a-secret-of-mine"
WEB = {"name": "web", "port": 8000, "command": "cd /etc && exec python3 -m http.server 8000"}
#: Answers each request with its headers.
MIRROR = {
    "name": "mirror",
    "port": 8001,
    "command": """exec python3 -c '
from http.server import BaseHTTPRequestHandler, HTTPServer
class Mirror(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers.as_bytes())
HTTPServer(("", 8001), Mirror).serve_forever()'
""",
}


class Training(NamedTuple):
    """The session that tests look at: four containers over three agents, with apps and folders."""

    session: StartedSession
    access: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.session.record["name"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests without the shared session come first: agents hold then what such a test starts, and nothing else."""
    items.sort(key=lambda item: "train" in getattr(item, "fixturenames", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(run_counts())


@pytest.fixture(scope="session", autouse=True)
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """End what is left in the lab; at the end its agents are as they were."""
    end_all_sessions(tmp_path_factory.mktemp("before"))
    run_on(USER, "command -v nmap || apt-get install --yes --no-install-recommends nmap")
    run_on_all(
        "command -v curl || apt-get install --yes --no-install-recommends curl", [*AGENTS, GATEWAY, USER, MANAGER]
    )
    before = agent_state()
    yield
    assert agent_state() == before


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    """Sessions of one test, which are ended."""
    with Sessions(tmp_path) as sessions:
        yield sessions


@pytest.fixture(scope="session")
def user_key() -> Iterator[str]:
    """Make the key of a user on user1, and return its public half."""
    run_on(USER, f"rm -rf {KEYS} && install -d -m 700 {KEYS} && ssh-keygen -q -t ed25519 -N '' -f {KEYS}/key")
    yield run_on(USER, f"cat {KEYS}/key.pub").strip()
    run_on(USER, f"rm -r {KEYS}")


@pytest.fixture(scope="session")
def train(user_key: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    """Start the shared session, with -vvv and --diff: what a log would have."""
    folder = tmp_path_factory.mktemp("train")
    run_on_all(f"install -d -m 1777 {DATA} {GIVEN} {SHARED_DATA}; hostname > {GIVEN}/whose")
    request = {
        **FOUR,
        "resources": {"cpu": 1, "mem": "256m", "shmem": "64m"},
        "bootstrap_script": "export GREETED=$BACKENDAI_CLUSTER_HOST",
        "env": {"GREETING": "hello world", "TOKEN": SECRET},
        "mounts": [
            {"source": DATA, "target": "/home/work/data"},
            {"source": SHARED_DATA, "target": "/home/work/shared"},
            {"source": GIVEN, "target": "/home/work/given", "read_only": True},
        ],
        "apps": [WEB, MIRROR, "terminal"],
        "authorized_keys": [user_key],
        "access_path": str(folder / "access.json"),
    }
    try:
        with Sessions(folder) as sessions:
            session = sessions.start("-vvv", "--diff", **request)
            assert {kernel["agent"] for kernel in session.kernels} == {*AGENTS}
            assert (folder / "access.json").stat().st_mode & 0o777 == 0o600
            (access,) = json.loads((folder / "access.json").read_text())
            yield Training(session, access)
    finally:
        run_on_all(f"rm -rf {DATA} {GIVEN} {SHARED_DATA}")


@pytest.fixture(scope="session")
def token(train: Training, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a token for the apps of the shared session."""
    path = tmp_path_factory.mktemp("token") / "token"
    run = run_playbook("session_token", path.parent, {"session_name": train.name, "session_token_path": str(path)})
    assert run.code == 0, run.output
    assert path.stat().st_mode & 0o777 == 0o600
    return path.read_text().strip()

"""Access of a user to a session, from ``user1``, which reaches only the gateway."""

from __future__ import annotations

import base64
import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.gateway_client import bearer_header, program, run_client, send_request
from tests.integration.internals import GATEWAY_STATE
from tests.integration.laboratory import address, run_on, run_playbook
from tests.integration.probes import read_banner
from tests.integration.programs import source
from tests.integration.session_requests import THREE
from tests.integration.sessions import StartedSession, started_session
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.gateway

PROGRAM = base64.b64encode(source("web_app").encode()).decode()
WEB = {"name": "web", "port": 8888, "command": f'exec python3 -c "$(echo {PROGRAM} | base64 -d)" 0.0.0.0 8888 web'}
DATABASE = {"name": "database", "port": 5432, "protocol": "tcp"}
LATE = {"name": "late", "port": 8889}
# Like Jupyter and TensorBoard, which are large: it serves pages below its base URL only.
NOTEBOOK = {
    "name": "notebook",
    "port": 8890,
    "path": "keep",
    "start": "/lab",
    "command": f'exec python3 -c "$(echo {PROGRAM} | base64 -d)" 0.0.0.0 8890 "$BACKENDAI_APP_BASE_URL"',
}
OPTIONS = "-o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/tmp/access/known"


@pytest.fixture(scope="module")
def key() -> Iterator[str]:
    """Create a key pair on ``user1``; return the public key."""
    run_on("user1", "install -d -m 700 /tmp/access && ssh-keygen -q -t ed25519 -N '' -f /tmp/access/key")
    yield run_on("user1", "cat /tmp/access/key.pub").strip()
    run_on("user1", "rm -r /tmp/access")


@pytest.fixture(scope="module")
def access_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the access file."""
    return tmp_path_factory.mktemp("access") / "access.json"


@pytest.fixture(scope="module")
def session(key: str, access_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Three containers on three agents, an app that responds, one that does not, one of TCP."""
    request = {
        **THREE,
        "apps": [WEB, DATABASE, LATE, NOTEBOOK, "terminal"],
        "authorized_keys": [key],
        "access_path": str(access_path),
    }
    with started_session(tmp_path_factory.mktemp("access"), **request) as session:
        yield session


def apps_answer(name: str, token: str) -> bool:
    """Tell whether the apps of a session answer, which start when it runs."""
    paths = (f"/s/{name}/{app}/" for app in ("web", "notebook", "terminal"))
    return all(send_request(path, **bearer_header(token))["status"] != 503 for path in paths)


@pytest.fixture(scope="module")
def token(session: StartedSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a token from its file, which only its owner can read; of the output of -vvv only the links have it."""
    path = tmp_path_factory.mktemp("token") / "token"
    extra_vars = {"session_name": session.record["name"], "session_token_path": str(path)}
    run = run_playbook("session_token", path.parent, extra_vars, "-vvv", "--diff")
    assert run.code == 0, run.output
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text().strip()
    signature = text.split(".")[2]
    links = [line.split() for line in run.output.splitlines() if signature in line]
    assert [app for app, _link in links] == ["web", "late", "notebook", "terminal"]
    assert all(link.endswith(f"?token={text}") for _app, link in links)
    wait_until(lambda: apps_answer(session.record["name"], text))
    return text


def test_access_is_printed_and_recorded(session: StartedSession, access_path: Path) -> None:
    name = session.record["name"]
    (access,) = json.loads(access_path.read_text())
    assert access["gateway"] == "gateway1"
    assert access["apps"] == [
        {"name": "web", "url": f"https://{address('gateway1')}/s/{name}/web/"},
        {"name": "database", "url": None},
        {"name": "late", "url": f"https://{address('gateway1')}/s/{name}/late/"},
        {"name": "notebook", "url": f"https://{address('gateway1')}/s/{name}/notebook/lab"},
        {"name": "terminal", "url": f"https://{address('gateway1')}/s/{name}/terminal/"},
    ]
    assert access["ssh"]["host"] == address("gateway1")
    assert f"https://{address('gateway1')}/s/{name}/web/" in session.run.output
    assert f"session_token -e session_name={name}" in session.run.text


def test_app_opens_only_with_a_token(session: StartedSession, token: str) -> None:
    path = f"/s/{session.record['name']}/web/hello"
    answer = send_request(path, **bearer_header(token))
    assert answer["status"] == 200, answer
    body = json.loads(answer["body"])
    assert (body["app"], body["path"]) == ("web", "/hello")
    assert send_request(path)["status"] == 403
    assert run_client({"socket": {"path": path, "headers": bearer_header(token)}}) == {
        "status": 101,
        "received": "hello",
    }


def test_app_that_does_not_answer_has_an_error_page(session: StartedSession, token: str) -> None:
    answer = send_request(f"/s/{session.record['name']}/late/", **bearer_header(token))
    assert answer["status"] == 503


def test_app_that_keeps_the_path_is_at_its_base_url(session: StartedSession, token: str) -> None:
    base = f"/s/{session.record['name']}/notebook"
    paths = [f"{base}/lab", f"{base}/static/lab.js"]
    answers = [send_request(path, **bearer_header(token)) for path in paths]
    assert [answer["status"] for answer in answers] == [200, 200]
    bodies = [json.loads(answer["body"]) for answer in answers]
    assert [(body["app"], body["path"]) for body in bodies] == [(base, path) for path in paths]
    assert run_client({"socket": {"path": f"{base}/api/events", "headers": bearer_header(token)}}) == {
        "status": 101,
        "received": "hello",
    }


def test_terminal_opens_by_its_link(session: StartedSession, token: str) -> None:
    path = f"/s/{session.record['name']}/terminal/"
    # The screen repeats what is typed, so that only the shell's own answer has the expected line.
    line = "echo $(id -un):$(stty size):$LANG:$MASTER_ADDR:$(ssh sub1 hostname):$(printf '\\303\\274')"
    expected = "work:41 133:C.UTF-8:main1:sub1:ü"
    report = json.loads(program("user1", "terminal_client", token, address("gateway1"), path, line, expected))
    assert report["statuses"] == [200, 200, 200, 200]
    assert expected in report["screen"], report


def test_printed_ssh_configuration_reaches_all_containers(session: StartedSession) -> None:
    name = session.record["name"]
    (host,) = re.findall(rf"^  (Host {name}\n(?:    .*\n)+)", session.run.output, re.MULTILINE)
    (host_key,) = re.findall(r"^  (\[.*\]:\d+ ssh-ed25519 .*\n)", session.run.output, re.MULTILINE)
    run_on("user1", f"cat > /tmp/access/config << 'END'\n{host}END\ncat > /tmp/access/known << 'END'\n{host_key}END")
    line = f"ssh -F /tmp/access/config -i /tmp/access/key {OPTIONS} {name}"
    assert run_on("user1", f"{line} 'hostname; ssh sub1 hostname; ssh sub2 hostname'").split() == [
        "main1",
        "sub1",
        "sub2",
    ]
    forward = f"{line} -f -o ExitOnForwardFailure=yes -L 15432:localhost:8888 sleep 5"
    fetch = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://localhost:15432/tcp\").status)'"
    assert run_on("user1", f"{forward} > /dev/null 2>&1; {fetch}").strip() == "200"


def test_second_run_changes_nothing_and_prints_the_same(session: StartedSession) -> None:
    rerun = session.create_again()
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output
    assert rerun.record == session.record


def test_next_run_adds_missing_gateway_routes(session: StartedSession, token: str) -> None:
    path = f"/s/{session.record['name']}/web/"
    run_on("gateway1", f"rm {GATEWAY_STATE}/routes/*")
    assert session.sessions.run("schedule_sessions").code == 0
    assert send_request(path, **bearer_header(token))["status"] == 200


def test_access_ends_with_the_session(session: StartedSession, token: str, access_path: Path) -> None:
    name, (access,) = session.record["name"], json.loads(access_path.read_text())
    ended = session.sessions.terminate()
    assert ended.code == 0, ended.output
    assert send_request(f"/s/{name}/web/", **bearer_header(token))["status"] == 404
    assert "timed out" in read_banner("user1", address("gateway1"), access["ssh"]["port"])

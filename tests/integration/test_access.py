"""Apps of a session that serve pages below their own path only, and routes that a gateway has lost."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from tests.integration.gateway_client import bearer_header, run_client, send_request, signed_token
from tests.integration.internals import GATEWAY_STATE
from tests.integration.laboratory import address, run_on
from tests.integration.programs import source
from tests.integration.session_requests import SMALL
from tests.integration.sessions import StartedSession, started_session
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.gateway

PROGRAM = base64.b64encode(source("web_app").encode()).decode()
# Like Jupyter and TensorBoard, which are large.
NOTEBOOK = {
    "name": "notebook",
    "port": 8890,
    "path": "keep",
    "start": "/lab",
    "command": f'exec python3 -c "$(echo {PROGRAM} | base64 -d)" 0.0.0.0 8890 "$BACKENDAI_APP_BASE_URL"',
}
DATABASE = {"name": "database", "port": 5432, "protocol": "tcp"}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """A session with such an app; its user is told where that is, and that an app of TCP has no page."""
    folder = tmp_path_factory.mktemp("access")
    path = folder / "access.json"
    with started_session(folder, **SMALL, apps=[NOTEBOOK, DATABASE], access_path=str(path)) as session:
        (access,) = json.loads(path.read_text())
        base = f"https://{address('gateway1')}/s/{session.record['name']}"
        assert access["apps"] == [
            {"name": "notebook", "url": f"{base}/notebook/lab"},
            {"name": "database", "url": None},
        ]
        yield session


@pytest.fixture(scope="module")
def headers(session: StartedSession) -> dict[str, str]:
    """The headers of a request with a token, once the app answers."""
    headers = bearer_header(signed_token(sub=session.record["id"]))
    path = f"/s/{session.record['name']}/notebook/lab"
    wait_until(lambda: send_request(path, **headers)["status"] == 200)
    return headers


def test_app_that_keeps_the_path_is_at_its_base_url(session: StartedSession, headers: dict[str, str]) -> None:
    base = f"/s/{session.record['name']}/notebook"
    paths = [f"{base}/lab", f"{base}/static/lab.js"]
    answers = [send_request(path, **headers) for path in paths]
    assert [answer["status"] for answer in answers] == [200, 200]
    bodies = [json.loads(answer["body"]) for answer in answers]
    assert [(body["app"], body["path"]) for body in bodies] == [(base, path) for path in paths]
    socket = run_client({"socket": {"path": f"{base}/api/events", "headers": headers}})
    assert socket == {"status": 101, "received": "hello"}


def test_next_run_adds_missing_gateway_routes(session: StartedSession, headers: dict[str, str]) -> None:
    path = f"/s/{session.record['name']}/notebook/lab"
    run_on("gateway1", f"rm {GATEWAY_STATE}/routes/*")
    assert session.sessions.run("schedule_sessions").code == 0
    assert send_request(path, **headers)["status"] == 200

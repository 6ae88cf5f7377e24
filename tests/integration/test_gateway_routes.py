"""Changes of session routes: SSH ports, lost tables, restarts, and no request lost meanwhile."""

from __future__ import annotations

import json
import random
import shlex
import subprocess
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.gateway_client import (
    FOLDER,
    GATEWAY,
    NAME,
    SESSION,
    USER,
    Route,
    app,
    bearer_header,
    change_routes,
    endpoint,
    example_routes,
    running_apps,
    send_request,
    signed_token,
)
from tests.integration.internals import GATEWAY_TABLE, RECONCILE_GATEWAY, UNIT_GATEWAY
from tests.integration.laboratory import TIMEOUT, address, host_variables, launch, run_on, ssh, unwrapped
from tests.integration.probes import read_banner
from tests.integration.programs import source
from tests.integration.reconciliation import reconcile_paused

pytestmark = pytest.mark.gateway

DELETE_TABLE = f"nft delete table {GATEWAY_TABLE}"
AT_ONCE, GROUPS = 500, 3
OVER = f"{FOLDER}/over"


@pytest.fixture(scope="module")
def routes_result() -> Iterator[dict[str, Any]]:
    """Add the routes of two sessions to the lab's gateway; return the result."""
    with running_apps() as result:
        yield result


@pytest.fixture
def changed_routes(routes_result: dict[str, Any]) -> Iterator[list[Route]]:
    """Let a test change the routes; afterwards they are restored."""
    assert routes_result["links"]
    yield example_routes()
    change_routes(routes=example_routes(), purge=True)


@pytest.fixture(scope="module")
def port(routes_result: dict[str, Any]) -> int:
    """Return the gateway port of the first session's sshd."""
    return int(routes_result["links"][0]["ssh"]["port"])


@pytest.fixture(scope="module")
def token(routes_result: dict[str, Any]) -> str:
    """Return a token for the first session."""
    assert routes_result["links"]
    return signed_token(exp=int(time.time()) + 7 * 86400)


def unused_ssh_port(port: int) -> int:
    """Return an SSH port of the gateway without a route."""
    return port + 1 if port < 32000 else port - 1


def banner_at(port: int) -> str:
    """Return the banner that user1 reads from a port of the gateway."""
    return read_banner(USER, address(GATEWAY), port)


def other_session_route(number: int) -> Route:
    """Return the route of a session on an unreachable host."""
    endpoint_fields = {"address": "192.0.2.7", "port": 20000 + 2 * number}
    return {
        "id": str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))),
        "name": f"passing-{number}",
        "apps": [{"name": "web", **endpoint_fields}],
        "ssh": {**endpoint_fields, "port": 20001 + 2 * number},
    }


def test_an_app_may_have_an_ipv6_address(changed_routes: list[Route], token: str) -> None:
    change_routes(routes=[{**changed_routes[0], "apps": [{"name": "six", **endpoint(2, "::1")}]}])
    assert json.loads(send_request(f"/s/{NAME}/six/", **bearer_header(token))["body"])["app"] == "six"


@pytest.mark.usefixtures("changed_routes")
def test_ssh_port_reaches_the_session_and_other_ports_are_dropped(port: int) -> None:
    variables, gateway = host_variables(GATEWAY), address(GATEWAY)
    options = ["-i", variables["ansible_ssh_private_key_file"], *shlex.split(variables["ansible_ssh_common_args"])]
    line = ["ssh", *options, "-o", f"HostKeyAlias={gateway}", "-p", str(port), f"root@{gateway}", "hostname"]
    process = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert process.stdout.strip() == GATEWAY, process.stderr
    assert banner_at(port).startswith("SSH-2.0-")
    assert "timed out" in banner_at(unused_ssh_port(port))
    change_routes(ended=[SESSION])
    assert "timed out" in banner_at(port)


def test_next_change_restores_a_lost_nft_table(port: int) -> None:
    other = unused_ssh_port(port)
    with reconcile_paused(GATEWAY, unit=RECONCILE_GATEWAY):
        run_on(GATEWAY, DELETE_TABLE)
        assert "timed out" not in banner_at(other)
        assert "SSH" not in banner_at(other)
        healed = change_routes("--diff")
        assert healed["changed"] is True
        assert f"firewall table {GATEWAY_TABLE}" in healed["output"]
        assert "timed out" in banner_at(other)
        assert change_routes()["changed"] is False


@pytest.mark.usefixtures("changed_routes")
def test_session_replaces_a_stale_one(token: str) -> None:
    fresh = str(uuid.uuid4())
    taken = change_routes("--diff", routes=[{"id": fresh, "name": "fresh-one", "apps": [app("web", 0)]}])
    assert f"-HAProxy's apps.map: {NAME}/web {SESSION}@" in taken["output"]
    assert send_request(f"/s/{NAME}/web/", **bearer_header(token))["status"] == 404
    assert send_request("/s/fresh-one/web/", **bearer_header(token))["status"] == 403
    assert send_request("/s/fresh-one/web/", **bearer_header(signed_token(sub=fresh)))["status"] == 200
    change_routes(routes=[{"id": fresh, "name": NAME, "apps": [app("web", 0)]}])
    assert send_request(f"/s/{NAME}/web/", **bearer_header(token))["status"] == 403


@pytest.mark.usefixtures("changed_routes")
def test_stopped_haproxy_is_reported_and_loads_routes_on_start() -> None:
    run_on(GATEWAY, f"systemctl stop {UNIT_GATEWAY}")
    try:
        result = change_routes(routes=[other_session_route(2)])
        assert "HAProxy is not running on this gateway" in unwrapped(result["output"])
    finally:
        run_on(GATEWAY, f"systemctl start {UNIT_GATEWAY}")
    assert send_request("/s/passing-2/web/")["status"] == 403
    assert change_routes()["changed"] is False


@pytest.fixture
def load_command(token: str) -> Iterator[list[str]]:
    """Return the command that keeps requests and a WebSocket in flight until a file exists, and prints the results."""
    client = shlex.quote(source("web_client"))
    run_on(USER, f"mkdir -p {FOLDER}; printf %s {client} > {FOLDER}/web_client.py")
    load = {"at_once": AT_ONCE, "until": OVER, "path": f"/s/{NAME}/web/slow/4", "socket": f"/s/{NAME}/web/ws"}
    load["headers"] = bearer_header(token)
    job = shlex.quote(json.dumps({"host": address(GATEWAY), "load": load}))
    yield ssh(USER, f"ulimit -n 4096; echo {job} | python3 {FOLDER}/web_client.py")
    run_on(USER, f"rm -r {FOLDER}")


@pytest.mark.soak
def test_no_request_is_lost_while_50_other_sessions_come_and_go(
    load_command: list[str], rounds: Iterator[random.Random]
) -> None:
    for rng in rounds:
        run_on(USER, f"rm -f {OVER}")
        with launch(load_command) as asking:
            try:
                time.sleep(4)
                for _number in range(GROUPS):
                    group = [
                        # An ended session gets no route again.
                        {**other_session_route(number), "id": str(uuid.uuid4())}
                        for number in rng.sample(range(500), 50)
                    ]
                    assert change_routes(routes=group)["changed"] is True
                    assert change_routes(ended=[route["id"] for route in group])["changed"] is True
                assert asking.poll() is None
            finally:
                run_on(USER, f"touch {OVER}")
            output, _nothing = asking.communicate(timeout=TIMEOUT)
        assert output.startswith("{"), output
        result = json.loads(output)
        print(f"{result['results']} requests during {2 * GROUPS} route changes; {result['frames']} WebSocket frames")
        assert set(result["results"]) == {"200"}
        assert result["results"]["200"] >= AT_ONCE
        assert result["frames"] >= 25

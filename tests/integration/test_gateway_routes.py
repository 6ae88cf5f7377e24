"""Routes to sessions come and go: SSH ports, tables that are lost, restarts, and nobody's request is lost meanwhile."""

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
    start_apps,
)
from tests.integration.internals import GATEWAY_TABLE, RECONCILE_GATEWAY, UNIT_GATEWAY
from tests.integration.laboratory import address, host_variables, launch, run_on, ssh, unwrapped
from tests.integration.probes import read_banner
from tests.integration.programs import source
from tests.integration.reboots import reboot
from tests.integration.reconciliation import reconcile_paused
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.gateway

LIST_TABLE = f"nft --stateless list table {GATEWAY_TABLE}"
DELETE_TABLE = f"nft delete table {GATEWAY_TABLE}"
LOAD = {"at_once": 500, "seconds": 24}


@pytest.fixture(scope="module")
def known() -> Iterator[dict[str, Any]]:
    """Two sessions behind the gateway, as the lab has it; return what they are told."""
    with running_apps() as said:
        yield said


@pytest.fixture
def changing(known: dict[str, Any]) -> Iterator[list[Route]]:
    """Let a test change the routes; afterwards they are what they were."""
    assert known["links"]
    yield example_routes()
    change_routes(routes=example_routes(), exact=True)


@pytest.fixture(scope="module")
def port(known: dict[str, Any]) -> int:
    """Return the port of the gateway that leads to the first session's sshd."""
    return int(known["links"][0]["ssh"]["port"])


@pytest.fixture(scope="module")
def token(known: dict[str, Any]) -> str:
    """Return a token for the first session."""
    assert known["links"]
    return signed_token(exp=int(time.time()) + 7 * 86400)


def beside(port: int) -> int:
    """Return a port for SSH that leads nowhere."""
    return port + 1 if port < 32000 else port - 1


def heard(port: int) -> str:
    """Return what the outsider hears at a port of the gateway."""
    return read_banner(USER, address(GATEWAY), port)


def running() -> bool:
    return run_on(GATEWAY, f"systemctl is-active {UNIT_GATEWAY}", check=False).strip() == "active"


def passing(number: int) -> Route:
    """Return the route of a session that is somewhere else."""
    place = {"address": "192.0.2.7", "port": 20000 + 2 * number}
    return {
        "id": str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))),
        "name": f"passing-{number}",
        "apps": [{"name": "web", **place}],
        "ssh": {**place, "port": 20001 + 2 * number},
    }


def test_an_app_may_have_an_ipv6_address(changing: list[Route], token: str) -> None:
    change_routes(routes=[{**changing[0], "apps": [{"name": "six", **endpoint(2, "::1")}]}])
    assert json.loads(send_request(f"/s/{NAME}/six/", **bearer_header(token))["body"])["app"] == "six"


@pytest.mark.usefixtures("changing")
def test_ssh_port_reaches_the_session_and_other_ports_are_dropped(port: int) -> None:
    variables, gateway = host_variables(GATEWAY), address(GATEWAY)
    options = ["-i", variables["ansible_ssh_private_key_file"], *shlex.split(variables["ansible_ssh_common_args"])]
    line = ["ssh", *options, "-o", f"HostKeyAlias={gateway}", "-p", str(port), f"root@{gateway}", "hostname"]
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == GATEWAY, done.stderr
    assert heard(port).startswith("SSH-2.0-")
    assert "timed out" in heard(beside(port))
    change_routes(ended=[SESSION])
    assert "timed out" in heard(port)


def test_next_change_restores_a_lost_nft_table(port: int) -> None:
    other = beside(port)
    with reconcile_paused(GATEWAY, unit=RECONCILE_GATEWAY):
        run_on(GATEWAY, DELETE_TABLE)
        assert "timed out" not in heard(other)
        assert "SSH" not in heard(other)
        healed = change_routes("--diff")
        assert healed["changed"] is True
        assert f"firewall table {GATEWAY_TABLE}" in healed["output"]
        assert "timed out" in heard(other)
        assert change_routes()["changed"] is False


def test_flushed_table_is_restored(port: int) -> None:
    before = run_on(GATEWAY, LIST_TABLE)
    run_on(GATEWAY, DELETE_TABLE)
    wait_until(lambda: run_on(GATEWAY, LIST_TABLE, check=False) == before)
    assert heard(port).startswith("SSH-2.0-")


@pytest.mark.usefixtures("changing")
def test_session_replaces_a_stale_one(token: str) -> None:
    fresh = str(uuid.uuid4())
    taken = change_routes("--diff", routes=[{"id": fresh, "name": "fresh-one", "apps": [app("web", 0)]}])
    assert f"-HAProxy's apps.map: {NAME}/web {SESSION}@" in taken["output"]
    assert send_request(f"/s/{NAME}/web/", **bearer_header(token))["status"] == 404
    assert send_request("/s/fresh-one/web/", **bearer_header(token))["status"] == 403
    assert send_request("/s/fresh-one/web/", **bearer_header(signed_token(sub=fresh)))["status"] == 200
    change_routes(routes=[{"id": fresh, "name": NAME, "apps": [app("web", 0)]}])
    assert send_request(f"/s/{NAME}/web/", **bearer_header(token))["status"] == 403


def test_check_mode_reports_and_changes_nothing(changing: list[Route], token: str) -> None:
    would = change_routes("--check", "--diff", routes=[passing(1)], ended=[SESSION])
    assert would["changed"] is True
    assert "+HAProxy's apps.map: passing-1/web " in would["output"]
    assert would["links"][0]["ssh"]["port"]
    assert send_request(f"/s/{NAME}/web/", **bearer_header(token))["status"] == 200
    assert change_routes(routes=changing[:1])["changed"] is False
    did = change_routes("--diff", routes=[passing(1)], ended=[SESSION])
    assert did == would


def test_routes_survive_a_restart_and_a_reboot(port: int, token: str) -> None:
    run_on(GATEWAY, f"systemctl restart {UNIT_GATEWAY}")
    assert send_request(f"/s/{NAME}/down/", **bearer_header(token))["status"] == 503
    is_back = reboot(GATEWAY)
    wait_until(lambda: is_back() and running())
    assert send_request(f"/s/{NAME}/down/", **bearer_header(token))["status"] == 503
    assert heard(port).startswith("SSH-2.0-")
    assert "timed out" in heard(beside(port))
    assert change_routes(routes=example_routes()[:1])["changed"] is False
    start_apps()


def test_killed_haproxy_restarts_with_the_routes(token: str) -> None:
    run_on(GATEWAY, f"systemctl kill --signal KILL {UNIT_GATEWAY}")
    wait_until(running)
    assert send_request(f"/s/{NAME}/down/", **bearer_header(token))["status"] == 503


@pytest.mark.usefixtures("changing")
def test_stopped_haproxy_is_reported_and_loads_routes_on_start() -> None:
    run_on(GATEWAY, f"systemctl stop {UNIT_GATEWAY}")
    try:
        told = change_routes(routes=[passing(2)])
        assert "HAProxy does not run on this gateway" in unwrapped(told["output"])
    finally:
        run_on(GATEWAY, f"systemctl start {UNIT_GATEWAY}")
    assert send_request("/s/passing-2/web/")["status"] == 403
    assert change_routes()["changed"] is False


@pytest.fixture
def users(token: str) -> Iterator[list[str]]:
    """Return the command that keeps many requests of users in flight, and a WebSocket, and then says what came."""
    client = shlex.quote(source("web_client"))
    run_on(USER, f"mkdir -p {FOLDER}; printf %s {client} > {FOLDER}/web_client.py")
    load = {**LOAD, "path": f"/s/{NAME}/web/slow/4", "headers": bearer_header(token), "socket": f"/s/{NAME}/web/ws"}
    asked = shlex.quote(json.dumps({"host": address(GATEWAY), "load": load}))
    yield ssh(USER, f"ulimit -n 4096; echo {asked} | python3 {FOLDER}/web_client.py")
    run_on(USER, f"rm -r {FOLDER}")


@pytest.mark.soak
def test_no_request_is_lost_while_50_other_sessions_come_and_go(
    users: list[str], rounds: Iterator[random.Random]
) -> None:
    for chance in rounds:
        changes = 0
        with launch(users) as asking:
            time.sleep(4)
            while asking.poll() is None:
                group = [passing(number) for number in chance.sample(range(500), 50)]
                assert change_routes(routes=group)["changed"] is True
                assert change_routes(ended=[route["id"] for route in group])["changed"] is True
                changes += 2
            output, _nothing = asking.communicate(timeout=120)
        assert output.startswith("{"), output
        told = json.loads(output)
        print(f"{told['seen']} requests while routes changed {changes} times; {told['frames']} frames of a WebSocket")
        assert changes >= 4
        assert set(told["seen"]) == {"200"}
        assert told["seen"]["200"] >= 1500
        assert told["frames"] >= 25

"""Options of gateways, on a new gateway on which nearly all have another value; user1 stands in for its agents, too."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.integration.gateway_client import NAME, SESSION, USER
from tests.integration.internals import MODULE_ROUTES, UNIT_GATEWAY
from tests.integration.laboratory import INVENTORY, address, ansible, run_on
from tests.integration.options.hosts import TEN_YEARS, OwnHost, own_host
from tests.integration.probes import read_banner
from tests.lab.identity import SUITES, Host

pytestmark = [pytest.mark.gateway, pytest.mark.provisioning]

STATE, FIREWALL = "/srv/own-gateway", "/srv/own-firewall"
HOSTNAME, DOMAIN, PORTAL = "access.example.org", "apps.example.org", "https://portal.example.org"
HTTPS, APP_PORT, APP_UNIT = 8443, 21019, "backendai-test-own-gateway"
VARIABLES: Mapping[str, Any] = {
    "gateway_address": lambda host: host.address,
    "gateway_hostname": HOSTNAME,
    "gateway_domain": DOMAIN,
    "gateway_path_links": False,
    "gateway_frame_ancestors": PORTAL,
    "gateway_log_all_requests": True,
    "gateway_https_port": HTTPS,
    "gateway_ssh_ports": "32001-32010",
    "gateway_max_connections": 400,
    "gateway_source_rate": 3,
    "gateway_source_ssh_connections": 2,
    "gateway_source_ssh_rate": 1,
    "gateway_state_path": STATE,
    "gateway_packages": ["haproxy", "nftables", "python3-cryptography", "ethtool"],
    "firewall_state_path": FIREWALL,
    "firewall_reconcile_interval": "43s",
    **{f"{role}_apt_cache_valid_time": TEN_YEARS for role in ("gateway", "firewall", "manager")},
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnHost]:
    """A new gateway."""
    wanted = Host("spare6", "gateways", SUITES[0], 66)
    with own_host(tmp_path_factory.mktemp("gateway"), wanted, "provision_gateways", VARIABLES) as made:
        yield made


@pytest.fixture(scope="module")
def links(gateway: OwnHost) -> Iterator[dict[str, Any]]:
    """Give it a session, whose app and SSH server are on user1; return where users reach them."""
    here = address(USER)
    apps = [{"name": "web", "address": here, "port": APP_PORT}]
    route = {"id": SESSION, "name": NAME, "apps": apps, "ssh": {"address": here, "port": 22}}
    arguments = json.dumps({"routes": [route], "state_path": STATE})
    # The last inventory has the new host; it alone is asked.
    words = ["ansible", "-i", INVENTORY, *gateway.options[:2], gateway.host.name, "-m", MODULE_ROUTES, "-a", arguments]
    run_on(USER, f"systemd-run --quiet --collect --unit {APP_UNIT} python3 -m http.server --directory /etc {APP_PORT}")
    try:
        given = ansible(*words, ANSIBLE_PIPELINING="1", ANSIBLE_CALLBACK_RESULT_FORMAT="json")
        assert given.returncode == 0, given.stdout + given.stderr
        yield dict(json.JSONDecoder().raw_decode(given.stdout.split("=> ", 1)[1])[0]["links"][0])
    finally:
        run_on(USER, f"systemctl stop {APP_UNIT}", check=False)


@pytest.fixture(scope="module")
def token(gateway: OwnHost, links: dict[str, Any]) -> str:
    """A token that the gateway has signed; its key is in the folder that was asked for."""
    assert links["apps"]
    path = gateway.folder / "token"
    run = gateway.play("session_token", session_name=NAME, session_token_path=str(path))
    assert run.code == 0, run.output
    return path.read_text().strip()


def ask(gateway: OwnHost, token: str, *paths: str, name: str = f"{NAME}--web.{DOMAIN}") -> str:
    """Ask for pages over one connection from user1, and return the headers and pages, as curl prints them."""
    words = ["curl", "--silent", "--include", "--insecure", "--max-time", "9", "-H", f"Authorization: Bearer {token}"]
    words += ["--http1.1", "--resolve", f"{name}:{HTTPS}:{gateway.host.address}"]
    return run_on(USER, shlex.join([*words, *(f"https://{name}:{HTTPS}{path}" for path in paths)]), check=False)


def test_it_listens_where_it_was_asked_to_and_for_as_many(gateway: OwnHost) -> None:
    """No index of packages was updated: nobody could have."""
    assert gateway.run("dpkg-query --show --showformat '${Package}' ethtool") == "ethtool"
    listening = {line.split()[3] for line in gateway.run("ss -Hltn").splitlines()}
    own = {socket for socket in listening if not socket.endswith(":22")}
    ports = [HTTPS, *range(32001, 32011)]
    assert {f"{gateway.host.address}:{port}" for port in ports} == {each for each in own if "127.0.0." not in each}
    # Two for each connection, and for each port.
    assert gateway.shown(UNIT_GATEWAY, "LimitNOFILE") == [str((400 + 10) * 2 + 500)]


def test_its_folders_and_timers_are_those_that_were_asked_for(gateway: OwnHost) -> None:
    assert "token.key" in gateway.run(f"ls {STATE}").split()
    assert gateway.run("ls -d /var/lib/backendai-gateway 2> /dev/null || true") == ""
    assert "firewall.json" in gateway.run(f"ls {FIREWALL}").split()
    assert "OnUnitInactiveUSec=43s" in gateway.shown("backendai-firewall-reconcile.timer", "TimersMonotonic")[0]


def test_the_report_of_its_firewall_is_of_the_folder_that_was_asked_for(gateway: OwnHost) -> None:
    report = gateway.play("firewall_report")
    assert {host["name"]: host["mode"] for host in report.record["hosts"]}[gateway.host.name] == "enforce"


def test_links_have_its_names_and_ports(links: dict[str, Any]) -> None:
    assert links["apps"][0]["url"] == f"https://{NAME}--web.{DOMAIN}:{HTTPS}/"
    assert (links["ssh"]["host"], 32001 <= links["ssh"]["port"] <= 32010) == (HOSTNAME, True)


def test_apps_are_at_their_own_names_alone_and_may_be_shown_in_the_portal(gateway: OwnHost, token: str) -> None:
    by_name = ask(gateway, token, "/hostname")
    assert (by_name.splitlines()[0].strip(), USER in by_name) == ("HTTP/1.1 200 OK", True)
    assert f"frame-ancestors 'self' {PORTAL}" in by_name
    by_path = ask(gateway, token, f"/s/{NAME}/web/hostname", name=HOSTNAME)
    assert by_path.startswith("HTTP/1.1 404 ")


def test_every_request_is_in_the_journal(gateway: OwnHost, token: str) -> None:
    assert ask(gateway, token, "/hostname?first", "/hosts?second", "/hosts?third").count("HTTP/1.1 200 OK") == 3
    printed = gateway.run(f"journalctl --boot --unit {UNIT_GATEWAY} --no-pager")
    assert printed.count('/hosts"') >= 2, printed


def test_one_user_has_no_more_logins_than_were_asked_for_and_begins_no_more(
    gateway: OwnHost, links: dict[str, Any]
) -> None:
    """Two at a time, and ten in ten seconds."""
    target, port = gateway.host.address, links["ssh"]["port"]
    hold = f"(sleep 4 | timeout 5 curl --silent telnet://{target}:{port} > /dev/null 2>&1 &); " * 2
    run_on(USER, f"{hold} for n in $(seq 50); do {count(target, port)} && break; sleep 0.1; done")
    assert not read_banner(USER, target, port).startswith("SSH-2.0")
    run_on(USER, f"for n in $(seq 80); do {count(target, port).replace('-ge 2', '-eq 0')} && break; sleep 0.1; done")
    banners = [read_banner(USER, target, port).startswith("SSH-2.0") for _each in range(12)]
    assert (banners[0], all(banners)) == (True, False)


def count(target: str, port: int) -> str:
    """Return a shell line that is true while two connections to a port are open."""
    return f"[ $(ss -Hn state established '( dst {target} and dport = :{port} )' | wc -l) -ge 2 ]"


@pytest.mark.usefixtures("links")
def test_one_user_opens_no_more_connections_than_were_asked_for(gateway: OwnHost) -> None:
    """Three in a second, on average over ten; the last test, since it uses them up."""
    name = f"{NAME}--web.{DOMAIN}:{HTTPS}"
    once = f"curl --silent --insecure --connect-to {name}:{gateway.host.address}:{HTTPS} https://{name}/"
    line = f"for n in $(seq 40); do {once} --output /dev/null --max-time 3 --write-out '%{{http_code}} '; done"
    statuses = run_on(USER, line, check=False).split()
    # Without a token: 403 for what is not too much.
    assert statuses[0] == "403"
    assert "429" in statuses, statuses

"""The one door, from the outside: tokens, links, WebSockets, SSH, and routes that come and go under load."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.certificate import make
from tests.integration.laboratory import INVENTORY, ROOT, Run, environment, host_variables, launch, on, play, ssh

GATEWAY, USER = "gateway1", "user1"
STATE = "/var/lib/backendai-gateway"
FOLDER = "/var/tmp/backendai-gateway-test"
UNIT = "backendai-gateway"
COOKIE = "backendai_session"
ONE, TWO = "5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a", "6f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
NAME, OTHER = "train-llm", "other-user"
DOMAIN = "apps.example.org"
ADDRESS = host_variables(GATEWAY)["ansible_host"]
FIRST_PORT = 21001
"""Where the apps of the tests listen. They run on the gateway itself, so that no firewall of an agent has a say."""

SIGN = f"""
import base64, json, sys
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import load_pem_private_key
head, claims, own = json.load(sys.stdin)
own_key = load_pem_private_key(open("{STATE}/token.key", "rb").read(), None)
key = own_key if own else ec.generate_private_key(ec.SECP256R1())
text = b".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (head, claims))
r, s = utils.decode_dss_signature(key.sign(text, ec.ECDSA(hashes.SHA256())))
number = base64.urlsafe_b64encode(r.to_bytes(32, "big") + s.to_bytes(32, "big")).rstrip(b"=")
print((text + b"." + number).decode())
"""

Endpoint = dict[str, Any]
Answer = dict[str, Any]


def program(host: str, text: str, data: object) -> str:
    """Run a Python program on a host with data as its standard input; return what it printed."""
    line = f"python3 -c {shlex.quote(text)}"
    done = subprocess.run(ssh(host, line), input=json.dumps(data), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def client(asked: Mapping[str, Any]) -> Any:
    """Have the outsider ask the gateway, and return what it was told."""
    text = Path(__file__).with_name("web_client.py").read_text()
    return json.loads(program(USER, text, {"host": ADDRESS, **asked}))


def ask(path: str, *, name: str = ADDRESS, method: str = "GET", **headers: str) -> Answer:
    """Ask the gateway for one path."""
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    found = client({"requests": [{"path": path, "name": name, "method": method, "headers": given}]})
    return dict(found[0])


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def signed(*, own: bool = True, algorithm: str = "ES256", **claims: object) -> str:
    """Return a token with these claims, signed with the gateway's own key, or with another."""
    said = {"sub": ONE, "exp": int(time.time()) + 600, **claims}
    return program(GATEWAY, SIGN, [{"alg": algorithm, "typ": "JWT"}, said, own]).strip()


def routes(*options: str, **args: object) -> dict[str, Any]:
    """Change the gateway's routes; return the result, and with it, as ``said``, all that was shown."""
    asked = json.dumps({"exact": False, **args})
    line = ["ansible", "-i", str(INVENTORY), GATEWAY, "-m", "backendai.cluster.gateway_routes", "-a", asked]
    how = {**environment(), "ANSIBLE_PIPELINING": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
    done = subprocess.run(
        [*line, *options], cwd=ROOT, env=how, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return {**json.JSONDecoder().raw_decode(done.stdout.split("=> ", 1)[1])[0], "said": said}


def endpoint(place: int, address: str = ADDRESS) -> Endpoint:
    return {"address": address, "port": FIRST_PORT + place}


def app(name: str, place: int, **more: object) -> dict[str, Any]:
    return {"name": name, **endpoint(place), **more}


MINE = {"id": ONE, "name": NAME, "apps": [app("web", 0), app("down", 8), app("db", 7, protocol="tcp")], "ssh": None}
THEIRS = {"id": TWO, "name": OTHER, "apps": [app("web", 1)], "ssh": None}
WAY_IN = {**MINE, "ssh": {"address": ADDRESS, "port": 22}}


def fake(number: int) -> dict[str, Any]:
    """Return the route of a session that is somewhere else."""
    port = 20000 + 2 * number
    place = {"address": "192.0.2.7", "port": port}
    return {
        "id": str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))),
        "name": f"passing-{number}",
        "apps": [{"name": "web", **place}],
        "ssh": {**place, "port": port + 1},
    }


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def provision(folder: Path, *options: str, **variables: object) -> Run:
    """Run ``provision_gateways`` with ``gateway_*`` variables given without their prefix."""
    return play("provision_gateways", folder, {f"gateway_{key}": value for key, value in variables.items()}, *options)


def greeting(port: int) -> str:
    """Return the first line that comes from a port of the gateway, as the outsider sees it."""
    text = "import json, socket, sys\n"
    text += f"s = socket.create_connection(('{ADDRESS}', json.load(sys.stdin)), timeout=2)\nprint(s.recv(64).decode())"
    done = subprocess.run(
        ssh(USER, f"python3 -c {shlex.quote(text)}"), input=str(port), capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


RUNNING = [(ADDRESS, 0, "mine"), (ADDRESS, 1, "theirs"), ("::1", 2, "six")]


def start_apps() -> None:
    """Start the apps of the tests, which end with a reboot."""
    for address, place, name in RUNNING:
        start = f"systemd-run --quiet --collect --unit backendai-test-{name} --property LimitNOFILE=8192"
        on(GATEWAY, f"{start} python3 {FOLDER}/web_app.py {address} {FIRST_PORT + place} {name}")


@pytest.fixture(scope="module", autouse=True)
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A gateway with a domain, and two apps behind it; no route and no app stays."""
    provisioned = provision(tmp_path_factory.mktemp("provision"), domain=DOMAIN)
    assert provisioned.code == 0, provisioned.output
    source = Path(__file__).with_name("web_app.py").read_text()
    on(GATEWAY, f"mkdir -p {FOLDER}; cat > {FOLDER}/web_app.py << 'END'\n{source}\nEND")
    start_apps()
    try:
        yield
    finally:
        units = " ".join(f"backendai-test-{name}" for _address, _place, name in RUNNING)
        on(GATEWAY, f"systemctl stop {units}; rm -r {FOLDER}", check=False)
        routes(exact=True)
        again = provision(tmp_path_factory.mktemp("again"))
        assert again.code == 0, again.output
    assert on(GATEWAY, f"ls {STATE}/routes; cat {STATE}/maps/*") == ""


@pytest.fixture(autouse=True)
def known() -> dict[str, Any]:
    """Both sessions are there when a test begins, and nothing else; return what they are told."""
    return routes(routes=[WAY_IN, THEIRS], exact=True)


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a token for the first session, as its user gets it."""
    routes(routes=[WAY_IN, THEIRS], exact=True)
    path = tmp_path_factory.mktemp("token") / "token"
    run = play("session_token", path.parent, {"session_name": NAME, "session_token_path": str(path)})
    assert run.code == 0, run.output
    return path.read_text().strip()


def test_a_second_run_changes_nothing_and_a_dry_one_works(tmp_path: Path) -> None:
    again = provision(tmp_path, domain=DOMAIN)
    assert (again.code, again.changed) == (0, 0), again.output
    dry = provision(tmp_path, "--check", "--diff", domain=DOMAIN)
    assert (dry.code, dry.changed) == (0, 0), dry.output


def test_the_links_are_told(known: dict[str, Any]) -> None:
    mine, theirs = known["links"]
    urls = {one["name"]: one["url"] for one in mine["apps"]}
    assert urls == {
        "web": f"https://{NAME}--web.{DOMAIN}/",
        "down": f"https://{NAME}--down.{DOMAIN}/",
        "db": None,
    }
    assert (mine["ssh"]["host"], theirs["ssh"]) == (ADDRESS, None)
    assert 31001 <= mine["ssh"]["port"] <= 32000


def test_a_token_in_the_header_or_the_cookie_opens_the_app_which_never_sees_it(token: str) -> None:
    path = f"/s/{NAME}/web/a%2fb/../c?q=1&token=own"
    by_header = ask(
        path, **bearer(token), Cookie=f"a=1; {COOKIE}=old; b=2", X_Forwarded_For="1.2.3.4", Forwarded="for=1"
    )
    by_cookie = ask(path, Cookie=f"{COOKIE}={token}", Authorization="Bearer of-the-app")
    assert (by_header["status"], by_cookie["status"]) == (200, 200)
    seen = json.loads(by_header["body"])
    assert (seen["app"], seen["path"]) == ("mine", "/a%2fb/../c?q=1&token=own")
    outsider = host_variables(USER)["ansible_host"]
    wanted = {"x-forwarded-for": outsider, "x-forwarded-proto": "https", "x-forwarded-prefix": f"/s/{NAME}/web"}
    wanted |= {"x-forwarded-host": ADDRESS, "host": ADDRESS, "cookie": "a=1; b=2"}
    headers = dict(seen["headers"])
    assert wanted.items() <= headers.items()
    assert not {"authorization", "forwarded"} & headers.keys()
    assert dict(json.loads(by_cookie["body"])["headers"])["authorization"] == "Bearer of-the-app"
    assert token not in by_header["body"] + by_cookie["body"]


def test_a_link_with_a_token_becomes_a_cookie_for_this_session_alone(token: str) -> None:
    first = ask(f"/s/{NAME}/web/lab?x=1&token={token}&y=2")
    assert first["status"] == 302
    assert first["headers"]["location"] == f"https://{ADDRESS}/s/{NAME}/web/lab?x=1&y=2"
    cookie, *attributes = first["headers"]["set-cookie"].split("; ")
    assert {"Secure", "HttpOnly", "SameSite=Lax", f"Path=/s/{NAME}/"} < set(attributes)
    (age,) = [int(one.removeprefix("Max-Age=")) for one in attributes if one.startswith("Max-Age=")]
    assert 3000 < age <= 3600
    then = ask(f"/s/{NAME}/web/lab?x=1&y=2", Cookie=cookie)
    assert (then["status"], json.loads(then["body"])["path"]) == (200, "/lab?x=1&y=2")


def test_a_host_name_needs_no_prefix(token: str) -> None:
    name = f"{NAME}--web.{DOMAIN}"
    linked = ask(f"//x?token={token}", name=name)
    assert linked["headers"]["location"] == f"https://{name}//x"
    assert "Path=/; " in linked["headers"]["set-cookie"]
    seen = json.loads(ask("/s/x/y/", name=name.upper(), **bearer(token))["body"])
    assert seen["path"] == "/s/x/y/"
    assert "x-forwarded-prefix" not in dict(seen["headers"])
    assert ask("/", name=f"{OTHER}--web.{DOMAIN}", **bearer(token))["status"] == 403
    assert ask("/", name=f"nobody--web.{DOMAIN}", **bearer(token))["status"] == 404


def test_a_token_that_is_missing_expired_tampered_or_of_another_session_is_refused(token: str) -> None:
    now = int(time.time())
    head, body, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    other = base64.urlsafe_b64encode(json.dumps({**claims, "sub": TWO}).encode()).rstrip(b"=").decode()
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    refused = {
        "expired": signed(exp=now - 1),
        "without an end": signed(exp=None),
        "of another session": signed(sub=TWO),
        "signed by somebody else": signed(own=False),
        "changed": f"{head}.{other}.{signature}",
        "cut": f"{head}.{body}.{signature[:-4]}",
        "unsigned": f"{none}.{body}.",
        "no token": "abc",
    }
    requests: list[dict[str, Any]] = [{"path": f"/s/{NAME}/web/", "headers": {}}]
    for one in refused.values():
        requests += [{"path": f"/s/{NAME}/web/", "headers": bearer(one)}]
        requests += [{"path": f"/s/{NAME}/web/", "headers": {"Cookie": f"{COOKIE}={one}"}}]
        requests += [{"path": f"/s/{NAME}/web/?token={one}"}]
    requests += [{"path": f"/s/{OTHER}/web/", "headers": bearer(token)}]
    answers = client({"requests": requests})
    assert [answer["status"] for answer in answers] == [403] * len(requests)
    assert "This needs a token." in answers[0]["body"]
    assert "The token has expired." in answers[1]["body"]
    assert "The token is for another session." in answers[-1]["body"]
    assert "not one of this gateway" in answers[-2]["body"]


def test_what_is_not_there_is_not_found_however_it_is_written(token: str) -> None:
    paths = [
        "/",
        "/s/",
        f"/s/{NAME}/",
        f"/s/{NAME}/nothing/",
        "/s/nobody/web/",
        f"/s/{NAME}/db/",
        f"/s/{NAME}/../{OTHER}/web/",
        f"/s%2f{NAME}/web/",
        f"//s/{NAME}/web/",
        f"/s/{NAME}%2fweb/",
        f"/S/{NAME}/web/",
    ]
    answers = client({"requests": [{"path": path, "headers": bearer(token)} for path in paths]})
    assert [answer["status"] for answer in answers] == [404] * len(paths)
    inside = ask(f"/s/{NAME}/web/../../{OTHER}/web/", **bearer(token))
    assert json.loads(inside["body"])["app"] == "mine"


def test_an_app_that_is_down_has_a_page_that_says_so(token: str) -> None:
    answer = ask(f"/s/{NAME}/down/", **bearer(token))
    assert answer["status"] == 503
    assert f"{NAME}/down" in answer["body"]


def test_the_app_s_own_places_and_cookies_stay_below_its_prefix(token: str) -> None:
    prefix = f"/s/{NAME}/web"
    cases = [
        ("/x,y?z", f"{prefix}/x,y?z"),
        (f"{prefix}/x", f"{prefix}/x"),
        (f"http://{ADDRESS}/x", f"{prefix}/x"),
        (f"https://{ADDRESS}", f"{prefix}/"),
        ("//elsewhere.example/x", "//elsewhere.example/x"),
        ("https://elsewhere.example/x", "https://elsewhere.example/x"),
        ("x/y", "x/y"),
    ]
    asked = [{"path": f"{prefix}/", "headers": {**bearer(token), "Want-Location": given}} for given, _told in cases]
    assert [one["headers"]["location"] for one in client({"requests": asked})] == [told for _given, told in cases]
    cookies = [
        ("a=b; Path=/; Domain=example.org; Secure", f"a=b; Path={prefix}/; Secure"),
        (f"a=b; path=/s/{OTHER}/web/x", f"a=b; path={prefix}/x"),
        ("a=b", "a=b"),
        ("a=b; Path = /x; HttpOnly", f"a=b; Path ={prefix}/x; HttpOnly"),
        ("a=b; Domain =x.example; Domain= y.example", "a=b"),
        (f"{COOKIE}=own; Path=/", f"{COOKIE}_of_app=own; Path={prefix}/"),
    ]
    asked = [{"path": f"{prefix}/", "headers": {**bearer(token), "Want-Set-Cookie": given}} for given, _told in cookies]
    assert [one["headers"]["set-cookie"] for one in client({"requests": asked})] == [told for _given, told in cookies]


def test_a_page_from_elsewhere_does_not_ask_with_the_users_cookie(token: str) -> None:
    path = f"/s/{NAME}/web/"
    given = [("https://elsewhere.example", 403), ("null", 403), (f"https://{ADDRESS}", 200)]
    asked = [{"path": path, "headers": {"Cookie": f"{COOKIE}={token}", "Origin": origin}} for origin, _told in given]
    answers = client({"requests": asked})
    assert [answer["status"] for answer in answers] == [told for _origin, told in given]
    assert "comes from another site" in answers[0]["body"]
    assert ask(path, **bearer(token), Origin="https://elsewhere.example")["status"] == 200
    foreign = {"Cookie": f"{COOKIE}={token}", "Origin": "https://elsewhere.example"}
    assert client({"socket": {"path": f"{path}ws", "headers": foreign}}) == {"status": 403, "heard": None}


def test_an_app_is_a_folder(token: str) -> None:
    moved = ask(f"/s/{NAME}/web?x=1", **bearer(token))
    assert (moved["status"], moved["headers"]["location"]) == (308, f"/s/{NAME}/web/?x=1")


def test_websockets_pass_also_straight_from_a_link(token: str) -> None:
    for path, headers in ((f"/s/{NAME}/web/ws", bearer(token)), (f"/s/{NAME}/web/ws?token={token}", {})):
        assert client({"socket": {"path": path, "headers": headers}}) == {"status": 101, "heard": "hello"}
    refused = client({"socket": {"path": f"/s/{OTHER}/web/ws", "headers": bearer(token)}})
    assert refused == {"status": 403, "heard": None}


def test_http_2_is_spoken_and_old_tls_is_not(token: str) -> None:
    on(USER, "command -v curl > /dev/null || apt-get install -y -q curl")
    header = f"printf 'Authorization: Bearer %s' '{token}'"
    url = f"https://{ADDRESS}/s/{NAME}/web/"
    told = "--output /dev/null --write-out '%{http_version} %{http_code}'"
    assert on(USER, f"{header} | curl --silent --insecure --http2 --header @- {told} {url}") == "2 200"
    assert "alert protocol version" in on(
        USER, f"curl --insecure --verbose --tls-max 1.1 --ciphers ALL@SECLEVEL=0 {url}", check=False
    )


def test_an_app_may_have_an_ipv6_address(token: str) -> None:
    routes(routes=[{**WAY_IN, "apps": [{"name": "six", **endpoint(2, "::1")}]}])
    assert json.loads(ask(f"/s/{NAME}/six/", **bearer(token))["body"])["app"] == "six"


def test_ssh_leads_to_the_session_and_ports_of_none_are_silent(known: dict[str, Any]) -> None:
    port = known["links"][0]["ssh"]["port"]
    variables = host_variables(GATEWAY)
    options = ["-i", variables["ansible_ssh_private_key_file"], *shlex.split(variables["ansible_ssh_common_args"])]
    line = ["ssh", *options, "-o", f"HostKeyAlias={ADDRESS}", "-p", str(port), f"root@{ADDRESS}", "hostname"]
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == GATEWAY, done.stderr
    assert greeting(port).startswith("SSH-2.0-")
    assert "timed out" in greeting(port + 1 if port < 32000 else port - 1)
    routes(ended=[ONE])
    assert "timed out" in greeting(port)


@pytest.fixture
def unhealed() -> Iterator[None]:
    """A gateway that repairs nothing by itself for a while."""
    on(GATEWAY, "systemctl stop backendai-gateway-heal.timer backendai-gateway-heal.service")
    yield
    on(GATEWAY, "systemctl start backendai-gateway-heal.timer")


@pytest.mark.usefixtures("unhealed")
def test_a_port_of_no_session_is_rejected_where_the_table_was_lost_which_the_next_change_brings_back(
    known: dict[str, Any],
) -> None:
    port = known["links"][0]["ssh"]["port"]
    on(GATEWAY, "nft delete table inet backendai_gateway")
    other = port + 1 if port < 32000 else port - 1
    assert "timed out" not in greeting(other)
    assert "SSH" not in greeting(other)
    healed = routes("--diff")
    assert healed["changed"] is True
    assert "firewall table inet backendai_gateway" in healed["said"]
    assert "timed out" in greeting(other)
    assert routes()["changed"] is False


def test_a_flushed_table_comes_back_by_itself(known: dict[str, Any]) -> None:
    port = known["links"][0]["ssh"]["port"]
    before = on(GATEWAY, "nft --stateless list table inet backendai_gateway")
    on(GATEWAY, "nft delete table inet backendai_gateway")
    eventually(lambda: on(GATEWAY, "nft --stateless list table inet backendai_gateway", check=False) == before)
    assert greeting(port).startswith("SSH-2.0-")


def test_a_session_takes_the_place_of_a_stale_one(token: str) -> None:
    fresh = str(uuid.uuid4())
    taken = routes("--diff", routes=[{"id": fresh, "name": "fresh-one", "apps": [app("web", 0)]}])
    assert f"-HAProxy's apps.map: {NAME}/web {ONE}@" in taken["said"]
    assert ask(f"/s/{NAME}/web/", **bearer(token))["status"] == 404
    assert ask("/s/fresh-one/web/", **bearer(token))["status"] == 403
    assert ask("/s/fresh-one/web/", **bearer(signed(sub=fresh)))["status"] == 200
    routes(routes=[{"id": fresh, "name": NAME, "apps": [app("web", 0)]}])
    assert ask(f"/s/{NAME}/web/", **bearer(token))["status"] == 403


def test_check_mode_tells_and_changes_nothing(token: str) -> None:
    would = routes("--check", "--diff", routes=[fake(1)], ended=[ONE])
    assert would["changed"] is True
    assert "+HAProxy's apps.map: passing-1/web " in would["said"]
    assert would["links"][0]["ssh"]["port"]
    assert ask(f"/s/{NAME}/web/", **bearer(token))["status"] == 200
    assert routes(routes=[WAY_IN])["changed"] is False
    did = routes("--diff", routes=[fake(1)], ended=[ONE])
    assert did == would


def test_routes_survive_a_restart_and_a_reboot(known: dict[str, Any], token: str) -> None:
    port = known["links"][0]["ssh"]["port"]
    on(GATEWAY, f"systemctl restart {UNIT}")
    assert ask(f"/s/{NAME}/down/", **bearer(token))["status"] == 503
    booted = on(GATEWAY, "stat -c %Y /proc/1")
    on(GATEWAY, "systemctl reboot", check=False)
    eventually(lambda: on(GATEWAY, "stat -c %Y /proc/1", check=False) not in ("", booted) and running())
    assert ask(f"/s/{NAME}/down/", **bearer(token))["status"] == 503
    assert greeting(port).startswith("SSH-2.0-")
    assert "timed out" in greeting(port + 1 if port < 32000 else port - 1)
    assert routes(routes=[WAY_IN])["changed"] is False
    start_apps()


def running() -> bool:
    return on(GATEWAY, f"systemctl is-active {UNIT}", check=False).strip() == "active"


def test_a_killed_haproxy_comes_back_with_the_routes(token: str) -> None:
    on(GATEWAY, f"systemctl kill --signal KILL {UNIT}")
    eventually(running)
    assert ask(f"/s/{NAME}/down/", **bearer(token))["status"] == 503


def test_a_stopped_haproxy_is_told_and_finds_the_routes_when_it_starts() -> None:
    on(GATEWAY, f"systemctl stop {UNIT}")
    try:
        told = routes(routes=[fake(2)])
        assert "HAProxy does not run on this gateway" in " ".join(told["said"].split())
    finally:
        on(GATEWAY, f"systemctl start {UNIT}")
    assert ask("/s/passing-2/web/")["status"] == 403
    assert routes()["changed"] is False


def test_the_token_is_in_its_file_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "my.token"
    path.write_text("before")
    path.chmod(0o644)
    asked = {"session_id": ONE, "session_token_path": str(path), "session_token_ttl": "60"}
    run = play("session_token", tmp_path, asked, "-vvvvv", "--diff")
    assert run.code == 0, run.output
    token = path.read_text().removesuffix("\n")
    assert path.stat().st_mode & 0o777 == 0o600
    assert token.count(".") == 2
    assert not [part for part in (token, *token.split(".")[1:]) if part in run.output]
    assert f"is in {path}, and opens it until" in run.said
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert (claims["sub"], claims["session"], claims["exp"] - claims["iat"]) == (ONE, NAME, 60)
    assert ask(f"/s/{NAME}/web/", **bearer(token))["status"] == 200
    assert [one.name for one in tmp_path.glob(".session-token-*")] == []
    assert token.split(".")[2] not in on(GATEWAY, f"journalctl --boot --unit {UNIT} --no-pager")


def test_tokens_in_links_are_not_logged(token: str) -> None:
    ask(f"/s/{NAME}/web/logged-path?token={token}")
    eventually(lambda: "logged-path" in on(GATEWAY, f"journalctl --boot --unit {UNIT} --no-pager"))
    assert token.split(".")[2] not in on(GATEWAY, "journalctl --boot --no-pager")


def test_a_token_for_nobody_is_refused_in_one_sentence_and_check_mode_writes_none(tmp_path: Path) -> None:
    path = tmp_path / "token"
    refused = play("session_token", tmp_path, {"session_name": "nobody-here", "session_token_path": str(path)})
    assert refused.code != 0
    assert "there is no session with the name 'nobody-here' behind this gateway." in refused.said
    dry = play("session_token", tmp_path, {"session_name": NAME, "session_token_path": str(path)}, "--check")
    assert dry.code == 0, dry.output
    assert not path.exists()


def test_a_cluster_without_gateways_is_told(tmp_path: Path) -> None:
    asked = {"session_name": NAME, "session_token_path": str(tmp_path / "token"), "gateway_group": "nobody"}
    refused = play("session_token", tmp_path, asked)
    assert refused.code != 0
    assert "gateway_group: 'nobody' has no host that could sign a token." in refused.said


def test_bad_variables_are_refused_before_anything_is_applied(tmp_path: Path) -> None:
    before = on(GATEWAY, "find /etc/backendai /var/lib/backendai-gateway -printf '%p %T@ %s\\n' | sort")
    fitting, other = make(["gateway"], 0.0), make(["gateway"], time.time())
    old, certificate, key = (tmp_path / name for name in ("old.pem", "certificate.pem", "key.pem"))
    for path, content in ((old, fitting), (certificate, other), (key, fitting[fitting.index("-----BEGIN PRIV") :])):
        path.write_text(content)
    pair = {"certificate": str(old), "certificate_key": str(key)}
    expired = provision(tmp_path, **pair, ssh_ports="80-90")
    assert expired.code != 0
    assert "gateway_ssh_ports: '80-90' must be a range within 1024-65535, such as 31001-32000." in expired.said
    assert "has expired on" in provision(tmp_path, **pair).said
    wrong = provision(tmp_path, certificate=str(certificate), certificate_key=str(key))
    assert f"gateway_certificate_key: '{key}' does not fit the certificate." in wrong.said
    assert on(GATEWAY, "find /etc/backendai /var/lib/backendai-gateway -printf '%p %T@ %s\\n' | sort") == before


def test_a_given_certificate_is_used_and_its_key_is_never_shown(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=given -days 9 -keyout {key}"
    subprocess.run([*make.split(), "-out", str(certificate)], check=True, capture_output=True)
    given = provision(tmp_path, "-vvv", "--diff", domain=DOMAIN, certificate=str(certificate), certificate_key=str(key))
    assert given.code == 0, given.output
    secret = "".join(key.read_text().splitlines()[1:3])
    assert secret[:40] not in given.output
    shown = f"echo | openssl s_client -connect {ADDRESS}:443 2> /dev/null | openssl x509 -noout -subject"
    assert "given" in subprocess.run(shown, shell=True, capture_output=True, text=True, check=True).stdout
    back = provision(tmp_path, domain=DOMAIN)
    assert back.code == 0, back.output
    assert "given" not in subprocess.run(shown, shell=True, capture_output=True, text=True, check=True).stdout
    assert on(GATEWAY, "stat -c %a /etc/backendai/gateway/certificate.pem").strip() == "600"


def test_no_request_is_lost_while_50_other_sessions_come_and_go(token: str) -> None:
    load = {"path": f"/s/{NAME}/web/slow/4", "headers": bearer(token), "at_once": 500, "seconds": 40}
    text = Path(__file__).with_name("web_client.py").read_text()
    on(USER, f"mkdir -p {FOLDER}; cat > {FOLDER}/web_client.py << 'END'\n{text}\nEND")
    asked = json.dumps({"host": ADDRESS, "load": {**load, "socket": f"/s/{NAME}/web/ws"}})
    line = f"ulimit -n 4096; echo {shlex.quote(asked)} | python3 {FOLDER}/web_client.py"
    changes = 0
    with launch(ssh(USER, line)) as users:
        time.sleep(4)
        while users.poll() is None and changes < 16:
            group = [fake(number) for number in range(50)]
            assert routes(routes=group)["changed"] is True
            assert routes(ended=[one["id"] for one in group])["changed"] is True
            changes += 2
        output, _nothing = users.communicate(timeout=120)
    on(USER, f"rm -r {FOLDER}")
    assert output.startswith("{"), output
    told = json.loads(output)
    print(f"{told['seen']} requests while routes changed {changes} times; {told['frames']} frames of a WebSocket")
    assert changes >= 4
    assert set(told["seen"]) == {"200"}
    assert told["seen"]["200"] >= 2500
    assert told["frames"] >= 40

"""Access through the gateway from outside: tokens, links, cookies, certificates.

What HAProxy does with the requests and answers of an app is in tests/unit/test_gateway_apps.py.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.integration.gateway_client import (
    COOKIE,
    GATEWAY,
    NAME,
    OTHER,
    OTHER_SESSION,
    SESSION,
    USER,
    bearer_header,
    provision_gateway,
    run_client,
    running_apps,
    send_request,
    signed_token,
)
from tests.integration.internals import GATEWAY_CERTIFICATE, UNIT_GATEWAY
from tests.integration.laboratory import Run, address, run_on, run_playbook
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.gateway

DOMAIN = "apps.example.org"
#: The gateway itself, without firewall and managers, which its options do not change.
PART = ("--tags", "gateway")


class Provisioned(NamedTuple):
    """A gateway with a domain and a configured certificate: the variables, and the run."""

    variables: dict[str, str]
    run: Run


class Issued(NamedTuple):
    """A token for the first session, its file, and the run with -vvvvv that wrote it."""

    token: str
    path: Path
    run: Run


def new_certificate(folder: Path, name: str) -> dict[str, str]:
    """Create a certificate for a name and its key; return the variables that configure both."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    make = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -days 9 -keyout"
    subprocess.run([*make.split(), key, "-out", certificate], check=True, capture_output=True)
    return {"certificate": str(certificate), "certificate_key": str(key)}


def shown_certificate() -> str:
    """Return the subject of the certificate that the gateway presents."""
    line = f"echo | openssl s_client -connect {address(GATEWAY)}:443 2> /dev/null | openssl x509 -noout -subject"
    return subprocess.run(line, shell=True, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def provisioned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provisioned]:
    """Provision the gateway; afterwards without a domain again, and with a self-signed certificate."""
    folder = tmp_path_factory.mktemp("provision")
    variables = {"domain": DOMAIN, **new_certificate(folder, "given")}
    run = provision_gateway(folder, *PART, "-vvv", "--diff", **variables)
    assert run.code == 0, run.output
    yield Provisioned(variables, run)
    rerun = provision_gateway(folder, *PART)
    assert rerun.code == 0, rerun.output
    assert "given" not in shown_certificate()
    assert run_on(GATEWAY, f"stat -c %a {GATEWAY_CERTIFICATE}").strip() == "600"


@pytest.fixture(scope="module", autouse=True)
def routes_result(provisioned: Provisioned) -> Iterator[dict[str, Any]]:
    """Add the routes of both sessions and no others; return the result."""
    assert provisioned.run.code == 0
    with running_apps() as result:
        yield result


@pytest.fixture(scope="module")
def issued(routes_result: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Issued:
    """Return a token for the first session, written by the playbook."""
    assert routes_result["links"]
    path = tmp_path_factory.mktemp("token") / "my.token"
    path.write_text("before")
    path.chmod(0o644)
    extra_vars = {"session_id": SESSION, "session_token_path": str(path)}
    run = run_playbook("session_token", path.parent, extra_vars, "-vvvvv", "--diff")
    assert run.code == 0, run.output
    return Issued(path.read_text().removesuffix("\n"), path, run)


@pytest.fixture(scope="module")
def token(issued: Issued) -> str:
    return issued.token


def test_second_run_and_check_mode_change_nothing(provisioned: Provisioned, tmp_path: Path) -> None:
    rerun = provision_gateway(tmp_path, *PART, **provisioned.variables)
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output
    checked = provision_gateway(tmp_path, *PART, "--check", "--diff", **provisioned.variables)
    assert (checked.code, checked.changed) == (0, 0), checked.output


def test_configured_certificate_is_used_and_its_key_never_printed(provisioned: Provisioned) -> None:
    assert "given" in shown_certificate()
    secret = "".join(Path(provisioned.variables["certificate_key"]).read_text().splitlines()[1:3])
    assert len(secret) > 40
    assert secret[:40] not in provisioned.run.output


def test_token_is_only_in_its_file(issued: Issued) -> None:
    token, path, run = issued
    assert path.stat().st_mode & 0o777 == 0o600
    assert token.count(".") == 2
    links = [line for line in run.output.splitlines() if token in line]
    assert [line.split() for line in links] == [
        [app, f"https://{NAME}--{app}.{DOMAIN}/?token={token}"] for app in ("web", "down")
    ]
    rest = "".join(line for line in run.output.splitlines() if line not in links)
    assert not [part for part in token.split(".")[1:] if part in rest]
    assert f"is in {path}. It is valid until" in run.text
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert (claims["sub"], claims["session"], claims["exp"] - claims["iat"]) == (SESSION, NAME, 3600)
    assert send_request(f"/s/{NAME}/web/", **bearer_header(token))["status"] == 200
    assert [leftover.name for leftover in path.parent.glob(".session-token-*")] == []
    assert token.split(".")[2] not in run_on(GATEWAY, f"journalctl --boot --unit {UNIT_GATEWAY} --no-pager")


def test_tokens_in_links_are_not_logged(token: str) -> None:
    send_request(f"/s/{NAME}/web/logged-path?token={token}")
    wait_until(lambda: "logged-path" in run_on(GATEWAY, f"journalctl --boot --unit {UNIT_GATEWAY} --no-pager"))
    assert token.split(".")[2] not in run_on(GATEWAY, "journalctl --boot --no-pager")


def test_token_in_header_or_cookie_opens_the_app_and_is_not_forwarded(token: str) -> None:
    path = f"/s/{NAME}/web/a%2fb/../c?q=1&token=own"
    by_header = send_request(
        path, **bearer_header(token), Cookie=f"a=1; {COOKIE}=old; b=2", X_Forwarded_For="1.2.3.4", Forwarded="for=1"
    )
    by_cookie = send_request(path, Cookie=f"{COOKIE}={token}", Authorization="Bearer of-the-app")
    assert (by_header["status"], by_cookie["status"]) == (200, 200)
    request = json.loads(by_header["body"])
    assert (request["app"], request["path"]) == ("mine", "/a%2fb/../c?q=1&token=own")
    outsider = address(USER)
    expected = {"x-forwarded-for": outsider, "x-forwarded-proto": "https", "x-forwarded-prefix": f"/s/{NAME}/web"}
    expected |= {"x-forwarded-host": address(GATEWAY), "host": address(GATEWAY), "cookie": "a=1; b=2"}
    headers = dict(request["headers"])
    assert expected.items() <= headers.items()
    assert not {"authorization", "forwarded"} & headers.keys()
    assert dict(json.loads(by_cookie["body"])["headers"])["authorization"] == "Bearer of-the-app"
    assert token not in by_header["body"] + by_cookie["body"]


def test_link_with_a_token_sets_a_cookie_for_this_session_only(token: str) -> None:
    first = send_request(f"/s/{NAME}/web/lab?x=1&token={token}&y=2")
    assert first["status"] == 302
    assert first["headers"]["location"] == f"https://{address(GATEWAY)}/s/{NAME}/web/lab?x=1&y=2"
    cookie, *attributes = first["headers"]["set-cookie"].split("; ")
    assert {"Secure", "HttpOnly", "SameSite=Lax", f"Path=/s/{NAME}"} < set(attributes)
    (age,) = [int(text.removeprefix("Max-Age=")) for text in attributes if text.startswith("Max-Age=")]
    assert 3000 < age <= 3600
    second = send_request(f"/s/{NAME}/web/lab?x=1&y=2", Cookie=cookie)
    assert (second["status"], json.loads(second["body"])["path"]) == (200, "/lab?x=1&y=2")


def test_a_host_name_needs_no_prefix(token: str) -> None:
    name = f"{NAME}--web.{DOMAIN}"
    linked = send_request(f"//x?token={token}", name=name)
    assert linked["headers"]["location"] == f"https://{name}//x"
    assert "Path=/; " in linked["headers"]["set-cookie"]
    request = json.loads(send_request("/s/x/y/", name=name.upper(), **bearer_header(token))["body"])
    assert request["path"] == "/s/x/y/"
    assert "x-forwarded-prefix" not in dict(request["headers"])
    assert send_request("/", name=f"{OTHER}--web.{DOMAIN}", **bearer_header(token))["status"] == 403
    assert send_request("/", name=f"nobody--web.{DOMAIN}", **bearer_header(token))["status"] == 404


def test_invalid_tokens_are_refused(token: str) -> None:
    now = int(time.time())
    head, body, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    other = base64.urlsafe_b64encode(json.dumps({**claims, "sub": OTHER_SESSION}).encode()).rstrip(b"=").decode()
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    refused = {
        "expired": signed_token(exp=now - 1),
        "without an end": signed_token(exp=None),
        "of another session": signed_token(sub=OTHER_SESSION),
        "signed by another key": signed_token(own_key=False),
        "changed": f"{head}.{other}.{signature}",
        "cut": f"{head}.{body}.{signature[:-4]}",
        "unsigned": f"{none}.{body}.",
        "no token": "abc",
    }
    requests: list[dict[str, Any]] = [{"path": f"/s/{NAME}/web/", "headers": {}}]
    for invalid in refused.values():
        requests += [{"path": f"/s/{NAME}/web/", "headers": bearer_header(invalid)}]
        requests += [{"path": f"/s/{NAME}/web/", "headers": {"Cookie": f"{COOKIE}={invalid}"}}]
        requests += [{"path": f"/s/{NAME}/web/?token={invalid}"}]
    requests += [{"path": f"/s/{OTHER}/web/", "headers": bearer_header(token)}]
    answers = run_client({"requests": requests})
    assert [answer["status"] for answer in answers] == [403] * len(requests)
    assert "This needs a token." in answers[0]["body"]
    assert "The token has expired." in answers[1]["body"]
    assert "The token is for another session." in answers[-1]["body"]
    assert "not one of this gateway" in answers[-3]["body"]


def test_unknown_paths_are_not_found_in_any_spelling(token: str) -> None:
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
    answers = run_client({"requests": [{"path": path, "headers": bearer_header(token)} for path in paths]})
    assert [answer["status"] for answer in answers] == [404] * len(paths)
    inside = send_request(f"/s/{NAME}/web/../../{OTHER}/web/", **bearer_header(token))
    assert json.loads(inside["body"])["app"] == "mine"


def test_http_2_is_supported_and_old_tls_is_not(token: str) -> None:
    run_on(USER, "command -v curl > /dev/null || apt-get install -y -q curl")
    header = f"printf 'Authorization: Bearer %s' '{token}'"
    url = f"https://{address(GATEWAY)}/s/{NAME}/web/"
    options = "--output /dev/null --write-out '%{http_version} %{http_code}'"
    assert run_on(USER, f"{header} | curl --silent --insecure --http2 --header @- {options} {url}") == "2 200"
    assert "alert protocol version" in run_on(
        USER, f"curl --insecure --verbose --tls-max 1.1 --ciphers ALL@SECLEVEL=0 {url}", check=False
    )


def test_token_without_gateways_is_refused(tmp_path: Path) -> None:
    extra_vars = {"session_name": NAME, "session_token_path": str(tmp_path / "token"), "gateway_group": "nobody"}
    refused = run_playbook("session_token", tmp_path, extra_vars)
    assert refused.code != 0
    assert "gateway_group: 'nobody' has no hosts; a token is signed by a gateway." in refused.text


def test_a_renewed_certificate_is_served_at_once(provisioned: Provisioned, tmp_path: Path) -> None:
    renewed = {**provisioned.variables, **new_certificate(tmp_path, "renewed")}
    run = provision_gateway(tmp_path, *PART, **renewed)
    assert run.code == 0, run.output
    # A reload is over before the old processes have ended.
    wait_until(lambda: "renewed" in shown_certificate(), seconds=30)

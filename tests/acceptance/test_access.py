"""Access of a user from outside: curl, ssh and a web terminal on user1, which reaches nothing but the gateway."""

from __future__ import annotations

import base64
import json
import re
import time
from typing import Any

from tests.acceptance.conftest import KEYS, Training
from tests.acceptance.hosts import curl
from tests.integration.gateway_client import GATEWAY, OTHER_SESSION, USER, program, signed_token
from tests.integration.laboratory import address, run_in, run_on
from tests.integration.reboots import reboot
from tests.integration.waiting import wait_until

#: Headers by which a proxy says for whom it asks, and what somebody claims in them.
FORWARDING = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Prefix", "X-Forwarded-User")
LIE = "192.0.2.77"
STRICT = f"-o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile={KEYS}/known -i {KEYS}/key"


def link(train: Training, app: str = "web") -> str:
    """Return the address of an app, as it was printed for the user."""
    (url,) = [each["url"] for each in train.access["apps"] if each["name"] == app]
    assert url == f"https://{address(GATEWAY)}/s/{train.name}/{app}/"
    assert url in train.session.run.output
    return str(url)


def bearer(token: str) -> tuple[str, str]:
    return "--header", f"Authorization: Bearer {token}"


def claims_of(token: str) -> dict[str, Any]:
    """Return what a token says, which anybody can read."""
    body = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(f"{body}{'=' * (-len(body) % 4)}")))


def test_an_app_opens_with_a_token_of_its_session_and_with_no_other(train: Training, token: str) -> None:
    page = f"{link(train)}hostname"
    # Without session_token_ttl it is valid for an hour.
    assert 3000 < claims_of(token)["exp"] - time.time() <= 3600
    wait_until(lambda: curl(USER, page, *bearer(token)) == (200, "main1\n"), seconds=60)
    session_id = train.session.record["id"]

    def cookie(token: str) -> tuple[str, str]:
        return "--cookie", f"__Secure-backendai-{session_id}={token}"

    head, body, signature = token.split(".")
    refused = {
        "none": (),
        "expired": bearer(signed_token(sub=session_id, exp=int(time.time()) - 1)),
        "of another session": bearer(signed_token(sub=OTHER_SESSION)),
        "signed by another key": bearer(signed_token(sub=session_id, own_key=False)),
        "cut": bearer(f"{head}.{body}.{signature[:-4]}"),
        "without a signature": bearer(f"{head}.{body}."),
        "in a cookie, expired": cookie(signed_token(sub=session_id, exp=int(time.time()) - 1)),
        "in a cookie, of another session": cookie(signed_token(sub=OTHER_SESSION)),
        "in a cookie, signed by another key": cookie(signed_token(sub=session_id, own_key=False)),
        "in a cookie, without a signature": cookie(f"{head}.{body}."),
    }
    assert {kind: curl(USER, page, *options)[0] for kind, options in refused.items()} == dict.fromkeys(refused, 403)
    genuine = signed_token(sub=session_id)
    # What the app hears of the user is the gateway's word: neither the user's own, nor the token.
    wait_until(lambda: curl(USER, link(train, "mirror"), *bearer(genuine))[0] == 200, seconds=60)
    lies = [word for name in FORWARDING for word in ("--header", f"{name}: {LIE}")]
    _status, heard = curl(USER, link(train, "mirror"), *bearer(genuine), *lies)
    headers = [line.casefold() for line in heard.splitlines()]
    assert f"x-forwarded-for: {address(USER)}" in headers, heard
    assert f"x-forwarded-host: {address(GATEWAY)}" in headers, heard
    assert f"x-forwarded-prefix: /s/{train.name}/mirror" in headers, heard
    assert not [secret for secret in (LIE, "authorization", genuine) if secret in heard.casefold()], heard
    assert [curl(USER, page, *options)[0] for options in (bearer(genuine), cookie(genuine))] == [200, 200]
    assert curl(USER, f"https://{address(GATEWAY)}/s/nobody/web/", *bearer(token))[0] == 404


def test_a_link_opens_the_app_in_a_browser_and_other_sites_cannot_use_it(train: Training, token: str) -> None:
    cookies = f"{KEYS}/cookies"
    opened = curl(USER, f"{link(train)}hostname?token={token}", "--location", "--cookie-jar", cookies)
    assert opened == (200, "main1\n")
    with_cookie = ("--cookie", cookies)
    assert curl(USER, f"{link(train)}hostname", *with_cookie) == (200, "main1\n")
    assert curl(USER, f"{link(train)}hostname", *with_cookie, "--header", "Origin: https://elsewhere.example")[0] == 403
    (kept,) = re.findall(r"^#HttpOnly_(\S+)\t(\w+)\t(\S+)\t(\w+)\t", run_on(USER, f"cat {cookies}"), re.MULTILINE)
    # For this host, the paths of this session, and HTTPS.
    assert kept == (address(GATEWAY), "FALSE", f"/s/{train.name}", "TRUE")
    # Neither the app nor a log of the gateway gets the token.
    seen = run_in(train.session.kernels[0], "cat", "/var/log/backendai/web.log")
    assert '"GET /hostname HTTP/1.1" 200' in seen
    assert "token" not in seen
    assert token.split(".")[2] not in run_on(GATEWAY, "journalctl --boot --no-pager")


def test_the_printed_ssh_configuration_logs_in_to_main1_and_on_to_the_others(train: Training) -> None:
    output = train.session.run.output
    (host,) = re.findall(rf"^  (Host {train.name}\n(?:    .*\n)+)", output, re.MULTILINE)
    (host_key,) = re.findall(r"^  (\[.*\]:\d+ ssh-ed25519 .*\n)", output, re.MULTILINE)
    run_on(USER, f"cat > {KEYS}/config << 'END'\n{host}END\ncat > {KEYS}/known << 'END'\n{host_key}END")
    line = f"ssh -F {KEYS}/config {STRICT} {train.name}"
    names = run_on(USER, f"{line} 'hostname; for n in 1 2 3; do ssh sub$n hostname; done'")
    assert names.split() == ["main1", "sub1", "sub2", "sub3"]
    copied = f"scp -q -F {KEYS}/config {STRICT} {KEYS}/known {train.name}:copied && {line} cat copied"
    assert run_on(USER, copied) == host_key
    stranger = f"ssh-keygen -q -t ed25519 -N '' -f {KEYS}/stranger <<< y > /dev/null; "
    refused = run_on(USER, stranger.replace("<<< y", "") + line.replace(f"{KEYS}/key", f"{KEYS}/stranger"), check=False)
    assert "Permission denied (publickey)." in refused


def test_the_terminal_in_the_browser_is_a_shell_in_main1(train: Training, token: str) -> None:
    path = f"/s/{train.name}/terminal/"
    wait_until(lambda: curl(USER, f"https://{address(GATEWAY)}{path}", *bearer(token))[0] == 200, seconds=60)
    # The screen repeats what is typed: only the shell's answer has the expected line.
    line = "echo $(id -un):$(stty size):$LANG:$MASTER_ADDR:$(ssh sub1 hostname):$(printf '\\303\\274')"
    expected = "work:41 133:C.UTF-8:main1:sub1:ü"
    report = json.loads(program(USER, "terminal_client", token, address(GATEWAY), path, line, expected))
    assert expected in report["screen"], report


def test_access_is_back_after_a_reboot_of_the_gateway(train: Training, token: str) -> None:
    before = curl(USER, f"{link(train)}hostname", *bearer(token))
    is_back = reboot(GATEWAY)
    wait_until(is_back)
    wait_until(lambda: curl(USER, f"{link(train)}hostname", *bearer(token)) == before == (200, "main1\n"), seconds=60)
    login = f"ssh -F {KEYS}/config {STRICT} {train.name} hostname"
    assert run_on(USER, login, check=False).strip() == "main1"
    assert curl(USER, f"{link(train)}hostname")[0] == 403

"""Gateway actions: validation before the gateway is contacted, and use of its result."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action import gateway_certificate, gateway_token
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.certificate import make_self_signed
from tests.unit.plugins.action.conftest import Run

DEFAULTS = yaml.safe_load((Path(__file__).parents[4] / "roles/gateway/defaults/main.yml").read_text())
LINKS = {
    "apps": [
        {"name": "db", "url": None},
        {"name": "web", "url": "https://door/s/train-llm/web/"},
        {"name": "runs", "url": "https://door/s/train-llm/runs/list?all=1#top"},
    ]
}
SAID = {"changed": True, "session": {"id": "i", "name": "train-llm"}, "links": LINKS, "expires_at": 1772337597}
TOKEN = "head.claims.signature"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Return the files of a certificate and its key."""
    pem = make_self_signed(["given.example.org"], time.time())
    place = pem.index("-----BEGIN PRIVATE")
    paths = tmp_path / "certificate.pem", tmp_path / "key.pem"
    for path, content in zip(paths, (pem[:place], pem[place:]), strict=True):
        path.write_text(content)
    return paths


def act(run: Run, state: str = "validated", **changes: Any) -> dict[str, Any]:
    """Run ``gateway_certificate`` with ``gateway_*`` variables given without their prefix."""
    args = {"state": state, **({"path": "/x"} if state == "present" else {})}
    arguments = {**DEFAULTS, **{f"gateway_{key}": value for key, value in changes.items()}}
    variables = {"inventory_hostname": "gateway1", "ansible_host": "192.0.2.7", **arguments}
    return run(gateway_certificate.ActionModule, args, variables)


def test_variables_set_the_gateway(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = answering(monkeypatch, gateway_certificate, {})
    result = act(run, domain="apps.example.org", hostname="door.example.org")
    expected = {"hostname": "door.example.org", "domain": "apps.example.org", "https_port": 443}
    assert result["gateway"] == {
        **expected,
        "first_ssh_port": 31001,
        "last_ssh_port": 32000,
        "path_links": True,
    }
    assert (result["changed"], requests) == (False, [])


def test_certificate_has_all_names_and_the_address(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = answering(monkeypatch, gateway_certificate, {})
    act(run, "present", domain="apps.example.org", hostname="door.example.org")
    act(run, "present")
    run(gateway_certificate.ActionModule, {"path": "/x"}, {"inventory_hostname": "gateway1", **DEFAULTS})
    assert [args["names"] for args in requests] == [
        ["door.example.org", "*.apps.example.org", "192.0.2.7"],
        ["192.0.2.7"],
        ["gateway1"],
    ]


@pytest.mark.parametrize("state", ["validated", "present"])
def test_invalid_requests_are_rejected(run: Run, state: str) -> None:
    with pytest.raises(AnsibleActionFail, match=r"^gateway_https_port: 0 must be a whole number from 1 to 65535\.$"):
        act(run, state, https_port=0)


def test_unknown_variable_is_rejected(run: Run) -> None:
    with pytest.raises(AnsibleActionFail, match=r"^gateway_port is not an option of a gateway; allowed are gateway_a"):
        act(run, port=443)


@pytest.mark.parametrize("state", ["validated", "present"])
def test_invalid_certificate_is_rejected(run: Run, pair: tuple[Path, Path], tmp_path: Path, state: str) -> None:
    def refused(certificate: Path, key: Path) -> str:
        with pytest.raises(AnsibleActionFail) as refusal:
            act(run, state, certificate=str(certificate), certificate_key=str(key))
        assert "\n" not in str(refusal.value)
        return str(refusal.value)

    certificate, key = pair
    none, text, old = (tmp_path / name for name in ("none", "text", "old"))
    text.write_text("x")
    old.write_text(make_self_signed(["x"], 0.0))
    assert refused(none, key) == f"gateway_certificate: '{none}' cannot be read: No such file or directory."
    assert refused(certificate, none) == f"gateway_certificate_key: '{none}' cannot be read: No such file or directory."
    assert refused(text, key) == f"gateway_certificate: '{text}' holds no certificate in PEM form."
    assert refused(certificate, text) == f"gateway_certificate_key: '{text}' holds no private key in PEM form."
    assert refused(old, key) == f"gateway_certificate: '{old}' expired on 1971-02-01."
    assert refused(certificate, old) == f"gateway_certificate_key: '{old}' does not fit the certificate."


def answering(monkeypatch: pytest.MonkeyPatch, action: Any, answer: Any) -> list[dict[str, Any]]:
    """Fake the module of an action; return its requests."""
    requests: list[dict[str, Any]] = []

    def execute(_self: Any, *, module_args: dict[str, Any], **_more: Any) -> dict[str, Any]:
        requests.append(module_args)
        return dict(answer(module_args) if callable(answer) else answer)

    monkeypatch.setattr(action.ActionModule, "_execute_module", execute)
    return requests


def test_gateway_gets_the_content_of_the_files(
    run: Run, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = answering(monkeypatch, gateway_certificate, {"changed": True})
    result = act(run, "present", certificate=str(pair[0]), certificate_key=str(pair[1]))
    assert (result["changed"], requests[0]["path"]) == (True, "/x")
    assert (requests[0]["certificate"], requests[0]["key"]) == tuple(path.read_text() for path in pair)
    act(run, "present")
    assert (requests[1]["certificate"], requests[1]["key"]) == ("", "")


def token_of(run: Run, path: Path, **more: Any) -> dict[str, Any]:
    return run(gateway_token.ActionModule, {"name": "train-llm", "path": str(path), **more}, {})


def test_token_is_in_its_file_and_not_in_the_result(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: list[str]
) -> None:
    requests = answering(monkeypatch, gateway_token, {**SAID, "token": TOKEN})
    path = tmp_path / "my.token"
    path.write_text("before")
    path.chmod(0o644)
    result = token_of(run, path, ttl="60")
    assert path.read_text() == f"{TOKEN}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert TOKEN not in str(result)
    assert {**SAID, "path": str(path)}.items() <= result.items()
    assert "token" not in result
    assert (requests[0]["ttl"], requests[0]["name"], requests[0]["path"]) == (60, "train-llm", str(path))
    assert printed[0] == f"The token for session train-llm is in {path}. It is valid until 2026-03-01 03:59:57 UTC."
    assert [line.split() for line in printed[2:4]] == [
        ["web", f"https://door/s/train-llm/web/?token={TOKEN}"],
        ["runs", f"https://door/s/train-llm/runs/list?all=1&token={TOKEN}#top"],
    ]
    assert printed[-1].endswith(f"cat '{path}') https://door/s/train-llm/web/")
    assert TOKEN not in printed[-1]


def test_a_json_file_has_the_links_and_the_end_of_the_token(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: list[str]
) -> None:
    answering(monkeypatch, gateway_token, {**SAID, "token": TOKEN})
    path = tmp_path / "token.json"
    token_of(run, path)
    shared = {name: SAID[name] for name in ("session", "links", "expires_at")}
    assert json.loads(path.read_text()) == {"token": TOKEN, **shared}
    assert path.stat().st_mode & 0o777 == 0o600
    assert not [line for line in printed if "curl" in line]


def test_failed_request_does_not_change_the_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: list[str]
) -> None:
    answering(monkeypatch, gateway_token, {"failed": True, "msg": "there is no session."})
    path = tmp_path / "token"
    path.write_text("before")
    result = token_of(run, path)
    assert (result["failed"], result["msg"], path.read_text(), printed) == (True, "there is no session.", "before", [])


def test_check_mode_writes_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: list[str]
) -> None:
    answering(monkeypatch, gateway_token, SAID)
    assert token_of(run, tmp_path / "token")["changed"] is True
    assert (list(tmp_path.glob("*token*")), printed) == ([], [])


def test_unwritable_path_is_rejected_before_the_request(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = answering(monkeypatch, gateway_token, SAID)
    with pytest.raises(AnsibleActionFail, match=r"^session_token_path: '.*' must be a file, not a folder\.$"):
        token_of(run, tmp_path)
    with pytest.raises(AnsibleActionFail, match=r"^session_token_path: '.*' must be in an existing, writable folder"):
        token_of(run, tmp_path / "nowhere" / "token")
    with pytest.raises(AnsibleActionFail, match=r"^session_token_ttl: 1 must be a whole number"):
        token_of(run, tmp_path / "token", ttl=1)
    assert requests == []


def test_what_a_gateway_says_is_safe_to_print(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answering(monkeypatch, gateway_certificate, {"msg": "\x1b[2J"})
    assert act(run, "present")["msg"] == "\\x1b[2J"
    answering(monkeypatch, gateway_token, {**SAID, "token": TOKEN, "warnings": ["\x1b[2J"]})
    args = {"name": "train-llm", "path": str(tmp_path / "t")}
    assert run(gateway_token.ActionModule, args, {})["warnings"] == ["\\x1b[2J"]


def test_a_user_names_the_session_of_a_token_in_a_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: list[str]
) -> None:
    requests = answering(monkeypatch, gateway_token, {**SAID, "token": TOKEN})
    given, request = tmp_path / "request.json", {"session_name": "train-llm", "session_token_ttl": 60}
    given.write_text(json.dumps(request))
    args = {"name": "", "session_id": "", "path": str(tmp_path / "token")}
    run(gateway_token.ActionModule, args, {"session_request_path": str(given)})
    assert (requests[0]["name"], requests[0]["ttl"], printed != []) == ("train-llm", 60, True)
    given.write_text(json.dumps({**request, "session_token_path": "x"}))
    with pytest.raises(AnsibleActionFail, match=r"^session_token_path is an option of operators"):
        run(gateway_token.ActionModule, args, {"session_request_path": str(given)})

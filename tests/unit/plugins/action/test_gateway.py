"""Gateway actions: validation before the gateway is contacted, and use of its result."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action import gateway_certificate
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.certificate import make_self_signed
from tests.unit.plugins.action.conftest import Run

DEFAULTS = yaml.safe_load((Path(__file__).parents[4] / "roles/gateway/defaults/main.yml").read_text())


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


def test_what_a_gateway_says_is_safe_to_print(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, gateway_certificate, {"msg": "\x1b[2J"})
    assert act(run, "present")["msg"] == "\\x1b[2J"

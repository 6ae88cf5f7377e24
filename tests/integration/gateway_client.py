"""A client of the gateway on ``user1``, with valid and invalid tokens."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.internals import GATEWAY_STATE, MODULE_ROUTES
from tests.integration.laboratory import INVENTORY, Run, address, ansible, run_on, run_on_all, run_playbook, ssh
from tests.integration.programs import run_line, source

GATEWAY, USER = "gateway1", "user1"
FOLDER = "/var/tmp/backendai-gateway-test"
#: The apps of tests run on the gateway itself, so that no firewall of an agent is involved.
FIRST_PORT = 21001

SESSION, OTHER_SESSION = "5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a", "6f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
NAME, OTHER = "train-llm", "other-user"
#: The cookie of the first session by path.
COOKIE = f"__Secure-backendai-{SESSION}"

Answer = dict[str, Any]
Route = dict[str, Any]


def program(host: str, name: str, data: object, *arguments: object) -> str:
    """Run a program on a host with JSON data as its standard input; return its output."""
    line = ssh(host, run_line(name, *arguments))
    process = subprocess.run(line, input=json.dumps(data), capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def run_client(request: Mapping[str, Any]) -> Any:
    """Run the web client on ``user1`` against the gateway, and return its report."""
    return json.loads(program(USER, "web_client", {"host": address(GATEWAY), **request}))


def send_request(path: str, *, name: str = "", method: str = "GET", **headers: str) -> Answer:
    """Request a path from the gateway, by its address unless a host name is given."""
    http_headers = {key.replace("_", "-"): value for key, value in headers.items()}
    request = {"path": path, "name": name or address(GATEWAY), "method": method, "headers": http_headers}
    return dict(run_client({"requests": [request]})[0])


def bearer_header(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def signed_token(*, own_key: bool = True, algorithm: str = "ES256", **claims: object) -> str:
    """Return a token with these claims, signed with the gateway's key or with an unknown one."""
    all_claims = {"sub": SESSION, "exp": int(time.time()) + 600, **claims}
    key = f"{GATEWAY_STATE}/token.key" if own_key else ""
    return program(GATEWAY, "sign_token", [{"alg": algorithm, "typ": "JWT"}, all_claims], key).strip()


def provision_gateway(folder: Path, *options: str, **variables: object) -> Run:
    """Run ``provision_gateways`` with ``gateway_*`` variables given without their prefix."""
    return run_playbook(
        "provision_gateways", folder, {f"gateway_{key}": value for key, value in variables.items()}, *options
    )


def change_routes(*options: str, **args: object) -> dict[str, Any]:
    """Change the gateway's routes; return the module's result, with all printed text as ``output``."""
    module_args = json.dumps({"purge": False, **args})
    line = ["ansible", "-i", INVENTORY, GATEWAY, "-m", MODULE_ROUTES, "-a", module_args, *options]
    process = ansible(*line, ANSIBLE_PIPELINING="1", ANSIBLE_CALLBACK_RESULT_FORMAT="json")
    output = process.stdout + process.stderr
    assert process.returncode == 0, output
    return {**json.JSONDecoder().raw_decode(process.stdout.split("=> ", 1)[1])[0], "output": output}


def endpoint(number: int, host: str = "") -> Route:
    """Return the endpoint of the app with that number: on the gateway, unless another address is given."""
    return {"address": host or address(GATEWAY), "port": FIRST_PORT + number}


def app(name: str, number: int, **options: object) -> Route:
    return {"name": name, **endpoint(number), **options}


def example_routes() -> list[Route]:
    """Return the routes of two sessions; the first has SSH, an app that runs and one that does not."""
    apps = [app("web", 0), app("down", 8), app("db", 7, protocol="tcp")]
    login = {"address": address(GATEWAY), "port": 22}
    return [
        {"id": SESSION, "name": NAME, "apps": apps, "ssh": login},
        {"id": OTHER_SESSION, "name": OTHER, "apps": [app("web", 1)], "ssh": None},
    ]


def start_apps() -> Sequence[str]:
    """Start the test apps, which do not survive a reboot; return their units."""
    units = []
    for number, (host, name) in enumerate([(address(GATEWAY), "mine"), (address(GATEWAY), "theirs"), ("::1", "six")]):
        unit = f"backendai-test-{name}"
        line = f"systemd-run --quiet --collect --unit {unit} --property LimitNOFILE=8192"
        run_on(GATEWAY, f"{line} python3 {FOLDER}/web_app.py {host} {FIRST_PORT + number} {name}")
        units.append(unit)
    return units


@contextmanager
def running_apps() -> Iterator[dict[str, Any]]:
    """Run two apps behind the gateway and yield the result of adding their routes; removes both afterwards."""
    text = shlex.quote(source("web_app"))
    run_on(GATEWAY, f"mkdir -p {FOLDER}; printf %s {text} > {FOLDER}/web_app.py")
    units = " ".join(start_apps())
    try:
        yield change_routes(routes=example_routes(), purge=True)
    finally:
        run_on_all(f"systemctl stop {units}; rm -r {FOLDER}", [GATEWAY], check=False)
        change_routes(purge=True)
    assert run_on(GATEWAY, f"ls {GATEWAY_STATE}/routes; cat {GATEWAY_STATE}/maps/*") == ""

"""Logins as users type them, in a container with the real kit: what an image says about ssh, and what it prints."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationErrors
from ansible_collections.backendai.cluster.plugins.module_utils._session import ssh_check
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.containers import parse_environment
from tests.unit.builders import REPOSITORY, plan
from tests.unit.kit import kit_programs
from tests.unit.kit.container import UID, Container, Image, wait_until

ENGINE: Any = None
TEMPLATE = REPOSITORY / "roles/session/templates/ssh_config.j2"

# What each option of an image would do to logins within the session, or to what they print.
HOSTILE = {
    "AddressFamily": "inet6",
    "BindAddress": "192.0.2.77",
    "BindInterface": "eth77",
    "CanonicalizeHostname": "always",
    "CanonicalizeFallbackLocal": "no",
    "CanonicalDomains": "example.com",
    "Ciphers": "3des-cbc",
    "ControlMaster": "auto",
    "ControlPath": "/nowhere/%C",
    "ForkAfterAuthentication": "yes",
    "GlobalKnownHostsFile": "/etc/ssh/others",
    "HostKeyAlgorithms": "ssh-rsa",
    "HostKeyAlias": "other",
    "HostName": "192.0.2.78",
    "IdentitiesOnly": "no",
    "KexAlgorithms": "diffie-hellman-group1-sha1",
    "KnownHostsCommand": "/bin/false",
    "LocalCommand": "echo local",
    "MACs": "hmac-md5",
    "OptionOfAnotherSsh": "yes",
    "PermitLocalCommand": "yes",
    "Port": "2222",
    "PreferredAuthentications": "password",
    "ProxyCommand": "/bin/false",
    "ProxyJump": "jump.example.com",
    "PubkeyAcceptedAlgorithms": "rsa-sha2-512",
    "PubkeyAuthentication": "no",
    "RemoteCommand": "echo remote",
    "RequestTTY": "force",
    "RevokedHostKeys": "/nowhere",
    "SessionType": "none",
    "StdinNull": "yes",
    "StrictHostKeyChecking": "no",
    "Tunnel": "yes",
    "UpdateHostKeys": "ask",
    "User": "root",
    "UserKnownHostsFile": "/dev/null",
    "VerifyHostKeyDNS": "yes",
}

# Of an image, and of no harm.
PREFERENCES = {"forwardagent": "yes", "serveraliveinterval": "33", "loglevel": "VERBOSE", "compression": "yes"}

CHANGED = {"canonicaldomains", "canonicalizefallbacklocal", "localcommand", "bindinterface"}
"""Hostile options that have no effect without another one."""


def rendered(session: Any) -> str:
    """Return the configuration of the containers of a session, as Ansible renders it."""
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(TEMPLATE.read_text()).render(plan=session)


def settings(path: Path, name: str) -> dict[str, str]:
    """Return what ssh does with a host by a configuration."""
    printed = subprocess.run(["ssh", "-G", "-F", path, name], capture_output=True, text=True, check=True).stdout
    return dict(line.partition(" ")[::2] for line in printed.splitlines())


@pytest.mark.parametrize("host", ["sub1", "address"])
def test_what_an_image_says_about_ssh_decides_no_login_within_the_session(tmp_path: Path, host: str) -> None:
    made = plan({"agent1": 1, "agent2": 1})
    ours, both = tmp_path / "ours", tmp_path / "both"
    name = host if host == "sub1" else str(made.kernels[1].address)
    ours.write_text(rendered(made))
    lines = [f"    {option} {value}\n" for option, value in {**HOSTILE, **PREFERENCES}.items()]
    # As ssh reads both files: of each option the first value counts.
    both.write_text("".join([rendered(made), "Host *\n", *lines]))
    alone, beside = settings(ours, name), settings(both, name)
    changed = {option for option in beside if beside[option] != alone.get(option)}
    assert changed - CHANGED == PREFERENCES.keys()
    assert {option: beside[option] for option in PREFERENCES} == PREFERENCES
    assert (beside["hostname"], beside["port"], beside["hostkeyalias"]) == (made.kernels[1].address, "22", "sub1")


def test_what_a_session_says_about_ssh_decides_nothing_elsewhere(tmp_path: Path) -> None:
    config, empty = tmp_path / "config", tmp_path / "empty"
    config.write_text(rendered(plan({"agent1": 2})))
    empty.write_text("")
    elsewhere = settings(config, "git.example.com")
    assert elsewhere.pop("ignoreunknown") == "*"
    assert elsewhere == settings(empty, "git.example.com")


def test_containers_on_the_network_of_their_agent_are_known_by_name_only(tmp_path: Path) -> None:
    made = plan({"agent1": 2}, network_driver="host")
    config = tmp_path / "config"
    config.write_text(rendered(made))
    for kernel in made.kernels:
        found = settings(config, kernel.hostname)
        assert (found["port"], found["hostkeyalias"]) == (str(kernel.ssh_port), kernel.hostname)
        assert found["hostname"] == kernel.address
    assert settings(config, str(made.kernels[0].address))["port"] == "22"


def test_no_line_of_a_large_session_is_too_long_for_an_old_ssh(tmp_path: Path) -> None:
    made = plan({f"agent{number}": 16 for number in range(1, 65)})
    lines = rendered(made).splitlines()
    assert max(map(len, lines)) < 1023
    config = tmp_path / "config"
    config.write_text(rendered(made))
    assert settings(config, made.kernels[-1].hostname)["user"] == "work"


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kit that an agent would have that gets an archive of this machine's distribution."""
    return kit_programs.install(tmp_path_factory.mktemp("kit"))


@pytest.fixture
def image(tmp_path: Path, kit: Path) -> Image:
    """An image without an ssh of its own, in a session of one container."""
    tmp_path.chmod(0o755)
    made = Image(tmp_path / "root", kit)
    made.prepare()
    made.write("run/backendai/ssh/config", rendered(plan({"agent1": 1})), 0o644)
    made.write("usr/bin/ssh", (kit / "bin/ssh").read_text(), 0o755)
    return made


def failures(container: Container, monkeypatch: pytest.MonkeyPatch, *, chain: bool | None = None) -> list[str]:
    """Return what the check of logins finds; a chain of logins passes if nothing is found, or as ``chain`` says."""

    def run(_client: Any, _container: str, command: list[str], _seconds: int) -> str:
        return container.answer(*command)

    monkeypatch.setattr(ssh_check, "run_as_work", run)
    wait_until(container.listens)
    passed = ssh_check.chain_passes(ENGINE, "c", ["main1", "main1", "main1"])
    found = ssh_check.check_logins(ENGINE, "c", ["main1"]).failures
    assert passed is (not found if chain is None else chain)
    return list(found.values())


def test_a_login_works_whatever_an_image_says_about_ssh(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"    {option} {value}\n" for option, value in HOSTILE.items() if option != "KexAlgorithms"]
    image.write("etc/ssh/ssh_config", "".join(["Include /etc/ssh/ssh_config.d/*.conf\n", "Host *\n", *lines]))
    image.write("etc/ssh/ssh_config.d/mpi.conf", "Host *\n    Port 2223\n    UserKnownHostsFile /dev/null\n")
    image.write("home/work/.ssh/config", "Host *\n    Port 2224\n")
    os.chown(image.root / "home/work/.ssh", UID, UID)
    with image.running() as container:
        assert failures(container, monkeypatch) == []
        assert container.shell("ssh main1 hostname", check=False) == "main1\n"


@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "en_US.UTF-8", "LANG": "xx"},
        {"BASH_ENV": "/etc/noise"},
        {"LD_PRELOAD": "/nowhere/libgone.so"},
    ],
    ids=["locale", "start file", "preload"],
)
def test_what_shells_and_loaders_print_is_no_answer(
    image: Image, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    image.write("etc/noise", "echo main1; printf noise; echo 'more noise' >&2\n")
    noisy = '#!/bin/sh\n[ ! "$BASH_ENV" ] || . "$BASH_ENV"\necho "bash: warning: setlocale" >&2\nexec /bin/sh "$@"\n'
    image.write("bin/bash", noisy, 0o755)
    with image.running(**variables) as container:
        assert failures(container, monkeypatch) == []


@pytest.mark.parametrize(
    ("ssh", "failure"),
    [
        ("echo 'OpenSSL version mismatch' >&2; exit 255", "OpenSSL version mismatch"),
        ("exit 0", ""),
        ("exit 4", "it ends with exit code 4"),
    ],
    ids=["broken", "says nothing", "fails"],
)
def test_what_a_user_gets_is_what_is_checked(
    image: Image, monkeypatch: pytest.MonkeyPatch, ssh: str, failure: str
) -> None:
    image.write("usr/bin/ssh", f"#!/bin/sh\n{ssh}\n", 0o755)
    with image.running() as container:
        assert failures(container, monkeypatch) == ([failure] if failure else [])


def test_a_user_whose_path_has_no_ssh_has_that_of_the_kit(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    (image.root / "usr/bin/ssh").unlink()
    with image.running(PATH="/opt/conda/bin:/bin") as container:
        assert failures(container, monkeypatch, chain=False) == []


def test_a_login_that_leads_to_another_host_fails(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    with image.running() as container:
        monkeypatch.setattr(ssh_check, "_SCRIPT", ssh_check._SCRIPT.replace("-Fqx $1", "-Fqx sub1"))
        assert failures(container, monkeypatch, chain=True) == ["it ends with exit code 1"]


def test_variables_of_the_user_are_the_same_in_logins_apps_and_the_command(image: Image) -> None:
    given = {
        "HOSTNAME": "other",
        "LD_PRELOAD": "/nowhere/libgone.so",
        "NVIDIA_DRIVER_CAPABILITIES": "compute",
        "ODD": "a 'b' \"c\" $d `e` \\",
        "TMOUT": "600",
        "UID": "7",
        "XDG_CACHE_HOME": "/data/cache",
    }
    accepted = parse_environment(ValidationErrors(), "session_env", given)
    assert accepted == given
    show = "/bin/busybox env -0 > /tmp/{} && /bin/busybox mv /tmp/{} /tmp/{}-done; exec sleep 60"
    image.app("web", show.replace("{}", "app"))
    image.command(show.replace("{}", "command"))
    with image.running(**given) as container:
        seen = {"login": container.log_in("/bin/busybox", "env", "-0")}
        for name in ("app", "command"):
            file = image.root / f"tmp/{name}-done"
            wait_until(file.exists)
            seen[name] = file.read_text()
    for text in seen.values():
        variables = dict(entry.partition("=")[::2] for entry in text.split("\0"))
        assert {name: variables.get(name) for name in given} == given

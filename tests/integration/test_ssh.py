"""SSH inside sessions and into them: concurrent logins, the user's own key, persistence and secrecy of keys."""

from __future__ import annotations

import base64
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.containers import LOGIN, default_address
from tests.integration.internals import SESSIONS
from tests.integration.laboratory import AGENTS, BUSYBOX, Kernel, run_in, run_on, run_on_all, ssh
from tests.integration.session_requests import TWO
from tests.integration.sessions import StartedSession, started_session

pytestmark = pytest.mark.containers

KEYS = ("id_ed25519", "ssh_host_ed25519_key")
# With this memory, 64 logins may be unfinished at once.
PAIR = {**TWO, "image": BUSYBOX, "resources": {"cpu": 1, "mem": "512m"}}


def new_key(path: Path) -> str:
    """Create a key pair of a user and return the public key."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "user", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().strip()


@dataclass(frozen=True)
class UserKeySession:
    """A session with a user's own authorized key."""

    session: StartedSession
    key: Path

    @property
    def main(self) -> Kernel:
        """The container main1."""
        return self.session.kernels[0]

    def login(self, kernel: Kernel, key: Path) -> subprocess.CompletedProcess[str]:
        """Log in to a container from outside its session, through its agent, with the host key checked."""
        target = default_address(kernel["agent"], kernel["container"])
        known_hosts = key.with_name("known_hosts")
        known_hosts.write_text(run_in(self.main, "cat", "/home/work/.ssh/known_hosts"))
        proxy_command = shlex.join([*ssh(kernel["agent"], "")[:-1], "-W", f"{target}:22"])
        options = {
            "BatchMode": "yes",
            "HostKeyAlias": kernel["hostname"],
            "IdentitiesOnly": "yes",
            "ProxyCommand": proxy_command,
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(known_hosts),
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        line = ["ssh", "-F", "none", "-i", str(key), *words, f"work@{target}", "hostname; id -un"]
        return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def user_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserKeySession]:
    """Two busybox containers on two agents, created with -vvv, and a key of their user."""
    folder = tmp_path_factory.mktemp("user_session")
    with started_session(folder, "-vvv", **PAIR, authorized_keys=[new_key(folder / "user")]) as session:
        yield UserKeySession(session, folder / "user")


def test_64_concurrent_logins_succeed(user_session: UserKeySession) -> None:
    burst = "for one in $(seq 64); do (ssh sub1 hostname || echo refused) & done; wait"
    assert run_in(user_session.main, "sh", "-c", burst).split() == ["sub1"] * 64


def test_one_connection_carries_32_logins(user_session: UserKeySession) -> None:
    """Editors and Ansible share a connection, by default ten logins; a login that is refused opens no other here."""
    shared = "ssh -o ControlPath=shared -o ProxyCommand=false"
    burst = f"for one in $(seq 32); do {shared} sub1 'echo in; sleep 5' & done; wait"
    script = f"cd /tmp; ssh -o ControlPath=shared -MNf sub1; {burst}; {shared} -q -O exit sub1"
    assert run_in(user_session.main, "sh", "-c", script).split() == ["in"] * 32


def test_user_key_opens_the_other_containers(user_session: UserKeySession) -> None:
    """Editors log in to a sub through main1 (``ProxyJump``), with the key of their user."""
    process = user_session.login(user_session.session.kernels[1], user_session.key)
    assert (process.returncode, process.stdout.split()) == (0, ["sub1", "work"]), process.stderr


def identity(kernel: Kernel) -> dict[str, str]:
    """Return the identity of a container: its name, addresses, user key, and the keys of its peers."""
    return {
        "name": run_in(kernel, "hostname"),
        "addresses": run_in(kernel, "ip", "-o", "-4", "addr", "show", "dev", "cluster0"),
        "user key": run_in(kernel, "cat", "/home/work/.ssh/id_ed25519.pub"),
        "peers": run_in(kernel, "cat", "/home/work/.ssh/known_hosts", "/home/work/.ssh/authorized_keys"),
    }


def private_material(kernel: Kernel, session: str) -> list[str]:
    """Return the secret parts of both private keys of a container: their lines, and each key in Base64."""
    folder = f"{SESSIONS}/{session}/{kernel['hostname']}/ssh"
    keys = [base64.b64decode(run_on(kernel["agent"], f"base64 {folder}/{name}")) for name in KEYS]
    lines = [line.decode(errors="replace") for key in keys for line in key.splitlines()]
    secret = [line for line in lines if len(line) > 20 and not line.startswith("-----")]
    return [*secret, *(base64.b64encode(key).decode()[:-4] for key in keys)]


def test_private_keys_are_only_on_their_agent(user_session: UserKeySession) -> None:
    run = user_session.session.run
    ids = "docker ps --all --quiet"
    inspected = dict(zip(AGENTS, run_on_all(f'[ -z "$({ids})" ] || docker inspect $({ids})'), strict=True))
    public = {"the log of -vvv": run.output, **inspected}
    assert [place for place, text in public.items() if "PRIVATE KEY" in text] == []
    encoded_keys = set()
    for kernel in run.record["kernels"]:
        folder = f"{SESSIONS}/{run.record['id']}/{kernel['hostname']}/ssh"
        modes = run_on(kernel["agent"], f"stat -c '%a %U' {folder}/{KEYS[0]} {folder}/{KEYS[1]}").splitlines()
        assert modes == ["640 root", "640 root"], "in the container, its user reads them"
        assert run_on(kernel["agent"], f"stat -c '%a %U' {SESSIONS}").strip() == "700 root"
        assert run_in(kernel, "stat", "-L", "-c", "%a %U", "/home/work/.ssh/id_ed25519").split() == ["600", "work"]
        material = private_material(kernel, run.record["id"])
        assert [place for place, text in public.items() if any(part in text for part in material)] == []
        encoded_keys |= {material[-2], material[-1]}
    assert len(encoded_keys) == 4


def test_repaired_containers_keep_name_address_and_keys(user_session: UserKeySession) -> None:
    main, sub = user_session.session.kernels
    before = [identity(kernel) for kernel in (main, sub)]
    run_on(main["agent"], f"docker kill {main['container']}")
    run_on(sub["agent"], f"docker rm --force {sub['container']}")
    rerun = user_session.session.create_again()
    assert (rerun.code, rerun.record["status"]) == (0, "RUNNING"), rerun.output
    assert rerun.changed
    assert rerun.record["kernels"] == [main, sub]
    for kernel, expected in zip((main, sub), before, strict=True):
        after = identity(kernel)
        assert {**after, "addresses": ""} == {**expected, "addresses": ""}
        assert f"inet {kernel['address']}/" in after["addresses"]
    assert run_in(main, *LOGIN, "sub1", "hostname").strip() == "sub1"
    assert run_in(sub, *LOGIN, "main1", "hostname").strip() == "main1"

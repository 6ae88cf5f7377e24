"""SSH inside of sessions and into them: bursts, the user's own key, keys that stay what and where they are."""

from __future__ import annotations

import base64
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Sessions
from tests.integration.laboratory import AGENTS, BUSYBOX, Run, inside, on, ssh

PAIR = {
    "image": BUSYBOX,
    "cluster_mode": "multi-node",
    "cluster_size": 2,
    "agent_selection": "dispersed",
    "resources": {"cpu": 1, "mem": "256m"},
}
STORE = "/var/lib/backendai/sessions"

Kernel = dict[str, Any]


def new_key(path: Path) -> str:
    """Make a key pair of a user's own and return its public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "user", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().strip()


@dataclass(frozen=True)
class Opened:
    """A session that a user's own key opens, what made it, and that key."""

    made: Sessions
    run: Run
    key: Path

    @property
    def main(self) -> Kernel:
        """Its main1."""
        return dict(self.run.record["kernels"][0])

    def login(self, kernel: Kernel, key: Path) -> subprocess.CompletedProcess[str]:
        """Log in to a container from outside of its session, through its agent, with the host key checked."""
        inspect = "docker inspect --format '{{(index .NetworkSettings.Networks \"backendai-default\").IPAddress}}'"
        address = on(kernel["agent"], f"{inspect} {kernel['container']}").strip()
        known = key.with_name("known_hosts")
        known.write_text(inside(self.main, "cat", "/home/work/.ssh/known_hosts"))
        through = shlex.join([*ssh(kernel["agent"], "")[:-1], "-W", f"{address}:22"])
        options = {
            "BatchMode": "yes",
            "HostKeyAlias": kernel["hostname"],
            "IdentitiesOnly": "yes",
            "ProxyCommand": through,
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(known),
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        line = ["ssh", "-F", "none", "-i", str(key), *words, f"work@{address}", "hostname; id -un"]
        return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Two containers of nothing but busybox on two agents, and a key for main1; the run told all that it could."""
    folder = tmp_path_factory.mktemp("opened")
    made = Sessions(folder)
    try:
        run = made.create("-vvv", **PAIR, authorized_keys=[new_key(folder / "user")])
        assert run.code == 0, run.output
        yield Opened(made, run, folder / "user")
    finally:
        made.end()


def test_sixty_four_logins_at_once_all_succeed(opened: Opened) -> None:
    burst = "for one in $(seq 64); do (ssh sub1 hostname || echo refused) & done; wait"
    assert inside(opened.main, "sh", "-c", burst).split() == ["sub1"] * 64


def test_a_users_own_key_opens_main1(opened: Opened) -> None:
    done = opened.login(opened.main, opened.key)
    assert (done.returncode, done.stdout.split()) == (0, ["main1", "work"]), done.stderr


def test_a_users_own_key_opens_no_other_container(opened: Opened) -> None:
    done = opened.login(opened.run.record["kernels"][1], opened.key)
    assert (done.returncode, done.stdout) == (255, "")
    assert "Permission denied (publickey)" in done.stderr


def test_a_key_that_was_not_given_opens_nothing(opened: Opened, tmp_path: Path) -> None:
    new_key(tmp_path / "stranger")
    for kernel in opened.run.record["kernels"]:
        done = opened.login(kernel, tmp_path / "stranger")
        assert (done.returncode, done.stdout) == (255, "")
        assert "Permission denied (publickey)" in done.stderr


def identity(kernel: Kernel) -> dict[str, str]:
    """Return what a container is known by: its name, its addresses, its user key; its host key by its fingerprint."""
    return {
        "name": inside(kernel, "hostname"),
        "addresses": inside(kernel, "ip", "-o", "-4", "addr", "show", "dev", "cluster0"),
        "user key": inside(kernel, "cat", "/home/work/.ssh/id_ed25519.pub"),
        "peers": inside(kernel, "cat", "/home/work/.ssh/known_hosts", "/home/work/.ssh/authorized_keys"),
    }


def public_keys(kernel: Kernel, session: str) -> set[str]:
    """Return the public halves of all keys that a container knows of: users' and hosts'."""
    folder = f"{STORE}/{session}/{kernel['hostname']}/ssh"
    lines = on(kernel["agent"], f"cat {folder}/authorized_keys {folder}/known_hosts").splitlines()
    words = [line.split() for line in lines]
    return {line[line.index("ssh-ed25519") + 1] for line in words}


def test_two_sessions_share_no_key(opened: Opened, sessions: Sessions) -> None:
    other = sessions.create(**PAIR)
    assert other.code == 0, other.output
    one, two = (
        [public_keys(kernel, run.record["id"]) for kernel in run.record["kernels"]] for run in (opened.run, other)
    )
    # The first session's main1 knows of its user's key too.
    assert [len(keys) for keys in (*one, *two)] == [5, 4, 4, 4]
    assert one[1] < one[0]
    assert two[0] == two[1]
    assert not one[0] & two[0]


def private_material(kernel: Kernel, session: str) -> list[str]:
    """Return what must be nowhere else, of both private keys of a container: lines of them, and the whole encoded."""
    folder = f"{STORE}/{session}/{kernel['hostname']}/ssh"
    keys = [base64.b64decode(on(kernel["agent"], f"base64 {folder}/{name}")) for name in ("id_ed25519", "host_key")]
    lines = [line.decode(errors="replace") for key in keys for line in key.splitlines()]
    secret = [line for line in lines if len(line) > 20 and not line.startswith("-----")]
    return [*secret, *(base64.b64encode(key).decode()[:-4] for key in keys)]


def test_private_keys_are_on_their_agent_alone(opened: Opened) -> None:
    run = opened.run
    ids = "docker ps --all --quiet"
    inspected = {agent: on(agent, f'[ -z "$({ids})" ] || docker inspect $({ids})') for agent in AGENTS}
    everywhere = {"the log of -vvv": run.output, **inspected}
    assert [place for place, text in everywhere.items() if "PRIVATE KEY" in text] == []
    found = set()
    for kernel in run.record["kernels"]:
        folder = f"{STORE}/{run.record['id']}/{kernel['hostname']}/ssh"
        stated = on(kernel["agent"], f"stat -c '%a %U' {folder}/id_ed25519 {folder}/host_key").splitlines()
        assert stated == ["600 root", "600 root"]
        assert inside(kernel, "stat", "-c", "%a %U", "/home/work/.ssh/id_ed25519").split() == ["600", "work"]
        material = private_material(kernel, run.record["id"])
        assert [place for place, text in everywhere.items() if any(part in text for part in material)] == []
        found |= {material[-2], material[-1]}
    assert len(found) == 4


@pytest.mark.parametrize("end", ["docker kill", "docker rm --force"])
def test_a_container_that_was_repaired_is_known_by_the_same_name_address_and_keys(opened: Opened, end: str) -> None:
    main, sub = kernels = opened.run.record["kernels"]
    before = identity(sub)
    on(sub["agent"], f"{end} {sub['container']}")
    again = opened.made.create(**PAIR, authorized_keys=[opened.key.with_suffix(".pub").read_text().strip()])
    assert (again.code, again.record["status"]) == (0, "RUNNING"), again.output
    assert again.changed
    assert again.record["kernels"] == kernels
    after = identity(sub)
    assert {**after, "addresses": ""} == {**before, "addresses": ""}
    assert f"inet {sub['address']}/" in after["addresses"]
    assert inside(main, "ssh", "-o", "StrictHostKeyChecking=yes", "sub1", "hostname").strip() == "sub1"
    assert inside(sub, "ssh", "-o", "StrictHostKeyChecking=yes", "main1", "hostname").strip() == "main1"

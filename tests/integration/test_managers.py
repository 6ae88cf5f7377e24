"""The manager's account: its environment, its key, and the whole chain without a login of root on agents."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.containers import all_can_log_in
from tests.integration.internals import RECONCILE_AGENT, UNIT_SCHEDULER, session_link
from tests.integration.interruptions import kill_at_task
from tests.integration.inventories import UNREACHABLE, inventory_options
from tests.integration.laboratory import (
    AGENTS,
    PYTHON,
    address,
    agent_state,
    command,
    run_on,
    run_on_all,
    run_playbook,
)
from tests.integration.managers import (
    ACCESS_RULE,
    ACCOUNT,
    AUTHORIZED_KEYS,
    HOME,
    KEY,
    LIBRARY,
    MANAGER,
    SERVE,
    SETTINGS,
    play,
    provision,
    rotate,
    run_as,
)
from tests.integration.session_requests import THREE
from tests.integration.waiting import wait_until

pytestmark = [pytest.mark.managers, pytest.mark.provisioning]

#: A provisioning takes half a minute; what needs several is run by ``make soak``.
LONG = pytest.mark.long
HOSTS = (*AGENTS, "gateway1")
BACKUP = "/root/manager.tar.gz"
SCHEDULER_UNITS = f"find /etc/systemd/system -name '{UNIT_SCHEDULER}*'"


def accepted_keys() -> dict[str, list[str]]:
    """Return the keys that each host accepts for the account."""
    lines = dict(zip(HOSTS, run_on_all(f"cat {AUTHORIZED_KEYS}", HOSTS), strict=True))
    return {host: [line for line in text.splitlines() if not line.startswith("#")] for host, text in lines.items()}


def public_key() -> str:
    """Return the public half of the key that the account uses."""
    return " ".join(run_on(MANAGER, f"ssh-keygen -y -f {KEY}").split()[:2])


def accepted_line() -> str:
    """Return the line of authorized_keys that accepts the manager's key."""
    return f'restrict,from="{address(MANAGER)}" {public_key()} {ACCOUNT}@{MANAGER}'


def logins() -> list[str]:
    """Log in from manager1 to each host as the account does, and return the name that sudo gives there."""
    line = "; ".join(f"ssh -o BatchMode=yes {address(host)} sudo -n id -un" for host in HOSTS)
    return run_as(ACCOUNT, f"cd; {line}").split()


# ---- what is installed


def test_provisioning_again_in_check_mode_changes_nothing(tmp_path: Path) -> None:
    again = provision(tmp_path, "--check", "--diff")
    assert (again.code, again.changed) == (0, 0), again.output


def test_only_root_writes_what_the_account_runs() -> None:
    writable = run_on(MANAGER, f"find {LIBRARY}/ /usr/local/bin/backendai ! -type l \\( ! -user root -o -perm /022 \\)")
    assert writable == ""
    assert run_as("alice", f"{LIBRARY}/venv/bin/python -I -c 'import backendai_manager, rich'") == ""
    assert run_on(MANAGER, f"cd {LIBRARY}/collections/ansible_collections/backendai/cluster; ls").split() == [
        *("LICENSE", "galaxy.yml", "meta", "playbooks", "plugins", "roles"),
    ]


def test_the_key_and_the_queue_are_the_account_s_alone() -> None:
    shown = run_on(MANAGER, f"stat -c '%a %U %n' {HOME} {HOME}/queue {KEY} /run/backendai-manager {SETTINGS}/*.*")
    modes = {line.split()[2]: line.split()[:2] for line in shown.splitlines()}
    assert modes.pop(KEY) == ["600", ACCOUNT]
    for folder in (HOME, f"{HOME}/queue", "/run/backendai-manager"):
        assert modes.pop(folder) == ["700", ACCOUNT]
    assert set(modes) == {
        f"{SETTINGS}/{name}" for name in ("ansible.cfg", "inventory.yml", "manager.json", "policy.yml")
    }
    assert all(entry == ["640", "root"] for entry in modes.values())
    for path in (KEY, f"{SETTINGS}/inventory.yml"):
        assert "Permission denied" in run_as("alice", f"cat {path}", check=False)


def test_somebody_who_is_in_no_group_runs_nothing() -> None:
    answer = run_as("nobody", f"sudo -n -u {ACCOUNT} {SERVE} < /dev/null; echo ended with $?", check=False)
    assert "ended with 1" in answer
    assert "visudo" not in answer
    assert run_on(MANAGER, "visudo -c -q; echo $?").strip() == "0"


def test_the_rules_are_valid_for_sudo_and_for_sudo_rs() -> None:
    rules = run_on(MANAGER, "cat /etc/sudoers.d/backendai")
    # Beside sudo, on the host that has its package.
    run_on("agent3", "command -v visudo-rs > /dev/null || apt-get install --yes --no-install-recommends sudo-rs")
    for name, text in (("manager", rules), ("access", run_on("agent3", "cat /etc/sudoers.d/backendai-access"))):
        path = f"/run/rules-of-{name}"
        run_on("agent3", f"umask 277 && printf %s {shlex.quote(text)} > {path}")
        for program in ("visudo", "visudo-rs"):
            assert "parsed OK" in run_on("agent3", f"{program} -c -f {path} 2>&1"), program
        run_on("agent3", f"rm {path}")


# ---- the key


def test_hosts_accept_the_key_of_the_manager_and_no_other() -> None:
    assert accepted_keys() == {host: [accepted_line()] for host in HOSTS}
    assert logins() == ["root"] * len(HOSTS)


@LONG
def test_the_account_knows_the_keys_of_hosts_and_asks_nobody(tmp_path: Path) -> None:
    known = f"{HOME}/.ssh/known_hosts"
    lines = run_on(MANAGER, f"cat {known}").splitlines()
    keys = run_on_all("cut -d' ' -f1-2 /etc/ssh/ssh_host_ed25519_key.pub", HOSTS)
    assert lines == [f"{host},{address(host)} {key.strip()} {host}" for host, key in zip(HOSTS, keys, strict=True)]
    # What is known of a host that does not answer stays.
    silent = provision(tmp_path, *inventory_options(tmp_path, agent2=UNREACHABLE))
    assert silent.code == 0, silent.output
    after = run_on(MANAGER, f"cat {known}").splitlines()
    assert [line for line in after if line.endswith(" agent2")] == [line for line in lines if line.endswith(" agent2")]


def test_a_host_that_does_not_answer_stops_the_rotation_and_the_old_key_works(tmp_path: Path) -> None:
    before, accepted = public_key(), accepted_keys()
    stopped = rotate(tmp_path, *inventory_options(tmp_path, agent2=UNREACHABLE))
    assert stopped.code != 0
    assert public_key() == before
    assert logins() == ["root"] * len(HOSTS)
    # The next one would go on with the key that this one has made, which no host has been told of.
    run_on(MANAGER, f"rm {KEY}.new")
    assert accepted_keys() == accepted


@LONG
@pytest.mark.soak
def test_a_rotation_that_is_killed_leaves_a_key_that_works(rounds: Iterator[random.Random], tmp_path: Path) -> None:
    for rng in rounds:
        before = public_key()
        task = rng.choice(("Accept the keys of managers", "Use the new key from now on"))
        kill_at_task(f"backendai.cluster.manager : {task}", command("rotate_manager_key", tmp_path, {}))
        assert logins() == ["root"] * len(HOSTS)
        assert rotate(tmp_path).code == 0
        assert public_key() != before
        assert accepted_keys() == {host: [accepted_line()] for host in HOSTS}
        assert logins() == ["root"] * len(HOSTS)


# ---- sessions


@pytest.fixture
def record() -> Iterator[dict[str, Any]]:
    """A session over several agents that manager1 started; nothing of it is left afterwards."""
    before = agent_state()
    output, record = play("create_session", **THREE, image=PYTHON, name="managed", command="echo printed; sleep 1000")
    assert record["status"] == "RUNNING", output
    yield record
    play("terminate_session", name="managed")
    assert agent_state() == before
    assert play("list_sessions", report="list")[1] == []


def test_the_whole_chain_works_without_a_login_of_root(record: dict[str, Any]) -> None:
    assert len({kernel["agent"] for kernel in record["kernels"]}) > 1
    listed = play("list_sessions", report="list")[1]
    assert [(entry["id"], entry["status"]) for entry in listed] == [(record["id"], "RUNNING")]
    logs = play("session_logs", name="managed", report="logs")[1]
    assert "printed" in str(logs)
    assert "healthy" in play("verify_session", name="managed", report="report")[0]
    token = f"{HOME}/token"
    play("session_token", name="managed", token_path=token)
    assert run_on(MANAGER, f"stat -c %a {token}; rm {token}").strip() == "600"
    repaired = play("repair_session", name="managed")[1]
    assert repaired["kernels"] == record["kernels"]
    assert "failed=0" in play("schedule_sessions")[0]


@LONG
def test_a_manager_that_is_lost_is_restored_while_its_sessions_run(record: dict[str, Any], tmp_path: Path) -> None:
    run_on(MANAGER, f"tar --create --gzip --file {BACKUP} --directory / {SETTINGS[1:]} {HOME[1:]}")
    removed = provision(tmp_path, state="absent")
    assert removed.code == 0, removed.output
    again = provision(tmp_path, state="absent")
    assert (again.code, again.changed) == (0, 0), again.output
    run_on(MANAGER, f"userdel {ACCOUNT}; rm -r {HOME} {SETTINGS}")

    # Nobody needs it for what runs: containers reach each other, and an agent repairs what is lost.
    assert all_can_log_in(record["kernels"])
    agent, link = record["kernels"][-1]["agent"], session_link(record["id"])
    run_on(agent, f"ip link delete {link}; systemctl start {RECONCILE_AGENT}.service")
    wait_until(lambda: all_can_log_in(record["kernels"]))

    # A fresh manager has a key of its own, which no host accepts; the backup has the old one.
    fresh = provision(tmp_path)
    assert fresh.code == 0, fresh.output
    run_on(MANAGER, f"tar --extract --same-permissions --gzip --file {BACKUP} --directory /; rm {BACKUP}")
    settled = provision(tmp_path)
    assert settled.code == 0, settled.output
    assert logins() == ["root"] * len(HOSTS)
    listed = play("list_sessions", report="list")[1]
    assert [(entry["id"], entry["status"]) for entry in listed] == [(record["id"], "RUNNING")]
    assert play("repair_session", name="managed")[1]["kernels"] == record["kernels"]


# ---- options


@LONG
def test_the_timer_runs_as_the_account_and_is_optional(tmp_path: Path) -> None:
    try:
        installed = provision(tmp_path, timer=True, interval="52w")
        assert installed.code == 0, installed.output
        run_on(MANAGER, f"systemctl start {UNIT_SCHEDULER}.service")
        shown = run_on(MANAGER, f"systemctl show -P User -P Result {UNIT_SCHEDULER}.service").split()
        assert shown == [ACCOUNT, "success"]
    finally:
        removed = provision(tmp_path)
    assert removed.code == 0, removed.output
    assert run_on(MANAGER, SCHEDULER_UNITS) == ""


def test_all_invalid_options_are_reported_before_anything_is_installed(tmp_path: Path) -> None:
    cases: dict[str, tuple[object, str]] = {
        "account": ("root", "the name of an account of its own, of lower-case letters, digits, - and _"),
        "users_group": ("a b", "the name of a group, of lower-case letters, digits, - and _"),
        "inventory": ("/nowhere", "an inventory file or folder on the control node"),
        "policy": ("/nowhere", "a file on the control node, or empty"),
        "wheels": ("/nowhere", "a folder on the control node, or empty"),
        "runs_per_user": (40, "1 to manager_runs"),
        "orphan_after": (-1, "a number of seconds, or 0"),
    }
    refused = provision(tmp_path, **{option: value for option, (value, _expected) in cases.items()})
    assert (refused.changed, refused.code != 0) == (0, True)
    for option, (value, expected) in cases.items():
        assert f"manager_{option}: '{value}' must be {expected}." in refused.text.replace("''", "'")


@pytest.mark.parametrize(
    ("option", "text", "problem"),
    [
        ("inventory", "all: [", "manager_inventory: {path} cannot be read:"),
        pytest.param("policy", "images: 7\n", "images must be a list of patterns", marks=LONG),
    ],
)
def test_a_damaged_file_is_not_installed(tmp_path: Path, option: str, text: str, problem: str) -> None:
    path = tmp_path / f"{option}.yml"
    path.write_text(text)
    installed = run_on(MANAGER, f"sha256sum {SETTINGS}/*.*")
    refused = provision(tmp_path, **{option: str(path)})
    assert refused.code != 0
    assert problem.format(path=path) in refused.text
    assert run_on(MANAGER, f"sha256sum {SETTINGS}/*.*") == installed


@LONG
def test_a_folder_that_users_could_not_mount_is_named_while_managers_are_provisioned(tmp_path: Path) -> None:
    run_on("agent2", "mkdir -p /srv/home/alice && chown 2001 /srv/home")
    try:
        run = provision(tmp_path)
    finally:
        run_on("agent2", "rm -r /srv/home")
    assert run.code == 0, run.output
    assert "agent2: /srv/home/{user}: /srv/home belongs to user 2001, so that others than root decide" in run.text
    assert "give /srv/home to root and let nobody else write there" in run.text


def test_what_is_accepted_of_a_manager_that_does_not_answer_stays(tmp_path: Path) -> None:
    before = accepted_keys()
    options = inventory_options(tmp_path, manager1=UNREACHABLE)
    run = run_playbook("provision_gateways", tmp_path, {}, "--limit", "gateway1", *options)
    assert (run.code, run.changed) == (0, 0), run.output
    assert accepted_keys() == before


@LONG
def test_hosts_are_closed_and_opened_for_managers(tmp_path: Path) -> None:
    limit = ("--limit", "gateway1")
    closed = run_playbook("provision_gateways", tmp_path, {"manager_state": "absent"}, *limit)
    assert closed.code == 0, closed.output
    try:
        assert run_on("gateway1", f"ls {ACCESS_RULE} {AUTHORIZED_KEYS} 2> /dev/null", check=False) == ""
    finally:
        opened = run_playbook("provision_gateways", tmp_path, {}, *limit)
    assert opened.code == 0, opened.output
    assert logins() == ["root"] * len(HOSTS)

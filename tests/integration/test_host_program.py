"""The program on hosts: missing or corrupt, in two versions at once, over every kind of connection; secrets hidden."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ansible_settings import ROOT
from tests.integration.internals import MODULE_AGENT, PROGRAMS
from tests.integration.laboratory import AGENTS, BUSYBOX, INVENTORY, ansible, run_on, run_on_all, unwrapped
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.provisioning

AGENT = "agent1"
OPERATOR = "backendai-operator"
PASSWORD = "correct-horse-battery"
SECRET = "staple-of-the-horse"
#: The folder of the last program used, which is the one of this checkout after a task has run.
LAST_USED = f"$(ls -td {PROGRAMS}/*-*/ | head -1)"
SURVEY = json.dumps({"phase": "survey", "images": [], "paths": [], "keys_of": []})
#: In the output of a survey that has read the agent: one that has not says why.
READ = "error: null"
FIND_LEFTOVERS = "find / -xdev '(' -name 'ansible-tmp-*' -o -name '.new-*' -o -path '/tmp/backendai-*' ')' -print"


def run_survey(host: str = AGENT, *options: object, **settings: str) -> subprocess.CompletedProcess[str]:
    """Read an agent's facts with a single request to its program."""
    return ansible("ansible", "-i", INVENTORY, host, "-m", MODULE_AGENT, "-a", SURVEY, *options, **settings)


def assert_survey_succeeds(*options: object, **settings: str) -> None:
    """Read the agent's facts and check that this succeeds."""
    process = run_survey(AGENT, *options, **settings)
    assert process.returncode == 0, process.stdout + process.stderr
    assert f"{AGENT} | SUCCESS" in process.stdout
    assert READ in process.stdout


def test_a_corrupt_program_is_replaced() -> None:
    assert_survey_succeeds()
    folder = run_on(AGENT, f"echo {LAST_USED}").strip()
    run_on(AGENT, f"printf x | dd of={folder}program.pyz bs=1 seek=5000 conv=notrunc status=none")
    assert_survey_succeeds()
    # The first line is the digest of the rest.
    digest = "$(tail -n +2 program.pyz | sha256sum | cut -d ' ' -f 1)"
    first, second = run_on(AGENT, f"cd {folder} && head -1 program.pyz && echo {digest}").split()
    assert first == second


def test_read_only_folder_is_an_error_unless_the_program_is_present() -> None:
    assert_survey_succeeds()
    run_on(AGENT, f"mount --bind {PROGRAMS} {PROGRAMS} && mount -o remount,bind,ro {PROGRAMS}")
    try:
        assert_survey_succeeds()
    finally:
        run_on(AGENT, f"umount {PROGRAMS}")
    run_on(
        AGENT, f"mkdir /var/tmp/aside && mount --bind /var/tmp/aside {PROGRAMS} && mount -o remount,bind,ro {PROGRAMS}"
    )
    try:
        refused = run_survey()
    finally:
        run_on(AGENT, f"umount {PROGRAMS}; rmdir /var/tmp/aside")
    assert READ not in refused.stdout
    sentence = f"the program of this collection cannot be installed in {PROGRAMS}: [Errno 30] Read-only file system"
    assert sentence in unwrapped(refused.stdout + refused.stderr)
    assert "Traceback" not in refused.stdout


def test_check_mode_leaves_nothing_even_without_the_program() -> None:
    assert_survey_succeeds()
    look = f"{FIND_LEFTOVERS}; find {PROGRAMS} -printf '%P %s\\n' | sort"
    run_on(AGENT, f"rm -r {LAST_USED}")
    before = run_on(AGENT, look)
    assert_survey_succeeds("--check")
    assert run_on(AGENT, look) == before
    assert_survey_succeeds()


def test_without_pipelining_the_request_file_is_removed() -> None:
    before = run_on(AGENT, FIND_LEFTOVERS)
    assert_survey_succeeds(ANSIBLE_PIPELINING="0")
    assert run_on(AGENT, FIND_LEFTOVERS) == before


@pytest.fixture
def operator() -> Iterator[dict[str, Any]]:
    """A user of the agent that can become root with a password."""
    key = run_on(AGENT, "cat /root/.ssh/authorized_keys").strip()
    rule, home = f"{OPERATOR} ALL=(ALL) ALL", f"/home/{OPERATOR}"
    run_on(
        AGENT,
        f"useradd --create-home --shell /bin/bash {OPERATOR} && echo {OPERATOR}:{PASSWORD} | chpasswd"
        f" && install -d -m 700 -o {OPERATOR} {home}/.ssh && echo '{key}' > {home}/.ssh/authorized_keys"
        f" && chown {OPERATOR} {home}/.ssh/authorized_keys && mkdir -p /etc/sudoers.d"
        f" && echo '{rule}' > /etc/sudoers.d/{OPERATOR}",
    )
    try:
        yield {"ansible_user": OPERATOR, "ansible_become": True}
    finally:
        # userdel refuses a user whose processes have not ended yet.
        ended = f"for turn in $(seq 50); do pgrep -u {OPERATOR} > /dev/null || break; sleep 0.1; done"
        run_on(
            AGENT,
            f"pkill -KILL -u {OPERATOR}; {ended}; userdel --remove {OPERATOR}; rm /etc/sudoers.d/{OPERATOR}",
            check=False,
        )


@pytest.mark.parametrize("method", ["sudo", "su"])
@pytest.mark.parametrize("pipelining", ["1", "0"])
def test_become_root_with_a_password(operator: dict[str, Any], method: str, pipelining: str, tmp_path: Path) -> None:
    password_hash = run_on(AGENT, "getent shadow root | cut -d: -f2").strip()
    vars_file = tmp_path / "operator.json"
    vars_file.write_text(json.dumps({**operator, "ansible_become_method": method, "ansible_become_password": PASSWORD}))
    run_on(AGENT, f"echo root:{PASSWORD} | chpasswd")
    try:
        assert_survey_succeeds("-e", f"@{vars_file}", ANSIBLE_PIPELINING=pipelining)
        assert not run_on(AGENT, f"find /home/{OPERATOR}/.ansible/tmp -mindepth 1 2> /dev/null", check=False)
    finally:
        run_on(AGENT, f"usermod --password '{password_hash}' root")


def test_control_node_as_a_host() -> None:
    process = run_survey(
        "localhost", "--check", "-c", "local", "-e", "ansible_python_interpreter={{ ansible_playbook_python }}"
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "localhost | SUCCESS" in process.stdout


def test_two_versions_of_the_collection_use_the_same_hosts_at_once(sessions: Sessions, tmp_path: Path) -> None:
    other = tmp_path / "collections" / "ansible_collections" / "backendai" / "cluster"
    for name in ("meta", "playbooks", "plugins", "roles"):
        shutil.copytree(ROOT / name, other / name)
    galaxy = (ROOT / "galaxy.yml").read_text()
    (other / "galaxy.yml").write_text("".join(line for line in galaxy.splitlines(True) if "version:" not in line))
    with (other / "galaxy.yml").open("a") as manifest:
        manifest.write("version: 0.0.1\n")
    with (other / "plugins" / "module_utils" / "_model" / "errors.py").open("a") as module:
        module.write("\n# An older version.\n")
    assert_survey_succeeds()
    current = run_on_all(f"readlink {PROGRAMS}/current")
    programs_before = run_on_all(f"ls {PROGRAMS}")

    older = {"ANSIBLE_COLLECTIONS_PATH": str(other.parents[2])}
    extra_vars = {"session_name": f"{sessions.name}-older", "session_image": BUSYBOX, "session_cluster_size": 3}
    vars_file = tmp_path / "asked.json"
    vars_file.write_text(json.dumps({**extra_vars, "session_cluster_mode": "multi-node"}))
    play = partial(ansible, "ansible-playbook", "-i", INVENTORY, "-e", f"@{vars_file}", **older)
    with ThreadPoolExecutor(1) as pool:
        by_older = pool.submit(play, "backendai.cluster.create_session")
        created = sessions.create(cluster_size=3, cluster_mode="multi-node", image=BUSYBOX)
    assert created.code == 0, created.output
    assert by_older.result().returncode == 0, by_older.result().stdout
    assert run_on_all(f"readlink {PROGRAMS}/current") == current
    added = [
        set(now.split()) - set(before.split())
        for now, before in zip(run_on_all(f"ls {PROGRAMS}"), programs_before, strict=True)
    ]
    assert [len(programs) for programs in added] == [1] * len(AGENTS)

    # Each version terminates the other's session.
    with ThreadPoolExecutor(1) as pool:
        by_older = pool.submit(play, "backendai.cluster.terminate_session", "-e", f"session_name={sessions.name}")
        ended = sessions.terminate(name=extra_vars["session_name"])
    assert ended.code == 0, ended.output
    assert by_older.result().returncode == 0, by_older.result().stdout
    run_on_all("; ".join(f"rm -r {PROGRAMS}/{name}" for name in set.union(*added)), check=False)


def test_output_contains_no_secret(sessions: Sessions, tmp_path: Path) -> None:
    """Without pipelining, when requests are in files, too."""
    script = f"export TOKEN={SECRET}-script"
    extra_vars = {
        "session_name": sessions.name,
        "session_image": BUSYBOX,
        "session_cluster_size": 2,
        "session_env": {"TOKEN": SECRET},
        "session_bootstrap_script": script,
        "session_registries": {"registry.example.com": {"username": "reader", "password": f"{SECRET}-registry"}},
    }
    vars_file = tmp_path / "asked.json"
    vars_file.write_text(json.dumps(extra_vars))
    for name in ("create_session", "create_session", "verify_session", "terminate_session"):
        line = (
            "ansible-playbook",
            "-i",
            INVENTORY,
            f"backendai.cluster.{name}",
            "-e",
            f"@{vars_file}",
            "-vvvv",
            "--diff",
        )
        process = ansible(*line, ANSIBLE_PIPELINING="0")
        assert process.returncode == 0, process.stdout
        assert SECRET not in process.stdout + process.stderr

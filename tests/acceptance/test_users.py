"""People on a manager: alice and bob, who have the command ``backendai`` and nothing else, and carol, an operator."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.hosts import containers, runs
from tests.integration.laboratory import address, run_on, run_on_all
from tests.integration.managers import ACCOUNT, KEY, LIBRARY, MANAGER, QUEUE, SERVE, log_in_with, run_as
from tests.integration.user_command import SMALL, Answer, backendai, create, shell

NAME = "of-alice"


@pytest.fixture(scope="module")
def hers() -> Iterator[dict[str, Any]]:
    """A session of alice with two containers and her own folder; each user of the policy has one on each agent."""
    homes = "for user in alice bob; do install -d -m 1777 /srv/home/$user; echo $user > /srv/home/$user/whose; done"
    run_on_all(f"{homes}; install -d -m 1777 /srv/data; echo of all > /srv/data/whose")
    yield create("alice", NAME, "--size", "2", "--mount", "home", "--mount", "data")
    ended = backendai("alice", "end", NAME)
    run_on_all("rm -r /srv/home /srv/data")
    assert ended.code == 0, ended
    assert containers(NAME) == {}
    assert NAME not in shell("alice", "cat .ssh/backendai_config").output


def test_a_user_creates_lists_and_enters_a_session_by_one_command(hers: dict[str, Any]) -> None:
    found = containers(NAME)
    assert sorted(found) == ["main1", "sub1"]
    assert {container["HostConfig"]["Memory"] for container in found.values()} == {128 << 20}
    listed = backendai("alice", "list")
    (row,) = [line.split() for line in listed.output.splitlines() if line.startswith(NAME)]
    assert row[1:4] == ["RUNNING", "2", "2/0"]
    hosts = [backendai("alice", "ssh", NAME, *host, "--", "hostname").output for host in ([], ["sub1"])]
    assert hosts == ["main1", "sub1"]
    by_name = [shell("alice", f"ssh {host} hostname") for host in (NAME, f"sub1.{NAME}")]
    assert [answer.output for answer in by_name] == ["main1", "sub1"], by_name
    assert hers["user"] in backendai("alice", "show", NAME).output


def test_a_user_s_folder_is_the_user_s(hers: dict[str, Any]) -> None:
    assert hers["status"] == "RUNNING"
    assert backendai("alice", "ssh", NAME, "--", "cat home/whose").output == "alice"
    (agent,) = {container["agent"] for container in containers(NAME).values()}
    assert backendai("alice", "ssh", NAME, "sub1", "--", "echo mine > home/mine; hostname").output == "sub1"
    assert run_on(agent, "cat /srv/home/alice/mine; ls /srv/home/bob").split() == ["mine", "whose"]
    # Files are those of the user's account.
    assert run_on(agent, "stat -c %u /srv/home/alice/mine") == run_on(MANAGER, "id -u alice")
    written = backendai("alice", "ssh", NAME, "--", "cat /data/whose; touch /data/mine")
    assert (written.code != 0, written.output) == (True, "of all")
    assert run_on(agent, "ls /srv/data").split() == ["whose"]


def test_others_neither_see_nor_end_it(hers: dict[str, Any]) -> None:
    before = {name: runs(container) for name, container in containers(NAME).items()}
    assert backendai("bob", "list", "--json").json == []
    asked = [
        ("show", NAME),
        ("why", NAME),
        ("logs", NAME),
        ("logs", "-f", NAME),
        ("ssh", NAME),
        ("open", NAME),
        ("repair", NAME),
        ("end", "--force", NAME),
        ("end", hers["id"]),
    ]
    for words in asked:
        refused = backendai("bob", *words)
        assert (refused.code, refused.output) == (2, ""), (words, refused)
        assert f"there is no session {words[-1]} of yours" in refused.errors
    taken = backendai("bob", "create", "--name", NAME, *SMALL)
    assert taken.code == 2
    assert "is taken by another user's session; choose another name." in taken.errors
    assert {name: runs(container) for name, container in containers(NAME).items()} == before
    (seen,) = [each for each in backendai("bob", "list", "--all", "--json").json if each["name"] == NAME]
    assert (seen["user"], seen["status"], seen["host_keys"], seen["network"]) == ("alice", "RUNNING", None, None)
    # Operators see all of it.
    assert NAME in {record["name"] for record in backendai("carol", "list", "--all", "--json").json}
    assert backendai("carol", "logs", NAME).code == 0


REFUSED = {
    "image": (["--image", "elsewhere/python:1"], "elsewhere/python:1"),
    "folder": (["--mount", "secrets"], "secrets"),
    "group": (["--set", "resource_group=others"], "others"),
    "priority": (["--set", "priority=90"], "priority"),
    "driver": (["--set", "network_driver=host"], "network_driver"),
    "user": (["--set", "user=bob"], "user"),
}


@pytest.mark.usefixtures("hers")
def test_the_policy_says_what_a_user_may_have() -> None:
    def check(kind: str, refused: Answer, named: str) -> None:
        assert (refused.code, refused.output) == (2, ""), (kind, refused)
        assert named in refused.errors, (kind, refused)
        assert len(refused.errors.strip().splitlines()) <= 2, (kind, refused)
        assert containers(f"no-{kind}") == {}

    for kind, (words, named) in REFUSED.items():
        check(kind, backendai("alice", "create", "--name", f"no-{kind}", *SMALL, *words), named)
    # Its other image is allowed.
    roles = "roles: {main: {}, sub: {image: elsewhere/python:1}}"
    create_with_roles = shlex.join(["backendai", "create", "roles.yml", "--name", "no-role", *SMALL])
    check("role", shell("alice", f"echo '{roles}' > roles.yml; {create_with_roles}"), "elsewhere/python:1")
    more = backendai("alice", "create", "--name", "no-more", *SMALL, "--size", "1023")
    assert more.code != 0
    assert "max_containers: 1023 containers are requested, and alice has 2 of 1024" in more.errors
    assert [each["name"] for each in backendai("alice", "list", "--json").json] == [NAME]


def test_a_user_gets_no_further_than_the_command() -> None:
    sudo = f"sudo -n -u {ACCOUNT}"
    own = (f"cat {KEY}", f"ls {QUEUE}", f"echo > {LIBRARY}/serve")
    for line in (*own, f"{sudo} cat {KEY}", f"{sudo} sh -c id", "sudo -n id"):
        answer = shell("alice", f"{line} < /dev/null")
        assert answer.code != 0, (line, answer)
        assert "PRIVATE KEY" not in answer.output
        assert f"({ACCOUNT})" not in answer.output
    # Nor do variables of the user reach the program that runs as the account.
    for variables in ("LD_PRELOAD=/home/alice/own.so", "PYTHONPATH=/tmp", "-E"):
        line = f"{sudo} {variables} {SERVE}"
        answer = shell("alice", f"{line} < /dev/null")
        assert (answer.code, "sudo: sorry, you are not allowed to " in answer.errors) == (1, True), (line, answer)
    logins = [
        run_as("alice", f"ssh -o BatchMode=yes {host} true; echo ended with $?", check=False)
        for host in ("agent1", "gateway1")
    ]
    assert ["ended with 255" in text for text in logins] == [True, True]
    assert run_on(MANAGER, f"stat -c '%a %U' {KEY}").split() == ["600", ACCOUNT]


def test_the_key_of_a_manager_opens_nothing_from_elsewhere(tmp_path: Path) -> None:
    """The machine may connect to hosts, but it is not the manager."""
    stolen = tmp_path / "key"
    stolen.touch(mode=0o600)
    stolen.write_text(run_on(MANAGER, f"cat {KEY}"))
    assert "Permission denied (publickey" in log_in_with(stolen)
    own = run_as(ACCOUNT, f"cd; ssh -o BatchMode=yes {address('agent1')} hostname", check=False)
    assert own == "agent1\n"


def test_a_job_s_output_and_exit_code_are_there_after_its_end() -> None:
    command = "for number in 1 2 3; do echo step $number; done; exit 4"
    followed = backendai("alice", "create", "--name", "job", *SMALL, "--command", command, "--follow")
    assert followed.code == 1, followed
    assert "its command has ended with 4" in followed.errors
    assert [line.rpartition("step ")[2] for line in followed.output.splitlines() if "step" in line] == ["1", "2", "3"]
    backendai("alice", "end", "job")
    assert containers("job") == {}
    kept = backendai("alice", "logs", "job")
    assert [line.rpartition("step ")[2] for line in kept.output.splitlines() if "step" in line] == ["1", "2", "3"]
    assert backendai("bob", "logs", "job").code == 2

"""The command ``backendai`` on manager1: what alice does all day, and that bob gets at none of it."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
from typing import Any

import pytest

from tests.integration.laboratory import PYTHON, TIMEOUT, run_in, run_on, ssh
from tests.integration.managers import ACCOUNT, HOME, MANAGER, SERVE, run_as
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.managers

SMALL = ("--image", PYTHON, "--cpu", "1", "--mem", "128m")
RUNTIME = "/run/backendai-manager"
SEPARATOR = "---- standard error"


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a command has printed, and its exit code."""

    code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        """The output as data."""
        return json.loads(self.output)


def shell(user: str, line: str) -> Answer:
    """Run a shell line on manager1, in the home of one of its users."""
    script = f"cd; {{ {line}; }} 2> .errors; code=$?; echo; echo $code; echo '{SEPARATOR}'; cat .errors; rm -f .errors"
    output, errors = run_as(user, script).split(f"{SEPARATOR}\n")
    output, code = output.rstrip("\n").rsplit("\n", 1)
    return Answer(int(code), output.rstrip("\n"), errors)


def backendai(user: str, *words: str) -> Answer:
    """Run the command as a user."""
    return shell(user, shlex.join(["backendai", *words]))


def create(user: str, name: str, *words: str) -> Any:
    """Create a session, and return its record."""
    answer = backendai(user, "create", "--name", name, *SMALL, "--json", *words)
    assert answer.code == 0, answer
    return answer.json


def names(user: str, *words: str) -> set[str]:
    """Return the names in the list that a user sees."""
    return {record["name"] for record in backendai(user, "list", "--json", *words).json}


def ask(user: str, line: str) -> Answer:
    """Send a line to the manager's part without the user's part, and wait for the result."""
    # Its input stays open: the end of it cancels.
    serve = f"sudo -n -u {ACCOUNT} {SERVE} < .input & exec 3> .input"
    send = f"printf '%s\\n' {shlex.quote(line)} >&3; wait $!; exec 3>&-; rm .input"
    return shell(user, f"rm -f .input; mkfifo .input; {serve}; {send}")


def result_of(answer: Answer) -> dict[str, Any]:
    """Return the result, the last line of the manager's part."""
    found: dict[str, Any] = json.loads(answer.output.splitlines()[-1])
    return found


def test_a_session_is_its_owners_from_its_creation_to_its_end(sessions: Sessions) -> None:
    record = create("alice", sessions.name, "--size", "2")
    assert (record["user"], record["uid"], record["status"]) == ("alice", 2001, "RUNNING")
    assert [backendai("alice", "ssh", sessions.name, *host, "--", "hostname").output for host in ([], ["sub1"])] == [
        "main1",
        "sub1",
    ]
    assert names("alice") == {sessions.name}
    assert "It runs." in backendai("alice", "why", sessions.name).output

    # Of somebody else's session there is one sentence, whatever one asks, by name or by id.
    assert names("bob") == set()
    for word in (sessions.name, record["id"]):
        for verb in (
            ["show"],
            ["why"],
            ["logs"],
            ["logs", "-f"],
            ["ssh"],
            ["open"],
            ["end"],
            ["end", "--force"],
            ["repair"],
        ):
            refused = backendai("bob", verb[0], word, *verb[1:])
            assert (refused.code, refused.output) == (2, ""), (verb, refused)
            assert f"there is no session {word} of yours" in refused.errors
    taken = backendai("bob", "create", "--name", sessions.name, *SMALL, "--size", "2")
    assert taken.code == 2
    assert f"name: {sessions.name!r} is taken by another user's session; choose another name." in taken.errors
    (seen,) = [entry for entry in backendai("bob", "list", "--all", "--json").json if entry["name"] == sessions.name]
    assert (seen["user"], seen["status"], seen["host_keys"], seen["network"]) == ("alice", "RUNNING", None, None)

    # Operators see and end all of them.
    assert sessions.name in names("carol", "--all")
    assert backendai("carol", "logs", sessions.name).code == 0
    assert backendai("alice", "end", sessions.name).code == 0
    assert names("alice") == set()


def test_what_a_user_gives_is_no_template_and_no_path(sessions: Sessions) -> None:
    proof = "/var/tmp/backendai-proof"
    lookup = "{{ lookup('pipe', 'touch " + proof + "') }}"
    fields = ("name", "image", "command", "bootstrap_script", "stop_command", "resource_group", "architecture")
    for options in (
        dict.fromkeys(fields, lookup),
        {"name": sessions.name, "image": PYTHON, lookup: lookup},
        {"name": sessions.name, "image": PYTHON, "env": {lookup: lookup}},
        {"name": sessions.name, "image": PYTHON, "apps": [{"name": lookup, "command": lookup}]},
        {"name": sessions.name, "image": PYTHON, "mounts": ["../../etc"]},
        {"name": sessions.name, "image": PYTHON, "mounts": [{"source": "/etc", "target": "/x"}]},
        {"name": sessions.name, "image": PYTHON, "user": "bob"},
        {"name": sessions.name, "image": PYTHON, "uid": 0},
        {"name": sessions.name, "image": PYTHON, "hosts_template": "/etc/shadow"},
        {"name": sessions.name, "image": PYTHON, "record_path": f"{HOME}/.ssh/authorized_keys"},
    ):
        answer = result_of(ask("alice", json.dumps({"verb": "create", "options": options})))
        assert answer["result"] == "refused", answer
    created = ask(
        "alice",
        json.dumps(
            {
                "verb": "create",
                "options": {
                    "name": sessions.name,
                    "image": PYTHON,
                    "env": {"WORD": lookup},
                    "resources": {"mem": "128m"},
                },
            }
        ),
    )
    assert result_of(created)["result"] in ("done", "failed")
    assert run_on(MANAGER, f"ls {proof}", check=False).endswith("No such file or directory\n")
    backendai("alice", "end", sessions.name)


def test_sudo_is_no_way_to_anything_else() -> None:
    sudo = f"sudo -n -u {ACCOUNT}"
    for line in (
        f"{sudo} sh -c id",
        f"{sudo} {SERVE} --help",
        f"{sudo} cat {HOME}/.ssh/id_ed25519",
        f"sudo -n {SERVE}",
        f"sudo -n -u bob {SERVE}",
        f"{sudo} SUDO_UID=0 {SERVE}",
        f"{sudo} -E PYTHONPATH=/home/alice {SERVE}",
    ):
        answer = shell("alice", f"{line} < /dev/null")
        assert answer.code != 0, (line, answer)
        assert "PRIVATE KEY" not in answer.output
        assert '"result": "done"' not in answer.output
    # What the environment, the folder and Python's start-up files say is not heard.
    files = "echo '[defaults]' > ansible.cfg; echo 'raise SystemExit(9)' | tee sitecustomize.py json.py > rich.py"
    evil = f"mkdir -p evil; cd evil; {files}"
    surroundings = "export SUDO_UID=2002 PYTHONPATH=$PWD PYTHONSTARTUP=$PWD/json.py ANSIBLE_CONFIG=$PWD/ansible.cfg"
    answer = shell("alice", f"{evil}; {surroundings}; backendai list --json; cd; rm -rf evil")
    assert (answer.code, answer.output) == (0, "[]"), answer


def test_bad_requests_are_one_sentence() -> None:
    for line, sentence in (
        ("\x01\x02", "the request is not a line of JSON in UTF-8."),
        ('{"verb": "reboot"}', "the request has none of the verbs"),
        ('{"verb": "end", "session": "../../etc/passwd"}', "end: session must be the name or the id of a session"),
        ('{"verb": "list", "user": "bob"}', "list has no field 'user'"),
    ):
        answer = result_of(ask("alice", line))
        assert (answer["result"], sentence in answer["message"]) == ("refused", True), answer
    huge = shell("alice", f"{{ head -c 2000000 /dev/zero; sleep 5; }} | sudo -n -u {ACCOUNT} {SERVE}")
    assert "the request is larger than 1048576 bytes" in result_of(huge)["message"]
    slow = shell("alice", f"sleep 15 | sudo -n -u {ACCOUNT} {SERVE}")
    assert "no request arrived within 10 seconds" in result_of(slow)["message"]
    spec = shell(
        "alice",
        "rm -f fifo huge; mkfifo fifo; truncate -s 1G huge; backendai create fifo; backendai create huge; rm fifo huge",
    )
    assert spec.errors.splitlines() == [
        "backendai: fifo cannot be read: it is not a regular file.",
        "backendai: huge cannot be read: it is larger than 1048576 bytes.",
    ]


@pytest.mark.parametrize("ending", ["INT", "KILL"])
def test_a_creation_that_is_stopped_leaves_nothing(sessions: Sessions, ending: str) -> None:
    line = shlex.join(["backendai", "create", "--name", sessions.name, *SMALL, "--size", "2"])
    command, *words = ssh(MANAGER, shlex.join(["runuser", "--user", "alice", "--", "sh", "-c", f"cd; exec {line}"]))
    process = subprocess.Popen([command, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    queue = f"grep -l {sessions.name} {HOME}/queue/*.json"
    wait_until(lambda: "json" in run_on(MANAGER, queue, check=False).replace("No such file", ""), seconds=120)
    run_on(MANAGER, f"pkill -{ending} --uid alice --full 'create --name {sessions.name}'")
    output = process.communicate(timeout=TIMEOUT)[0]
    if ending == "INT":
        assert "cancelled; nothing is left." in output
    wait_until(lambda: run_on(MANAGER, f"pgrep --full {SERVE}", check=False) == "", seconds=180)
    assert names("alice") == set()
    assert run_on(MANAGER, f"ls -d {RUNTIME}/run-*", check=False).endswith("No such file or directory\n")


def test_followed_logs_end_with_the_session_and_so_does_the_command(sessions: Sessions) -> None:
    command = "for number in 1 2 3; do echo step $number; sleep 1; done; exit 4"
    answer = backendai("alice", "create", "--name", sessions.name, *SMALL, "--command", command, "--follow")
    assert answer.code == 1
    assert [line.rpartition(" ")[2] for line in answer.output.splitlines() if "step" in line][-1] == "3"
    assert "its command has ended with 4" in answer.errors
    backendai("alice", "end", sessions.name)


def test_ssh_and_scp_use_the_configuration_that_is_written(sessions: Sessions) -> None:
    record = create("alice", sessions.name, "--size", "2")
    assert backendai("alice", "ssh-config").code == 0
    config = "-F .ssh/backendai_config"
    copied = shell(
        "alice", f"echo hello > file; scp {config} file {sessions.name}:file && ssh {config} {sessions.name} cat file"
    )
    assert (copied.code, copied.output) == (0, "hello"), copied
    jumped = shell("alice", f"ssh {config} sub1.{sessions.name} hostname")
    assert (jumped.code, jumped.output) == (0, "sub1"), jumped
    # Another host at that address and port is not trusted.
    known = f"sed -i 's/AAAA[^ ]*/AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43}/' .ssh/backendai_known_hosts"
    assert shell("alice", f"{known}; ssh {config} {sessions.name} hostname").code == 255
    assert run_in(record["kernels"][0], "cat", "/home/work/file") == "hello\n"
    backendai("alice", "end", sessions.name)

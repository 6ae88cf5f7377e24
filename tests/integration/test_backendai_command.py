"""The command ``backendai`` on manager1: what alice does all day, and that bob gets at none of it."""

from __future__ import annotations

import base64
import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.laboratory import PYTHON, TIMEOUT, address, run_in, run_on, ssh
from tests.integration.managers import ACCOUNT, HOME, MANAGER, SERVE
from tests.integration.sessions import Sessions
from tests.integration.user_command import SMALL, Answer, backendai, connection, create, shell
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.managers

#: The SSH connections of manager1 to hosts.
OUTGOING = "ss -Htn state established '( dport = :22 )'"
RUNTIME = "/run/backendai-manager"
POLICY = "/etc/backendai/policy.yml"
REFUSED = "your account has expired, is locked, or is not valid: ask an operator."


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
        f"{sudo} sh",
        f"{sudo} -s",
        f"{sudo} cat {HOME}/.ssh/id_ed25519",
        f"{sudo} {SERVE} --help",
        f"{sudo} {SERVE}/../serve ''",
        f"{sudo} SUDO_UID=0 {SERVE}",
        f"{sudo} PYTHONPATH=/tmp {SERVE}",
        f"{sudo} -E {SERVE}",
        f"{sudo} -E PYTHONPATH=/home/alice {SERVE}",
        f"sudo -n {SERVE}",
        f"sudo -n -u bob {SERVE}",
        f"sudoedit -n -u {ACCOUNT} {SERVE}",
    ):
        answer = shell("alice", f"{line} < /dev/null")
        assert answer.code == 1, (line, answer)
        assert "sudo" in answer.errors
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


@pytest.fixture
def one_session() -> Iterator[None]:
    """Let each user have one session, and one that waits."""
    run_on(MANAGER, f"cp -p {POLICY} {POLICY}.test && printf 'max_sessions: 1\\nmax_waiting: 1\\n' >> {POLICY}")
    yield
    run_on(MANAGER, f"mv {POLICY}.test {POLICY}")


@pytest.mark.usefixtures("one_session")
def test_who_has_enough_gets_no_more_and_others_do(sessions: Sessions) -> None:
    too_large = ("--cpu", "64", "--image", PYTHON, "--mem", "128m", "--wait-for-hosts")
    waits = backendai("alice", "create", "--name", f"{sessions.name}-w", *too_large)
    assert (waits.code, "waits" in waits.output + waits.errors) == (0, True), waits
    early = shell("alice", f"ssh {sessions.name}-w true")
    assert (early.code, f"{sessions.name}-w is PENDING; it can be entered once it runs." in early.errors) == (255, True)
    second = backendai("alice", "create", "--name", f"{sessions.name}-x", *too_large)
    assert second.code != 0
    assert "max_waiting: alice has 1 of 1 sessions that wait; end one, or wait until one starts." in second.errors
    create("alice", sessions.name)
    third = backendai("alice", "create", "--name", f"{sessions.name}-y", *SMALL)
    assert third.code != 0
    assert "max_sessions: alice has 1 of 1 sessions; end one." in third.errors
    assert names("alice") == {sessions.name, f"{sessions.name}-w"}
    create("bob", f"{sessions.name}-b")
    for user, name in (("alice", sessions.name), ("alice", f"{sessions.name}-w"), ("bob", f"{sessions.name}-b")):
        assert backendai(user, "end", name).code == 0


def test_what_fits_on_no_empty_cluster_is_refused(sessions: Sessions) -> None:
    never = backendai("alice", "create", "--name", sessions.name, "--cpu", "64", "--image", PYTHON, "--mem", "128m")
    assert (never.code, never.output) == (2, ""), never
    assert "it does not fit even on an empty cluster; --wait-for-hosts lets it wait" in never.errors


def test_a_user_sees_what_may_be_had(sessions: Sessions) -> None:
    before = backendai("alice", "limits", "--json").json["held"]
    record = create("alice", sessions.name, "--set", "max_lifetime=12h")
    limits = backendai("alice", "limits", "--json").json
    assert (limits["images"], [group["resource_group"] for group in limits["free"]]) == (["lab/*"], ["default"])
    assert (limits["held"]["running"], limits["held"]["containers"]) == (
        before["running"] + 1,
        before["containers"] + 1,
    )
    assert "lab/*" in backendai("alice", "limits").output
    first, since, end, *_rest = backendai("alice", "why", sessions.name).output.splitlines()
    assert first == f"{sessions.name} is RUNNING."
    assert (since[:15], end[:22]) == ("It has run for ", "Its time is up in 11h5")
    run_in(record["kernels"][0], "setsid", "-f", "timeout", "60", "sh", "-c", "while :; do :; done")

    def cores_in_use() -> float:
        shown = backendai("alice", "show", sessions.name).output.splitlines()
        assert "  each container  cpu 1, mem 128 MiB" in shown
        (used,) = (re.fullmatch(r"  used now        (\d\.\d+) of 1 core", line) for line in shown if "used now" in line)
        assert used
        return float(used[1])

    # The machine may be busy with other things.
    wait_until(lambda: cores_in_use() > 0.3, seconds=50)
    assert "RAN" in backendai("alice", "list", "--history").output.splitlines()[0].split()
    assert " GiB" in backendai("alice", "agents").output
    wrong = backendai("alice", "create", "--name", "wrong", *SMALL, "--set", "max_lifetime=7 weeks")
    assert (wrong.code, wrong.output) == (2, ""), wrong
    assert "max_lifetime: '7 weeks' must be whole seconds, or a time such as " in wrong.errors


def test_a_user_learns_what_a_session_lacks_and_that_the_timer_does_not_run(sessions: Sessions) -> None:
    made = backendai("alice", "create", "--name", sessions.name, *SMALL, "--size", "2")
    assert (made.code, "No folder that can be written is among mounts: " in made.errors) == (0, True), made
    assert "Resources are of one container: 2 × (cpu 1, mem 128m) = cpu 2, mem 256m in all." in made.errors
    # The lab has no timer: this is the note of one elsewhere.
    note = f"{HOME}/queue/.timer"
    run_on(MANAGER, f"echo elsewhere 60 > {note}; chown {ACCOUNT} {note}; touch --date '3 hours ago' {note}")
    try:
        listed = backendai("alice", "list")
    finally:
        run_on(MANAGER, f"rm {note}")
    assert "warning: the last good run of the timer was 3h ago: sessions that wait do not start" in listed.errors
    assert "systemctl status backendai-schedule.service on elsewhere says why." in listed.errors
    assert "timer" not in backendai("alice", "list").errors


def await_creation(name: str) -> None:
    """Wait until a session is in the queue of the manager: it is being created."""
    wait_until(lambda: run_on(MANAGER, f"grep -sl {name} {HOME}/queue/*.json", check=False) != "", seconds=120)


def check_nothing_is_left() -> None:
    """Check that the manager's part has ended, and that neither it nor alice's session has left anything."""
    wait_until(lambda: run_on(MANAGER, f"pgrep --full {SERVE}", check=False) == "", seconds=180)
    assert names("alice") == set()
    assert run_on(MANAGER, f"ls -d {RUNTIME}/run-*", check=False).endswith("No such file or directory\n")


@pytest.mark.parametrize("ending", ["INT", "KILL"])
def test_a_creation_that_is_stopped_leaves_nothing(sessions: Sessions, ending: str) -> None:
    line = shlex.join(["backendai", "create", "--name", sessions.name, *SMALL, "--size", "2"])
    command, *words = ssh(MANAGER, shlex.join(["runuser", "--user", "alice", "--", "sh", "-c", f"cd; exec {line}"]))
    process = subprocess.Popen([command, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    await_creation(sessions.name)
    run_on(MANAGER, f"pkill -{ending} --uid alice --full 'create --name {sessions.name}'")
    output = process.communicate(timeout=TIMEOUT)[0]
    if ending == "INT":
        assert "cancelled; nothing is left." in output
    check_nothing_is_left()


@pytest.fixture
def checking_port() -> Iterator[str]:
    """An sshd that asks its clients each second whether they are there; its port."""
    port, file = "2222", "/run/sshd-checking.pid"
    settings = f"-p {port} -o PidFile={file} -o ClientAliveInterval=1 -o ClientAliveCountMax=2"
    listening = f"ss --no-header --listening --tcp --numeric 'sport = :{port}'"
    run_on(MANAGER, f"/usr/sbin/sshd {settings}")
    # It listens after it has left its terminal.
    wait_until(lambda: run_on(MANAGER, listening))
    yield port
    run_on(MANAGER, f"kill $(cat {file})")
    wait_until(lambda: not run_on(MANAGER, listening))


# With a terminal, what changes on it keeps sshd from asking.
@pytest.mark.parametrize(("options", "loss"), [((), "killed"), (("-tt",), "killed"), ((), "silent")])
def test_a_creation_over_a_connection_that_is_lost_leaves_nothing(
    sessions: Sessions, checking_port: str, options: tuple[str, ...], loss: str
) -> None:
    # sshd needs some seconds to notice it.
    create_slowly = shlex.join(["backendai", "create", "slow.yml", "--name", sessions.name, *SMALL, "--size", "2"])
    line = f"echo 'bootstrap_script: sleep 20' > slow.yml && {create_slowly}"
    known = ["-o", f"HostKeyAlias={address(MANAGER)}", "-p", checking_port]
    process = subprocess.Popen(
        connection("alice", line, *known, *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await_creation(sessions.name)
        if loss == "silent":
            process.send_signal(signal.SIGSTOP)
        else:
            run_on(MANAGER, "pkill -KILL --uid alice --exact sshd")
        check_nothing_is_left()
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT)


@pytest.mark.parametrize("state", ["expired", "locked"])
def test_an_account_that_may_not_be_used_is_refused(state: str) -> None:
    lock = {"expired": "--expiredate 2020-01-01", "locked": "--lock --expiredate 1"}[state]
    before = run_on(MANAGER, "getent shadow alice | cut -d: -f2").strip()
    run_on(MANAGER, f"usermod {lock} alice")
    try:
        for words in (["list"], ["create", "--name", "t1", *SMALL], ["list", "--cached"]):
            answer = backendai("alice", *words)
            assert (answer.code, answer.output) == (2, "")
            assert answer.errors == f"backendai: {REFUSED}\n"
        assert backendai("bob", "list").code == 0
    finally:
        run_on(MANAGER, f"usermod --expiredate '' --password '{before}' alice")
    assert backendai("alice", "list").code == 0


def test_followers_share_one_connection_to_each_agent_and_run_no_playbook(sessions: Sessions) -> None:
    command = "while :; do echo step; sleep 0.2; done"
    record = create("alice", sessions.name, "--size", "2", "--command", command)
    agents = {kernel["agent"] for kernel in record["kernels"]}
    line = shlex.join(["backendai", "logs", "-f", sessions.name])
    followers = [
        subprocess.Popen(connection(user, line), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for user in ("alice", "alice", "carol")
    ]
    try:
        for follower in followers:
            assert follower.stdout
            while "main1: " not in follower.stdout.readline():
                assert follower.poll() is None
        running = run_on(MANAGER, f"ps -u {ACCOUNT} -o args")
        assert len([line for line in running.splitlines() if "-I" in line and SERVE in line]) == len(followers)
        assert "ansible" not in running
        # Whatever a user asks, it is through that user's one connection to that host.
        connections = [line.split()[3] for line in run_on(MANAGER, OUTGOING).splitlines()]
        shared = run_on(MANAGER, f"find {RUNTIME}/ssh -type s")
        assert len(connections) <= len(shared.splitlines())
        assert {f"{RUNTIME}/ssh/{uid}/" in shared for uid in (2001, 2003)} == {True}
        assert {f"{address(agent)}:22" for agent in agents} <= set(connections)
        # They go with the user's part.
        followers[0].kill()
        remaining = f"pgrep --full --uid {ACCOUNT} {SERVE} | wc -l"
        wait_until(lambda: run_on(MANAGER, remaining).strip() == str(len(followers) - 1), seconds=30)
        assert backendai("alice", "end", sessions.name).code == 0
        for follower in followers[1:]:
            assert follower.wait(60) == 0
    finally:
        for follower in followers:
            follower.kill()
            follower.communicate(timeout=TIMEOUT)


def test_the_key_of_a_token_is_admitted(sessions: Sessions) -> None:
    # A well-formed key that nobody has.
    fields = (b"sk-ssh-ed25519@openssh.com", bytes(range(32)), b"ssh:")
    body = base64.b64encode(b"".join(len(field).to_bytes(4, "big") + field for field in fields)).decode()
    key = f"{fields[0].decode()} {body}"
    assert shell("alice", f"echo '{key} token' > token.pub").code == 0
    main1 = create("alice", sessions.name, "--key", "token.pub")["kernels"][0]
    assert key in run_in(main1, "cat", "/home/work/.ssh/authorized_keys").splitlines()
    assert shell("alice", "rm token.pub").code == 0


def test_ssh_scp_sftp_and_forwarded_ports_use_the_configuration_that_is_written(sessions: Sessions) -> None:
    record = create("alice", sessions.name, "--size", "2")
    name = sessions.name
    copied = shell("alice", f"echo hello > file; scp file {name}:file && ssh {name} cat file")
    assert (copied.code, copied.output) == (0, "hello"), copied
    assert shell("alice", "head -n 1 .ssh/config").output == "Include backendai_config"
    # An address that has changed is asked for.
    stale = shell("alice", f'sed -i \'s/"port": [0-9]*/"port": 1/\' .ssh/backendai_config; ssh {name} hostname')
    assert (stale.code, stale.output) == (0, "main1"), stale
    # Those of other sessions, which nobody has used since, are as they were made.
    assert '"port": 1,' not in shell("alice", f"grep {record['id']} .ssh/backendai_config").output
    link = backendai("alice", "code", name).output
    assert link.startswith("vscode://vscode-remote/ssh-remote+work@"), link
    assert backendai("alice", "ssh-config").code == 0
    config = "-F .ssh/backendai_config"
    jumped = shell("alice", f"ssh {config} sub1.{sessions.name} hostname")
    assert (jumped.code, jumped.output) == (0, "sub1"), jumped
    sent = shell("alice", f"echo put file sent | sftp -b - {config} sub1.{sessions.name}")
    assert sent.code == 0, sent
    # As an editor on a laptop does: a server in a container, on its loopback, through a forwarded port.
    main, sub = record["kernels"]
    serve = "nohup python3 -m http.server 8123 --bind 127.0.0.1 > /dev/null 2>&1 &"
    forward = f"ssh {config} -f -o ExitOnForwardFailure=yes -L 18123:localhost:8123 sub1.{sessions.name} sleep 5"
    fetch = "python3 -c 'import urllib.request as r; print(r.urlopen(\"http://localhost:18123/sent\").read().decode())'"
    run_in(sub, "sh", "-c", f"cd /home/work; {serve}")
    through = shell("alice", f"{forward} > /dev/null 2>&1; {fetch}")
    assert through.output.strip() == "hello", through
    # Another host at that address and port is not trusted.
    known = f"sed -i 's/AAAA[^ ]*/AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43}/' .ssh/backendai_known_hosts"
    assert shell("alice", f"{known}; ssh {config} {sessions.name} hostname").code == 255
    assert run_in(main, "cat", "/home/work/file") == "hello\n"
    backendai("alice", "end", sessions.name)
    assert record["id"] not in shell("alice", "cat .ssh/backendai_config .ssh/backendai_known_hosts").output

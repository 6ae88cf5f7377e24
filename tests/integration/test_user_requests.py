"""Sessions of users: what they give is data, and nothing in their containers becomes root."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.laboratory import AGENTS, BUSYBOX, PYTHON, Kernel, run_in, run_on
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.containers

AGENT = AGENTS[0]
SETUID = "test/setuid:1"
LOOKUP = "{{ lookup('pipe', 'touch %s') }}"

#: The effective user of a setuid program of root in the image, and the capabilities of the process that starts it.
PROBE = (
    "as-root -c 'import os; print(os.geteuid(), end=\" \")';"
    " sed -n 's/^Cap\\(Inh\\|Prm\\|Bnd\\):.//p' /proc/self/status | tr '\\n' ' '"
)
#: The last is the bounding set: NET_RAW and SYS_NICE, which nobody can get.
GAINS_NOTHING = re.compile(r"1000 0{16} 0{16} 0000000000802000\b")


@pytest.fixture
def image() -> Iterator[str]:
    """Make an image with a setuid program that runs anything as root; remove it at the end."""
    make = "cp /usr/bin/python3 /usr/local/bin/as-root && chmod 4755 /usr/local/bin/as-root"
    run_on(AGENT, f"docker run --name test-setuid {PYTHON} sh -c '{make}'")
    health = "--change 'HEALTHCHECK --interval=1s CMD id > /tmp/health'"
    run_on(AGENT, f"docker commit --change 'CMD [\"bash\"]' {health} test-setuid {SETUID} && docker rm test-setuid")
    yield SETUID
    run_on(AGENT, f"docker rmi {SETUID}")


def check_nothing_is_gained(printed: str) -> None:
    assert GAINS_NOTHING.search(printed), printed


def check_everywhere(main1: Kernel) -> None:
    """Check the bootstrap script, the command, the app, a login and one with a terminal."""
    files = [f"/tmp/{name}" for name in ("bootstrap", "command", "app")]
    wait_until(lambda: all(run_in(main1, "sh", "-c", f"grep -c ' $' {path} || :").strip() == "1" for path in files))
    for path in files:
        check_nothing_is_gained(run_in(main1, "cat", path))
    check_nothing_is_gained(run_in(main1, "ssh", "sub1", PROBE))
    with_terminal = run_in(main1, "ssh", "-tt", "sub1", f"tty; stat -c %U $(tty); {PROBE}")
    check_nothing_is_gained(with_terminal)
    assert with_terminal.splitlines()[0].startswith("/dev/pts/")
    assert with_terminal.splitlines()[1] == "work"


def test_a_users_request_is_data_and_a_setuid_program_gains_nothing(
    image: str, sessions: Sessions, tmp_path: Path
) -> None:
    sessions.limit_to(AGENT)
    ran, given = tmp_path / "ran", tmp_path / "request.json"
    text = LOOKUP % ran
    request = {
        "session_roles": {"main": {}, "sub": {}, "box": {"image": BUSYBOX}},
        "session_resources": {"cpu": 1, "mem": "128m"},
        # The loader would write a file for each program, as the user who runs it.
        "session_env": {"TEXT": text, "LD_DEBUG": "statistics", "LD_DEBUG_OUTPUT": "/tmp/loaded"},
        "session_bootstrap_script": f"({PROBE}) > /tmp/bootstrap\nexport BOOT='{text.replace(chr(39), chr(34))}'\n",
        "session_command": f"({PROBE}) > /tmp/command; sleep 100000 # {text}",
        "session_apps": ["terminal", {"name": "probe", "port": 8000, "command": f"({PROBE}) > /tmp/app; sleep 100000"}],
    }
    given.write_text(json.dumps(request))
    user = {"user": "alice", "user_uid": 2001}
    run = sessions.run("create_session", name=sessions.name, image=image, request_path=str(given), **user)
    assert run.code == 0, run.output
    assert (run.record["status"], run.record["user"], run.record["uid"]) == ("RUNNING", "alice", 2001)
    kernels = {kernel["hostname"]: kernel for kernel in run.record["kernels"]}
    listed = sessions.list_by_name()[sessions.name]
    assert (listed["uid"], listed["host_keys"]) == (2001, run.record["host_keys"])
    main1 = kernels["main1"]
    for hostname, key in run.record["host_keys"].items():
        assert f"{hostname},{kernels[hostname]['address']} {key}" in run_in(main1, "cat", "/home/work/.ssh/known_hosts")

    printed = run_in(main1, "sh", "-lc", 'echo "$TEXT"; echo "$BOOT"')
    assert printed.splitlines() == [text, text.replace("'", '"')]
    assert not ran.exists()

    check_everywhere(main1)
    assert {*run_in(main1, "sh", "-c", "stat -c %U /tmp/loaded.*").split()} == {"work"}
    # The health check of the image would be run beside the session, without its environment.
    assert "health" not in run_in(main1, "ls", "/tmp").split()
    run_in(main1, "sh", "-c", "echo sent > /tmp/sent && scp -q /tmp/sent box1:/tmp/got")
    assert run_in(main1, "ssh", "box1", "cat /tmp/got").strip() == "sent"
    # This image has no group tty.
    assert run_in(main1, "ssh", "-tt", "box1", "tty").startswith("/dev/pts/")
    page = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:7681/').status)"
    assert run_in(main1, "python3", "-c", page).strip() == "200"

    sub1 = kernels["sub1"]
    run_in(sub1, "rm", "/tmp/bootstrap")
    run_on(AGENT, f"docker restart --time 10 {sub1['container']}")
    wait_until(lambda: GAINS_NOTHING.search(run_in(sub1, "cat", "/tmp/bootstrap", check=False)))
    check_nothing_is_gained(run_in(sub1, "cat", "/tmp/bootstrap"))
    wait_until(lambda: GAINS_NOTHING.search(run_in(main1, "ssh", "sub1", PROBE, check=False)))
    check_nothing_is_gained(run_in(main1, "ssh", "sub1", PROBE))

    other = sessions.run("create_session", name=sessions.name, image=image, user="bob", user_uid=2002)
    assert other.code != 0
    assert "is taken by another user's session; choose another name." in " ".join(other.output.split())

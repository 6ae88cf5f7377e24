"""The first process of a container: what it starts, what ends it, and what an image cannot do to it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from pathlib import Path
from threading import Thread

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.command_ends import await_ends
from tests.unit.kit import kit_programs
from tests.unit.kit.container import LOGIN, UID, Container, Image, wait_until

# By its path, because the shell of busybox has a sleep of its own, which is no process called so.
FOREVER = "while :; do /bin/sleep 0.1; done"

APP = f"echo begins; {FOREVER}"
KILL_SSHD = "kill $(grep -lx sshd /proc/[0-9]*/comm | cut -d / -f 3)"


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kit that an agent would have that gets an archive of this machine's distribution."""
    return kit_programs.install(tmp_path_factory.mktemp("kit"))


@pytest.fixture
def image(tmp_path: Path, kit: Path) -> Image:
    """An image with nothing but busybox."""
    tmp_path.chmod(0o755)
    made = Image(tmp_path / "root", kit)
    made.prepare()
    return made


def owners(container: Container) -> set[tuple[str, ...]]:
    """Return users, groups and capabilities of all processes of a container."""
    kinds = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs")
    return {tuple(status[kind] for kind in kinds) for status in container.processes().values()}


def assert_serves(container: Container, *, begun: int = 1) -> None:
    """Wait until a login works, and the app has begun so many times."""
    wait_until(lambda: container.log_in("echo in", check=False).endswith("in\n"))
    log = container.root / "var/log/backendai/web.log"
    wait_until(lambda: log.read_text().count("begins\n") == begun)


def test_nothing_of_the_user_begins_before_the_gate_is_open(image: Image) -> None:
    image.write("run/backendai/bootstrap", "echo bootstrap began; export BOOT=yes\n")
    with image.started("/bin/sh", "-c", "echo image began") as container:
        time.sleep(0.3)
        assert (container.log, list((image.root / "home/work").iterdir())) == ("", [])
        assert container.named(".*") == [1]
        container.open_gate()
        wait_until(lambda: "image began" in container.log and "own command" in container.log)
        assert container.log.startswith("bootstrap began\nimage began\n")
        assert container.log_in("echo $BOOT; exit") == "yes\n"


def test_a_gate_that_is_closed_without_a_word_lets_nothing_begin_and_the_stop_signal_ends_it(image: Image) -> None:
    image.command("echo begins")
    with image.started() as container:
        for _turn in range(3):
            os.close(os.open(image.root / "run/backendai/gate", os.O_WRONLY))
        time.sleep(0.2)
        assert container.named("entrypoint") == [1]
        assert container.stop() == 143
        assert (container.log, (image.root / "home/work/.ssh").exists()) == ("", False)


def test_all_processes_are_of_user_work_and_have_no_capability(image: Image) -> None:
    image.app("web", APP)
    with image.running() as container:
        assert_serves(container)
        ids, none = "\t".join([str(UID)] * 4), "0" * 16
        assert container.run(LOGIN[0], "-tt", *LOGIN[1:], "tty").startswith("/dev/pts/")
        assert owners(container) == {(ids, ids, "", none, none, none, none, "1")}


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("cd /home/work; exec sh -c 'kill -TERM $$'", 143)])
def test_the_container_ends_with_the_exit_code_of_the_command(image: Image, command: str, code: int) -> None:
    image.command(command)
    with image.started() as container:
        container.open_gate()
        assert container.end() == code, container.log


def test_a_command_may_be_as_long_as_a_request(image: Image) -> None:
    long = "".join(f": {'x' * 1000}\n" for _line in range(256))
    image.command(f"{long}exit 9\n")
    with image.started() as container:
        container.open_gate()
        assert container.end() == 9, container.log


def test_an_app_and_the_stop_command_may_be_as_long_as_a_request(image: Image) -> None:
    long = "".join(f": {'x' * 1000}\n" for _line in range(256))
    image.app("web", f"{long}{APP}")
    image.write("run/backendai/stop-command", f"{long}echo stops\n")
    with image.running() as container:
        assert_serves(container)
        assert container.stop() == 143
        assert container.log.endswith("stops\n")


def test_the_container_says_the_exit_code_and_goes_on_alone_until_its_output_is_kept(image: Image) -> None:
    image.app("web", APP)
    image.command(f"({FOREVER}) & echo last words; exit 7")
    wake = os.open(image.root / "run/backendai/wake", os.O_RDONLY | os.O_NONBLOCK)
    with image.running() as container:
        assert os.read(wake, 9) == b"\n" if select.select([wake], [], [], 20)[0] else not container.log
        assert (image.root / "var/lib/backendai/exit-code").read_text() == "7\n"
        time.sleep(0.5)
        assert (container.log, container.named(".*")) == ("last words\n", [1])
        (image.root / "run/backendai/kept").touch()
        assert container.process.wait(2) == 7
    assert os.read(wake, 9) == b""
    os.close(wake)


def test_a_container_that_waits_for_the_agent_ends_at_the_stop_signal_with_the_code_it_has(
    image: Image,
) -> None:
    image.command("exit 7")
    with image.running() as container:
        wait_until((image.root / "var/lib/backendai/exit-code").exists)
        began = time.monotonic()
        assert container.stop() == 7
        assert time.monotonic() - began < 1


@pytest.mark.parametrize("left", ["mkfifo exit-code", "ln -s /etc/passwd exit-code", "mkdir exit-code", "rm exit"])
def test_nothing_that_a_command_leaves_in_its_folder_keeps_the_exit_code_from_being_said(
    image: Image, left: str
) -> None:
    image.command(f"cd /var/lib/backendai; /bin/busybox {left}; exit 7")
    with image.running() as container:
        wait_until(lambda: container.named(".*") == [1] and (image.root / "var/lib/backendai/exit-code").is_file())
        assert container.end() == 7


def test_a_container_whose_folder_takes_no_file_ends_at_once(image: Image) -> None:
    image.command("cd /var/lib/backendai; /bin/busybox chmod 500 .; exit 7")
    with image.started() as container:
        container.open_gate()
        assert container.process.wait(10) == 7


@pytest.mark.parametrize("ends", ["exit 7", "killed"])
def test_the_agent_notices_the_end_of_a_command_and_of_a_first_process_within_a_second(
    image: Image, tmp_path: Path, ends: str
) -> None:
    for folder, target in (("session/main1", "run/backendai"), ("homes/main1/own", "var/lib/backendai")):
        (tmp_path / folder).parent.mkdir(parents=True)
        (tmp_path / folder).symlink_to(image.root / target)
    image.command(f"until [ -e /tmp/end ]; do /bin/sleep 0.1; done; {ends}")
    noticed: list[str] = []
    with image.running() as container:
        waiting = Thread(target=lambda: noticed.extend(await_ends(tmp_path / "session", tmp_path / "homes")))
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
        if ends == "killed":
            os.kill(container.pid, signal.SIGKILL)
        else:
            (image.root / "tmp/end").touch()
        waiting.join(1)
        assert noticed == ["main1"]


@pytest.mark.parametrize(
    ("kill", "begun"), [("kill -9 -1", 2), ("kill -TERM 1 -1", 2), (KILL_SSHD, 1)], ids=["KILL", "TERM", "sshd"]
)
def test_signals_to_everything_end_neither_the_container_nor_later_logins(image: Image, kill: str, begun: int) -> None:
    image.app("web", APP)
    with image.running() as container:
        assert_serves(container)
        before = container.named("sshd")
        container.shell(kill, check=False)
        assert_serves(container, begun=begun)
        assert not {*before} & {*container.named("sshd")}
        assert 1 in container.processes()
        wait_until(lambda: not [True for status in container.processes().values() if status["State"].startswith("Z")])


@pytest.mark.parametrize(("kill", "code"), [("kill -9 -1", 137), ("kill -TERM 1 -1", 143)], ids=["KILL", "TERM"])
def test_a_command_that_a_login_kills_ends_with_its_signal(image: Image, kill: str, code: int) -> None:
    image.command(f"echo begins; {FOREVER}")
    with image.running() as container:
        wait_until(lambda: "begins" in container.log)
        container.log_in(kill, check=False)
        assert container.end() == code, container.log


def test_processes_whose_parents_have_ended_leave_no_zombies(image: Image) -> None:
    with image.running() as container:
        container.shell("for n in 1 2 3 4 5 6; do (/bin/sleep 0.8 > /dev/null 2>&1 &) ; done")
        wait_until(lambda: container.named("sleep"))
        wait_until(lambda: not container.named("sleep"))
        assert container.process.poll() is None


@pytest.mark.parametrize(("command", "code"), [("", 143), ("trap 'exit 5' TERM; " + FOREVER, 5)], ids=["none", "own"])
def test_the_stop_signal_ends_everything_with_the_code_of_the_command(image: Image, command: str, code: int) -> None:
    image.app("web", f"trap 'echo saved; exit' TERM; {APP}")
    if command:
        image.command(command)
    with image.running() as container:
        assert_serves(container)
        wait_until(lambda: not command or (image.root / "var/lib/backendai/image.pid").exists())
        began = time.monotonic()
        assert container.stop() == code, container.log
        assert time.monotonic() - began < 2
        assert (image.root / "var/log/backendai/web.log").read_text().endswith("saved\n")


def test_a_stop_lets_a_job_print_through_a_pipe_until_it_ends(image: Image) -> None:
    image.command(f"(trap 'sleep 0.2; echo last words; exit' TERM; echo begins; {FOREVER}) | cat")
    with image.running() as container:
        wait_until(lambda: "begins" in container.log)
        assert container.stop() == 143, container.log
        assert container.log.endswith("last words\n")


def test_a_stopped_process_and_a_login_shell_end_with_the_container(image: Image) -> None:
    image.write("run/backendai/grace", "2\n")
    image.command("trap 'exit 4' TERM; echo begins; kill -STOP $$; " + FOREVER)
    with image.running() as container:
        wait_until(lambda: any(status["State"].startswith("T") for status in container.processes().values()))
        container.shell("(/bin/sleep 1000 | /opt/backendai/bin/ssh -tt -o BatchMode=yes main1 &) > /dev/null 2>&1")
        wait_until(lambda: [True for status in container.processes().values() if status["Name"] == "sh"])
        assert container.stop() == 4, container.log


def test_the_stop_command_runs_first_and_its_failure_is_said(image: Image) -> None:
    image.app("web", APP)
    image.write("run/backendai/stop-command", "pwd; grep -qsx sshd /proc/*/comm && echo sshd runs; exit 6")
    with image.running() as container:
        assert_serves(container)
        assert container.stop() == 143
        assert container.log.splitlines()[-3:] == [
            "/home/work",
            "sshd runs",
            "backendai: session_stop_command ended with exit code 6.",
        ]


def test_the_stop_command_has_two_thirds_of_the_grace(image: Image) -> None:
    image.write("run/backendai/grace", "1\n")
    image.write("run/backendai/stop-command", "echo saving; sleep 8; echo saved")
    image.command("echo begins; " + FOREVER)
    with image.running() as container:
        wait_until(lambda: "begins" in container.log)
        assert container.stop() == 143
        assert "saving\n" in container.log
        assert "backendai: session_stop_command ended with exit code 137." in container.log
        assert "saved\n" not in container.log


def test_a_stop_command_that_ends_within_two_thirds_of_the_grace_is_let_end(image: Image) -> None:
    image.write("run/backendai/grace", "9\n")
    image.write("run/backendai/stop-command", "echo saving; sleep 4.5; echo saved")
    image.command("echo begins; " + FOREVER)
    with image.running() as container:
        wait_until(lambda: "begins" in container.log)
        assert container.stop() == 143
        assert "saving\nsaved\n" in container.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_other_signals_from_outside_do_not_end_it(image: Image, number: int) -> None:
    image.command("trap 'echo got it' HUP USR1; echo begins; " + FOREVER)
    with image.running() as container:
        wait_until(lambda: "begins" in container.log)
        os.kill(container.pid, number)
        wait_until(lambda: number == signal.SIGTERM or "got it" in container.log)
        assert container.process.poll() is None


def test_the_images_own_command_that_wants_root_fails_with_a_line(image: Image) -> None:
    image.write("entry", "#!/bin/sh\necho 1 > /etc/mine || exit 3\n", 0o755)
    with image.running("/entry") as container:
        wait_until(lambda: "own command" in container.log)
        line = "backendai: the image's own command (/entry) ended with exit code 3. It was user work, not root."
        assert f"{line} The container goes on." in container.log
        assert container.log_in("id -un") == "work\n"


def test_files_that_cannot_be_installed_end_it_with_a_reason(image: Image) -> None:
    (image.root / "home/work/.ssh").write_text("a file")
    with image.started() as container:
        container.open_gate()
        assert container.process.wait(20) == 1
        assert (
            "backendai: the session's files could not be installed in /home/work/.ssh; the line above" in container.log
        )


def test_links_of_an_earlier_start_are_replaced(image: Image) -> None:
    secret = image.root / "tmp/elsewhere"
    secret.mkdir()
    (image.root / "home/work/.ssh").symlink_to("/tmp/elsewhere")
    for name in ("environment", "hostfile", "services"):
        (image.root / "var/lib/backendai" / name).symlink_to("/etc/passwd")
    with image.running() as container:
        assert container.log_in("echo in") == "in\n"
        assert list(secret.iterdir()) == []


SSH_FILES = ["authorized_keys", "config", "id_ed25519", "id_ed25519.pub", "known_hosts"]


def test_no_key_is_in_an_image_that_is_made_of_a_container_whose_home_is_the_images_own(image: Image) -> None:
    own, kept = image.root / "home/work/.ssh", image.root / "var/lib/backendai/ssh"
    own.mkdir()
    (own / "id_ed25519").write_text("that of an earlier session")
    (own / "mine").write_text("of the image")
    for path in (own, *own.iterdir()):
        os.chown(path, UID, UID)
    with image.running() as container:
        assert sorted(path.name for path in own.iterdir()) == [*SSH_FILES, "mine"]
        assert [(own / name).readlink() for name in SSH_FILES] == [
            Path("/var/lib/backendai/ssh") / name for name in SSH_FILES
        ]
        assert (kept / "id_ed25519").read_bytes() == (image.root / "run/backendai/ssh/id_ed25519").read_bytes()
        assert ((kept / "id_ed25519").stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o600, 0o700)
        assert container.log_in("cat ~/.ssh/id_ed25519.pub") == (kept / "id_ed25519.pub").read_text()


def test_keys_are_files_in_a_home_that_is_mounted(image: Image) -> None:
    home = image.root / "home/work"
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"uid={UID},gid={UID}", "none", home], check=True)
    try:
        with image.running() as container:
            assert container.log_in("echo in") == "in\n"
            assert [(home / ".ssh" / name).is_symlink() for name in SSH_FILES] == [False] * len(SSH_FILES)
    finally:
        subprocess.run(["umount", home], check=True)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 0", ""),
        ("exec true", "session_bootstrap_script ended before the environment was created."),
        ("false; exit 5", "the session's environment could not be created: exit code 5."),
    ],
)
def test_a_bootstrap_script_that_fails_ends_it_with_a_reason(image: Image, script: str, reason: str) -> None:
    image.write("run/backendai/bootstrap", script)
    with image.started() as container:
        container.open_gate()
        wait_until(lambda: container.is_ready or container.process.poll() is not None)
        assert container.process.poll() == (1 if reason else None)
        assert container.log == (f"backendai: {reason}\n" if reason else "")


def test_a_missing_program_of_an_app_is_named(image: Image) -> None:
    image.write("run/backendai/programs", "sh terminal\njupyter-lab jupyter\n")
    with image.started() as container:
        container.open_gate()
        assert container.process.wait(20) == 1
        assert (
            "backendai: session_apps: jupyter needs the program jupyter-lab, which main1 does not have" in container.log
        )


def test_a_hostile_image_does_not_keep_it_from_starting(image: Image) -> None:
    image.app("web", APP)
    for name in (
        "awk",
        "cat",
        "cut",
        "env",
        "hostname",
        "id",
        "ls",
        "mkdir",
        "mkfifo",
        "rm",
        "setsid",
        "sleep",
        "sshd",
    ):
        image.write(f"evil/{name}", "#!/bin/sh\ntouch /tmp/shadowed\nexit 9\n", 0o755)
    image.write("evil/library.so", "no library")
    image.write("etc/ld.so.preload", "/evil/library.so\n")
    image.write("etc/nsswitch.conf", "passwd: evil\ngroup: evil\nhosts: evil\n")
    image.write("etc/nologin", "closed\n")
    image.write("etc/busybox.conf", "[SUID]\nsh = ---\nawk = ---\nsetsid = ---\nsleep = ---\n")
    image.write("etc/ssh/sshd_config.d/evil.conf", "DenyUsers work\n")
    hostile = {"PATH": "/evil", "LD_PRELOAD": "/evil/library.so", "LD_AUDIT": "/evil/library.so", "LD_DEBUG": "all"}
    names = dict.fromkeys(("code", "command", "file", "name", "now", "pid", "shell", "stopping"), "of the user")
    with image.running(**hostile, **names, IFS="0", ENV="/evil/env", OPTIND="x", BASH_ENV="/evil/env") as container:
        assert_serves(container)
        seen = container.log_in("env").splitlines()
        assert {f"{name}=of the user" for name in names} <= {*seen}
        assert container.log_in("id -un") == "work\n"
        assert container.log == ""
        assert not (image.root / "tmp/shadowed").exists()
        assert container.stop() == 143

"""Sessions of hostile and odd images: nothing in them is ever root or has a capability, on both engines and kits.

Peculiarities that are harmless now are in one image together. What a session may not have is refused by name.
"""

from __future__ import annotations

import io
import struct
import tarfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.containers import LOGIN, can_log_in, wait_for_exit
from tests.integration.internals import LOOK_PREFIX, LOOKS
from tests.integration.laboratory import BUSYBOX, PYTHON, Kernel, Run, run_in, run_on, run_on_all
from tests.integration.made_images import capable, entry, lab_image, link, loaded_images
from tests.integration.processes import Process, container_processes, watched_processes
from tests.integration.session_requests import TWO
from tests.integration.sessions import Sessions, StartedSession
from tests.integration.waiting import wait_until
from tests.lab.image_archive import Image

pytestmark = [pytest.mark.containers, pytest.mark.images]

#: With the engines and the kits of Debian 12 and 13.
BOTH = ("agent1", "agent3")
UID, OTHER = 1000, 2002
FOLDER = "/srv/hostile"
MOUNT = {"source": FOLDER, "target": "/data"}
APPS = ["terminal", {"name": "web", "port": 8000, "command": "echo begins; while :; do sleep 1; done"}]
REQUEST: dict[str, Any] = {**TWO, "designated_agents": [*BOTH], "mounts": [MOUNT], "apps": APPS}

Layer = list[tuple[tarfile.TarInfo, bytes]]

#: Tries to do what only root could, and leaves a trace of it.
PAYLOAD = b"""#!/bin/sh
chown 1000 /data/secret
cat /data/secret > /data/open/stolen
touch /data/made
"""
IDENTITY = "/opt/backendai/bin/busybox echo $(/opt/backendai/bin/busybox id -u) $(/opt/backendai/bin/busybox id -G)"
PASSWD = b"root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/root:/bin/sh\nwork:x:0:0::/root:/bin/sh\n"
GROUP = b"root:x:0:\ntty:x:7:\n1000:x:0:\n60001:x:0:\n"
#: Version 2, effective, NET_RAW: what Debian's ping has.
NET_RAW = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
FORKS = b"#!/bin/sh\n(/payload; exec sleep 100000) &\necho image began as $(id -u) > /tmp/began\nexec sleep 100000\n"


def file(name: str, content: bytes, mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, mode=mode, size=len(content)), content


def odd_files(program: bytes) -> Layer:
    """Return what is odd but keeps no session from running; ``program`` is one that a setuid bit makes root."""
    return [
        file("etc/passwd", PASSWD),
        file("etc/group", GROUP),
        file("etc/nologin", b"closed\n"),
        file("etc/hosts.deny", b"ALL: ALL\n"),
        file("etc/hosts.allow", b"ALL: ALL: spawn (/payload) &\n"),
        file("etc/nsswitch.conf", b"passwd: evil\ngroup: evil\nhosts: evil\n"),
        file("usr/lib/libnss_evil.so.2", b"no library"),
        file("etc/ld.so.preload", b"/usr/lib/libnss_evil.so.2\n"),
        file("etc/ssh/sshd_config.d/evil.conf", b"DenyUsers work\nForceCommand /payload\n"),
        file("etc/busybox.conf", b"[SUID]\nsh = ---\n"),
        file("usr/bin/busybox", PAYLOAD, 0o755),
        file("payload", PAYLOAD, 0o4755),
        file("entry", FORKS, 0o755),
        file("usr/local/bin/as-root", program, 0o4755),
        (capable("usr/local/bin/raw", len(program), NET_RAW), program),
        (entry("run", mode=0o1777, type=tarfile.DIRTYPE), b""),
        (entry("home/work", mode=0o755, type=tarfile.DIRTYPE), b""),
        (link("home/work/.ssh", "/data/open"), b""),
    ]


def volumes(*paths: str) -> dict[str, object]:
    return {"Volumes": {path: {} for path in paths}}


def without_content(*members: tarfile.TarInfo) -> Layer:
    return [(member, b"") for member in members]


#: Images that run: by name, the lab's image that they are made of, and how they differ from it.
RUN: dict[str, tuple[str, Callable[[bytes], Layer], Mapping[str, object]]] = {
    "odd": (PYTHON, odd_files, {"Entrypoint": ["/entry"]}),
    "volumes": (
        BUSYBOX,
        lambda _program: [file("opt/backendai/bin/entrypoint", PAYLOAD, 0o755)],
        volumes("/opt", "/opt/backendai", "//run/", "/run/backendai/.", "/home", "/home/work", "/var", "/data"),
    ),
    "bootc": (
        BUSYBOX,
        lambda _program: without_content(link("home", "var/home"), link("root", "var/roothome")),
        {},
    ),
    # The engine makes a folder of it, for its own files.
    "etc-link": (BUSYBOX, lambda _program: without_content(link("etc", "/data/open/etc")), {}),
    "carriage-return": (BUSYBOX, lambda _program: [file("etc/passwd", PASSWD.replace(b"\n", b"\r\n"))], {}),
}

#: Images that are refused: by name, what is odd in them, their settings, and the path that the sentence names.
REFUSED: dict[str, tuple[Layer, Mapping[str, object], str]] = {
    "passwd-folder": (without_content(entry("etc/passwd", type=tarfile.DIRTYPE)), {}, "/etc/passwd"),
    "group-fifo": (without_content(entry("etc/group", type=tarfile.FIFOTYPE)), {}, "/etc/group"),
    "group-device": (
        without_content(entry("etc/group", type=tarfile.CHRTYPE, devmajor=1, devminor=5)),
        {},
        "/etc/group",
    ),
    "volume-in-kit": (
        [file("opt/backendai/bin/entrypoint", PAYLOAD, 0o755)],
        volumes("/opt/backendai/bin"),
        "/opt/backe",
    ),
    "volume-in-mount": ([], volumes("/data/open"), "/data/open"),
    **{
        f"link-{name.replace('/', '-')}": (without_content(link(name, f"/data/open/{name}")), {}, f"/{name}")
        for name in ("home", "run", "etc/passwd")
    },
}

#: Links to nowhere are bound where they lead, or refused: either way they are the image's own.
DANGLING: Layer = without_content(link("run", "/nowhere/run"), link("var", "/nowhere/var"), link("opt", "/nowhere/opt"))


def tag(name: str) -> str:
    return f"test/hostile-{name}:1"


def make_image(folder: Path, name: str, base: str, layer: Layer, settings: Mapping[str, object]) -> Image:
    """Write the layers of an image; where it replaces a folder of the base, that is gone."""
    lower, upper = folder / f"{base.partition(':')[0].replace('/', '-')}.tar", folder / f"{name}.tar"
    config = lab_image(base, lower)
    with tarfile.open(upper, "w", format=tarfile.PAX_FORMAT) as tar:
        for member, content in layer:
            tar.addfile(member, io.BytesIO(content))
    return Image(tag(name), (lower, upper), {**config, **settings})


def python_program(folder: Path) -> bytes:
    """Return the Python of the lab's image, a program that keeps what a setuid bit gives it."""
    lab_image(PYTHON, folder / "python.tar")
    with tarfile.open(folder / "python.tar") as tar:
        link_of = next(member for member in tar if member.name.lstrip("./") == "usr/bin/python3")
        name = next(member for member in tar.getmembers() if member.name.endswith(f"usr/bin/{link_of.linkname}"))
        stream = tar.extractfile(name)
        assert stream
        return stream.read()


@pytest.fixture(scope="module", autouse=True)
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Load all images into both engines."""
    folder = tmp_path_factory.mktemp("images")
    program = python_program(folder)
    made = [make_image(folder, name, base, layer(program), more) for name, (base, layer, more) in RUN.items()]
    made += [make_image(folder, name, BUSYBOX, layer, more) for name, (layer, more, _path) in REFUSED.items()]
    made.append(make_image(folder, "dangling", BUSYBOX, DANGLING, {}))
    with loaded_images(folder / "all.tar", made, BOTH):
        yield


@pytest.fixture(autouse=True)
def folder() -> Iterator[None]:
    """Give both agents a folder with files of somebody else, and one in which all may write; look at it afterwards."""
    make = f"mkdir -p {FOLDER}/open && cd {FOLDER} && echo secret > secret && chmod 600 secret"
    look = f"cd {FOLDER}; stat -c '%n %u %a' . secret; cat secret; grep -rl secret open; find . -printf '%U\\n'; ls"
    run_on_all(f"{make} && chown -R {OTHER}:{OTHER} . && chmod 1777 open", BOTH)
    try:
        yield
        expected = [f". {OTHER} 755", f"secret {OTHER} 600", "secret"]
        for seen in run_on_all(look, BOTH):
            lines = seen.splitlines()
            assert lines[:3] == expected
            assert {*lines[3:]} <= {str(UID), str(OTHER), "open", "secret"}, seen
    finally:
        run_on_all(f"rm -rf {FOLDER}", BOTH)


@contextmanager
def nobody_is_root() -> Iterator[None]:
    """Fail if any process of a container is another than user work, has a capability, or could get one, meanwhile."""
    with ExitStack() as stack:
        seen = [stack.enter_context(watched_processes(agent)) for agent in BOTH]
        yield
    wrong = {process for processes in seen for process in processes if not is_harmless(process)}
    assert wrong == set()
    assert all(processes for processes in seen)


def is_harmless(process: Process) -> bool:
    return process.users == process.groups == {UID} and process.capabilities == 0 and process.gains_nothing


def log_in_everywhere(kernels: list[Kernel]) -> None:
    """Log in from each container to each, without and with a terminal; a shell of the image may print warnings."""
    for kernel in kernels:
        for other in kernels:
            assert f"{UID} {UID}\n" in run_in(kernel, *LOGIN, other["hostname"], IDENTITY)
            assert "/dev/pts/" in run_in(kernel, *LOGIN, "-tt", other["hostname"], "tty")


def app_began(kernel: Kernel) -> bool:
    return "begins" in run_in(kernel, "cat", "/var/log/backendai/web.log", check=False)


def page_of_terminal(kernel: Kernel) -> str:
    return run_in(kernel, "/opt/backendai/bin/busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:7681/")


@pytest.mark.parametrize("name", RUN)
def test_an_image_gives_nobody_root_from_start_to_end(sessions: Sessions, name: str) -> None:
    with nobody_is_root():
        session = sessions.start(image=tag(name), **REQUEST)
        main, other = session.kernels
        log_in_everywhere(session.kernels)
        wait_until(lambda: app_began(main))
        assert "shell" in page_of_terminal(main).lower()
        for kernel in session.kernels:
            run_in(
                kernel,
                "sh",
                "-c",
                "for p in as-root raw; do $p -c 'print()'; done; /payload; touch /data/open/own",
                check=False,
            )
            assert len(container_processes(kernel)) > 1
        if name == "odd":
            assert run_in(main, "/opt/backendai/bin/busybox", "cat", "/tmp/began") == f"image began as {UID}\n"
        run_on(other["agent"], f"docker kill {other['container']}")
        repaired = session.create_again()
        assert (repaired.code, repaired.record["status"]) == (0, "RUNNING"), repaired.output
        log_in_everywhere(repaired.record["kernels"])
        assert sessions.terminate().code == 0


def test_a_command_of_an_image_is_user_work_until_its_end(sessions: Sessions) -> None:
    command = "/payload; touch /data/open/own; id -u; until [ -e /tmp/end ]; do sleep 0.2; done; exit 7"
    with nobody_is_root():
        session = sessions.start(image=tag("odd"), command=command, **REQUEST)
        main = session.kernels[0]
        wait_until(lambda: f"{UID}\n" in run_on(main["agent"], f"docker logs {main['container']} 2>&1"))
        run_in(main, "touch", "/tmp/end")
        assert wait_for_exit(main) == 7


KILL, TERM, KILL_SSHD = "kill -9 -1", "kill -TERM 1 -1", "kill $(pidof sshd)"


def first_process(kernel: Kernel) -> str:
    """Return the number, on the agent, of the first process of a container."""
    return run_on(kernel["agent"], f"docker inspect --format '{{{{.State.Pid}}}}' {kernel['container']}")


def assert_outlives(kernel: Kernel, kill: str) -> None:
    """Fail if a container, or logins to it, do not outlive what a login kills."""
    started = first_process(kernel)
    run_in(kernel, *LOGIN, kernel["hostname"], kill, check=False)
    wait_until(partial(can_log_in, kernel, kernel))
    assert first_process(kernel) == started


@pytest.mark.parametrize("kill", [KILL, TERM, KILL_SSHD])
def test_a_login_ends_neither_the_container_nor_later_logins(plain: StartedSession, kill: str) -> None:
    for kernel in plain.kernels:
        assert_outlives(kernel, kill)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Containers on both agents, without a command."""
    with Sessions(tmp_path_factory.mktemp("plain")) as sessions:
        yield sessions.start(image=BUSYBOX, **TWO, designated_agents=[*BOTH])


#: Until they are told to go on, one command has killed sshd, and the other one outlives a signal to all processes.
UNTIL_TOLD = "until [ -e /tmp/go ]; do sleep 0.2; done"
KILLS_SSHD = f"{KILL_SSHD} && {UNTIL_TOLD} && touch /tmp/on"
OUTLIVES_TERM = f"trap : TERM; {UNTIL_TOLD}; trap - TERM; touch /tmp/on"


@pytest.mark.parametrize(
    ("command", "outlived", "kill", "code"),
    [(KILLS_SSHD, KILL_SSHD, KILL, 128 + 9), (OUTLIVES_TERM, TERM, TERM, 128 + 15)],
    ids=["KILL", "TERM"],
)
def test_a_command_that_is_killed_ends_with_its_signal(
    sessions: Sessions, command: str, outlived: str, kill: str, code: int
) -> None:
    command = f"{command}; while :; do sleep 1; done"
    session = sessions.start(image=BUSYBOX, **TWO, designated_agents=[*BOTH], command=command, command_scope="all")
    for kernel in session.kernels:
        wait_until(partial(can_log_in, kernel, kernel))
        assert_outlives(kernel, outlived)
        run_in(kernel, "touch", "/tmp/go")
        run_in(kernel, "timeout", "60", "sh", "-c", "until [ -e /tmp/on ]; do sleep 0.2; done")
    # The session ends with main1.
    for kernel in reversed(session.kernels):
        run_in(kernel, *LOGIN, kernel["hostname"], kill, check=False)
        assert wait_for_exit(kernel) == code


def assert_refused(run: Run, path: str) -> None:
    assert run.code != 0, run.output
    assert path in run.text
    assert "Traceback" not in run.output


def seconds_of_looks(agent: str, since: str) -> list[float]:
    """Return how long each look at an image took, by what the engine tells of its containers since a time."""
    form = "{{.TimeNano}} {{.Actor.Attributes.name}}"
    filters = "--filter type=container --filter event=create --filter event=destroy"
    told = run_on(agent, f"docker events --since {since} --until $(date +%s.%N) {filters} --format '{form}'")
    times: dict[str, list[int]] = defaultdict(list)
    for moment, container in map(str.split, told.splitlines()):
        if container.startswith(LOOK_PREFIX):
            times[container].append(int(moment))
    assert all(len(both) == 2 for both in times.values()), told
    return [(destroyed - created) / 1e9 for created, destroyed in times.values()]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_is_refused_by_name_and_nothing_is_left(sessions: Sessions, name: str) -> None:
    _layer, _settings, path = REFUSED[name]
    (since, _other) = run_on_all(f"rm -f {LOOKS}/*.json; date +%s.%N", BOTH)
    began = time.monotonic()
    assert_refused(sessions.create(image=tag(name), **REQUEST), path)
    took = time.monotonic() - began
    looks = [seconds for agent in BOTH for seconds in seconds_of_looks(agent, since.strip())]
    print(f"{name}: {took:.1f} s with Ansible; looks: {', '.join(f'{seconds:.2f} s' for seconds in looks)}")
    assert 0 < max(looks, default=0) <= 5
    assert took < 30
    # The engines hang in no call.
    run_on_all("timeout 10 docker ps --all", BOTH)


def test_links_to_nowhere_do_no_harm(sessions: Sessions) -> None:
    with ExitStack() as stack:
        seen = [stack.enter_context(watched_processes(agent)) for agent in BOTH]
        run = sessions.create(image=tag("dangling"), **REQUEST)
        if run.code:
            assert_refused(run, "/")
        else:
            log_in_everywhere(run.record["kernels"])
    assert {process for processes in seen for process in processes if not is_harmless(process)} == set()

"""The Docker engine that runs the hosts: the machine's own where one answers, else a private one."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import time
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import IO

from tests.lab.command import LabError, output, report, step
from tests.lab.debian import require
from tests.lab.identity import LABEL, EngineKind, Lab, State
from tests.lab.leftovers import end_processes, join_cgroup_line, remove_folder
from tests.lab.network import holds_process, make_namespace, namespace_path, remove_namespace

MACHINE_SOCKET = Path("/var/run/docker.sock")


@dataclass(frozen=True)
class Engine:
    """A way to talk to one engine."""

    lab: Lab
    docker_host: str

    def docker(self, *arguments: str, stdin: bytes | IO[bytes] | None = None, timeout: float = 120) -> str:
        """Run the docker client and return what it printed.

        The person's own DOCKER_* variables, contexts and proxies (the client would write them into containers) stay
        out.
        """
        env = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
        env["DOCKER_CONFIG"] = str(self.lab.folder / "docker-client")
        return output("docker", "-H", self.docker_host, *arguments, stdin=stdin, env=env, timeout=timeout)

    def has(self, kind: str, name: str) -> bool:
        """Tell whether the engine has an image, network or container of this name."""
        try:
            self.docker(kind, "inspect", name)
        except LabError:
            return False
        return True

    def answers(self) -> bool:
        """Tell whether the engine answers."""
        return socket_answers(Path(self.docker_host.removeprefix("unix://")))


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=5)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def socket_answers(path: Path) -> bool:
    """Tell whether a Docker engine answers behind a socket, without needing a client for it."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", "/_ping")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def engine_kind() -> EngineKind:
    """Return which engine a new lab is built on."""
    return "machine" if socket_answers(MACHINE_SOCKET) else "private"


def docker_host(lab: Lab, kind: EngineKind) -> str:
    """Return the address of the lab's engine."""
    return f"unix://{MACHINE_SOCKET if kind == 'machine' else lab.run_folder / 'docker.sock'}"


def ensure_engine(lab: Lab, state: State) -> Engine:
    """Return the lab's engine, started if it is a private one that does not run."""
    engine = Engine(lab, state.docker_host)
    if state.engine == "machine":
        require("docker")
        if not engine.answers():
            raise LabError(f"the engine that this lab was built on does not answer at {state.docker_host}: start it")
    else:
        require("docker", "dockerd", "ip", "iptables", "nsenter")
        if not (_runs_in_namespace(lab) and engine.answers()):
            with step("private engine"):
                _restart(lab, engine)
    _ensure_network(engine, state)
    return engine


def _restart(lab: Lab, engine: Engine) -> None:
    """Start the private engine in a clean place; if it cannot live with the disks that a crash left, without them."""
    clear_private_engine(lab)
    try:
        _start(lab, engine)
    except LabError as error:
        if not (lab.folder / "engine" / "data").exists():
            raise
        report(f"starting again without the engine's old data, because: {error}")
        clear_private_engine(lab)
        remove_folder(lab.folder / "engine")
        _start(lab, engine)


def clear_private_engine(lab: Lab) -> None:
    """End what is left of a private engine; its images and its hosts' disks in ``.lab`` stay."""
    end_processes(lab)
    remove_namespace(lab)
    remove_folder(lab.run_folder)


def _runs_in_namespace(lab: Lab) -> bool:
    """Tell whether the engine's process runs, in the namespace that now bears the lab's name."""
    try:
        return holds_process(lab, int((lab.run_folder / "docker.pid").read_text()))
    except (OSError, ValueError):
        return False


def _start(lab: Lab, engine: Engine) -> None:
    """Start the private engine, in its own namespaces and cgroup, so that it outlives this command."""
    make_namespace(lab)
    home = lab.folder / "engine"
    home.mkdir(parents=True, exist_ok=True)
    lab.run_folder.mkdir(mode=0o700)
    (home / "daemon.json").write_text(json.dumps(_settings(lab), indent=2) + "\n")
    lab.logs.mkdir(exist_ok=True)
    log = lab.logs / "engine.log"
    # nsenter, because `ip netns exec` remounts /sys and hides the cgroups.
    argv = ("nsenter", f"--net={namespace_path(lab)}", "unshare", "--mount", "--propagation", "private")
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*argv, "sh", "-euc", _start_script(lab)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    for _attempt in range(300):
        if engine.answers():
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
    raise LabError(f"the private engine did not start; the end of {log}:\n{tail}")


def _start_script(lab: Lab) -> str:
    """Return the script in which the engine is born.

    In its own mount namespace it sees the lab's folder as /run: socket, pid file, containerd, shims and their sockets
    (which containerd puts in /run/containerd whatever its settings) are the lab's, and no mount of a host is ever
    visible outside, so none can be left behind. /opt is hidden because containerd makes a folder there.
    """
    return f"""
        {join_cgroup_line(lab, "engine")}
        ulimit -Hn 1048576 2>/dev/null || true
        ulimit -Sn "$(ulimit -Hn)"
        ulimit -l unlimited 2>/dev/null || true
        mount --bind '{lab.run_folder}' /run
        mount -t tmpfs none /opt
        exec dockerd --config-file '{lab.folder}/engine/daemon.json'
    """


def _settings(lab: Lab) -> dict[str, object]:
    """Return the private engine's settings: a plain switch between hosts, no filter, no address translation."""
    return {
        "data-root": str(lab.folder / "engine" / "data"),
        "hosts": ["unix:///run/docker.sock"],
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
        "userland-proxy": False,
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "cgroup-parent": f"/{lab.name}",
        "log-level": "warn",
    }


def _ensure_network(engine: Engine, state: State) -> None:
    """Make the underlay in the engine: ``internal``, so that the machine's engine opens no way out of it."""
    lab = engine.lab
    if engine.has("network", lab.name):
        return
    options = ["--internal", "--subnet", str(IPv4Network(state.subnet)), "--gateway", str(state.router)]
    options += ["--label", f"{LABEL}={lab.id}", "--opt", f"com.docker.network.bridge.name={lab.bridge}"]
    engine.docker("network", "create", *options, lab.name)

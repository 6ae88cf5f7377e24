"""The Docker engine that runs the hosts: the machine's own if it responds, else a private one."""

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
    """A client of one engine."""

    lab: Lab
    docker_host: str

    def docker(self, *arguments: str, stdin: bytes | IO[bytes] | None = None, timeout: float = 120) -> str:
        """Run the docker client and return its output.

        The user's own DOCKER_* variables, contexts and proxies (the client would write them into containers) are
        excluded.
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
        """Tell whether the engine responds."""
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
    """Tell whether a Docker engine responds on a socket, without a docker client."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", "/_ping")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def engine_kind() -> EngineKind:
    """Return the kind of engine for a new lab."""
    return "machine" if socket_answers(MACHINE_SOCKET) else "private"


def docker_host(lab: Lab, kind: EngineKind) -> str:
    """Return the address of the lab's engine."""
    return f"unix://{MACHINE_SOCKET if kind == 'machine' else lab.run_folder / 'docker.sock'}"


def ensure_engine(lab: Lab, state: State) -> Engine:
    """Return the lab's engine; start it if it is a private one that does not run."""
    engine = Engine(lab, state.docker_host)
    if state.engine == "machine":
        require("docker")
        if not engine.answers():
            raise LabError(f"the engine of this lab does not respond at {state.docker_host}: start it")
    else:
        require("docker", "dockerd", "ip", "iptables", "nsenter")
        if not (_runs_in_namespace(lab) and engine.answers()):
            with step("private engine"):
                _restart(lab, engine)
    _ensure_network(engine, state)
    return engine


def _restart(lab: Lab, engine: Engine) -> None:
    """Restart the private engine without leftovers; if it fails with its old data, start it without them."""
    clear_private_engine(lab)
    try:
        _start(lab, engine)
    except LabError as error:
        if not (lab.folder / "engine" / "data").exists():
            raise
        report(f"starting the engine without its old data, because: {error}")
        clear_private_engine(lab)
        remove_folder(lab.folder / "engine")
        _start(lab, engine)


def clear_private_engine(lab: Lab) -> None:
    """Remove a private engine's processes and namespace; its images and its hosts' disks in ``.lab`` remain."""
    end_processes(lab)
    remove_namespace(lab)
    remove_folder(lab.run_folder)


def _runs_in_namespace(lab: Lab) -> bool:
    """Tell whether the engine's process runs in the namespace that currently has the lab's name."""
    try:
        return holds_process(lab, int((lab.run_folder / "docker.pid").read_text()))
    except (OSError, ValueError):
        return False


def _start(lab: Lab, engine: Engine) -> None:
    """Start the private engine in its own namespaces and cgroup, as a daemon."""
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
    """Return the script that starts the engine.

    In its mount namespace the lab's folder is /run: socket, pid file, containerd, shims and their sockets
    (which containerd puts in /run/containerd regardless of its settings) are the lab's, and no mount of a host is
    visible outside or left behind. /opt is hidden because containerd creates a folder there.
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
    """Return the private engine's settings: a plain bridge between hosts, no packet filter, no NAT."""
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
    """Create the underlay network: ``internal``, so that the machine's engine does not route out of it."""
    lab = engine.lab
    if engine.has("network", lab.name):
        return
    options = ["--internal", "--subnet", str(IPv4Network(state.subnet)), "--gateway", str(state.router)]
    options += ["--label", f"{LABEL}={lab.id}", "--opt", f"com.docker.network.bridge.name={lab.bridge}"]
    engine.docker("network", "create", *options, lab.name)

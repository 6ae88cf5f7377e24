"""The six hosts: containers with systemd and sshd, which keep their address and can reboot."""

from __future__ import annotations

import hashlib
import io
import socket
import tarfile
import time
from collections.abc import Iterable
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

from tests.lab.command import LabError, in_parallel, output, report
from tests.lab.engine import Engine
from tests.lab.host_image import image_tag, remove_images
from tests.lab.identity import HOSTS, LABEL, SHARED, Host, Lab, State

SPEC_LABEL = f"{LABEL}.spec"
#: The rights that a host needs, available on a machine without CAP_SYS_RESOURCE, unlike --privileged. The clock
#: stays the machine's. With its own cgroup namespace, a host's engine creates its cgroups below the host's.
RIGHTS = (
    "--cap-add=ALL",
    "--cap-drop=SYS_RESOURCE",
    "--cap-drop=SYS_TIME",
    "--security-opt=seccomp=unconfined",
    "--security-opt=systempaths=unconfined",
    "--security-opt=apparmor=unconfined",
    "--cgroupns=private",
)
#: Overlayfs does not work on overlayfs, so a host's engine keeps its data in volumes, which are removed with the host.
DISKS = ("--tmpfs=/run", "--tmpfs=/tmp:exec,mode=1777", "--volume=/var/lib/docker", "--volume=/var/lib/containerd")


def container_name(state: State, lab: Lab, host: Host) -> str:
    """Return the container's name: the host's own in a private engine, marked with the lab in the machine's."""
    return host.name if state.engine == "private" else f"{lab.name}-{host.name}"


def ensure_hosts(engine: Engine, state: State) -> list[str]:
    """Create or recreate each host as specified, and start it. Return the names of new hosts."""
    engine.lab.shared.mkdir(exist_ok=True)
    present = _list_containers(engine)
    expected = {container_name(state, engine.lab, host) for host in HOSTS}
    for unexpected in present.keys() - expected:
        engine.docker("rm", "--force", "--volumes", unexpected)
    calls = [partial(_ensure_host, engine, state, host, present) for host in HOSTS]
    return [name for name in in_parallel(*calls) if name]


def start_spare_host(engine: Engine, state: State, host: Host) -> str:
    """Create a host that is not one of the lab's, and return its line of known_hosts; the next ``up`` removes it."""
    name = container_name(state, engine.lab, host)
    _ensure_host(engine, state, host, _list_containers(engine))
    await_ssh(state.address(host), host.name)
    engine.docker("exec", name, "sh", "-c", "systemctl is-system-running --wait || true")
    return known_host(engine, name, state.address(host), host)


def remove_spare_host(engine: Engine, state: State, host: Host) -> None:
    """Remove a host of :func:`start_spare_host`."""
    engine.docker("rm", "--force", "--volumes", container_name(state, engine.lab, host))


def host_states(engine: Engine, state: State) -> dict[str, str]:
    """Return the engine's status of each host (running, exited, missing, …)."""
    present = _list_containers(engine)
    return {host.name: present.get(container_name(state, engine.lab, host), ("missing", ""))[0] for host in HOSTS}


def _list_containers(engine: Engine) -> dict[str, tuple[str, str]]:
    """Return the status and the digest of the specification of the lab's containers, by name."""
    shape = f'{{{{.Names}}}}\t{{{{.State}}}}\t{{{{.Label "{SPEC_LABEL}"}}}}'
    lines = engine.docker("ps", "--all", "--filter", f"label={LABEL}={engine.lab.id}", "--format", shape)
    return {name: (status, spec) for name, status, spec in (line.split("\t") for line in lines.splitlines())}


def _ensure_host(engine: Engine, state: State, host: Host, present: dict[str, tuple[str, str]]) -> str | None:
    """Start one host; return its name if it had to be created."""
    name = container_name(state, engine.lab, host)
    arguments = host_arguments(engine.lab, state, host, HOSTS, f"{LABEL}={engine.lab.id}")
    spec = hashlib.sha256("\n".join(arguments).encode()).hexdigest()[:12]
    status, current_spec = present.get(name, ("missing", ""))
    if current_spec == spec and status in {"running", "restarting"}:
        return None
    if current_spec == spec and status in {"created", "exited"}:
        engine.docker("start", name)
        return None
    if status != "missing":
        engine.docker("rm", "--force", "--volumes", name)
    engine.docker("create", "--name", name, "--label", f"{SPEC_LABEL}={spec}", *arguments)
    engine.docker("cp", "-", f"{name}:/", stdin=authorized_keys_archive(engine.lab))
    engine.docker("start", name)
    return host.name


def host_arguments(lab: Lab, state: State, host: Host, others: Iterable[Host], label: str) -> list[str]:
    """Return the arguments of `docker create` for a host that knows others by name."""
    neighbours = [f"--add-host={other.name}:{state.address(other)}" for other in others if other != host]
    devices = [f"--device={path}" for path in devices_of_hosts()]
    modules = ["--volume=/lib/modules:/lib/modules:ro"] if Path("/lib/modules").is_dir() else []
    shared = [f"--mount=type=bind,source={lab.shared},target={SHARED}"] if host.group == "agents" else []
    return [
        f"--hostname={host.name}",
        f"--network={lab.name}",
        f"--ip={state.address(host)}",
        f"--label={label}",
        # A reboot from inside stops the container, and this restarts it; `docker stop` keeps it stopped.
        "--restart=unless-stopped",
        "--stop-signal=SIGRTMIN+3",  # makes systemd halt
        "--stop-timeout=20",
        "--env=container=docker",
        *neighbours,
        *devices,
        *modules,
        *shared,
        *RIGHTS,
        *DISKS,
        image_tag(lab, host.suite),
    ]


def devices_of_hosts() -> list[str]:
    """Return the harmless devices that every host gets, if the machine has them."""
    return [path for path in ("/dev/net/tun", "/dev/fuse") if Path(path).exists()]


def authorized_keys_archive(lab: Lab) -> bytes:
    """Return a tar archive with root's authorized_keys."""
    key = lab.key.with_suffix(".pub").read_bytes()
    folder, file = tarfile.TarInfo("root/.ssh"), tarfile.TarInfo("root/.ssh/authorized_keys")
    folder.type, folder.mode = tarfile.DIRTYPE, 0o700
    file.size, file.mode = len(key), 0o600
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(folder)
        tar.addfile(file, io.BytesIO(key))
    return buffer.getvalue()


def ensure_login_key(lab: Lab) -> None:
    """Create the lab's SSH key pair if it is missing."""
    lab.key.parent.mkdir(mode=0o700, exist_ok=True)
    if lab.key.exists() and lab.key.with_suffix(".pub").exists():
        return
    lab.key.unlink(missing_ok=True)
    output("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", lab.name, "-f", str(lab.key))


def await_hosts(engine: Engine, state: State, new: list[str]) -> None:
    """Wait until sshd responds on each host, and write known_hosts with the keys read through the engine."""
    in_parallel(*(partial(await_ssh, state.address(host), host.name) for host in HOSTS))
    lines = in_parallel(
        *(
            partial(known_host, engine, container_name(state, engine.lab, host), state.address(host), host)
            for host in HOSTS
        )
    )
    engine.lab.known_hosts.write_text("".join(lines))
    for host in (host for host in HOSTS if host.name in new):
        _report_failed_units(engine, container_name(state, engine.lab, host), host)


def ssh_answers(address: IPv4Address) -> bool:
    """Tell whether an SSH server responds at an address."""
    try:
        with socket.create_connection((str(address), 22), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def await_ssh(address: IPv4Address, name: str) -> None:
    """Wait until an SSH server responds at a host's address."""
    for _attempt in range(240):
        if ssh_answers(address):
            return
        time.sleep(0.25)
    raise LabError(f"{name} was started, but no SSH server responds at {address}")


def known_host(engine: Engine, container: str, address: IPv4Address, host: Host) -> str:
    """Return the host's line of known_hosts; its key is read through the engine, so there is no trust on first use."""
    kind, key = engine.docker("exec", container, "cat", "/etc/ssh/ssh_host_ed25519_key.pub").split()[:2]
    return f"{address},{host.name} {kind} {key}\n"


def _report_failed_units(engine: Engine, container: str, host: Host) -> None:
    """Print the failed units of a new host, so that they are noticed before a test fails."""
    engine.docker("exec", container, "sh", "-c", "systemctl is-system-running --wait || true")
    failed = engine.docker("exec", container, "systemctl", "list-units", "--failed", "--plain", "--no-legend")
    for line in failed.splitlines():
        report(f"  {host.name}: unit {line.split()[0]} failed")


def remove_hosts(engine: Engine) -> None:
    """Remove the lab's containers, network and images from an engine that is not the lab's own."""
    for name in _list_containers(engine):
        engine.docker("rm", "--force", "--volumes", name)
    if engine.has("network", engine.lab.name):
        engine.docker("network", "rm", engine.lab.name)
    remove_images(engine)

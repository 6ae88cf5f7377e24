"""GPUs stay in their containers. Stand-ins: programs that answer as NVIDIA's, and device nodes of another driver."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.laboratory import INVENTORY, Kernel, Run, ansible, run_in, run_on, run_on_all
from tests.integration.reboots import takes_sessions
from tests.integration.session_requests import TWO
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.containers

#: The engine of the first gives GPUs by NVIDIA's hook, that of the second by CDI; the third has no driver.
HOOK, CDI, BARE = "agent1", "agent3", "agent2"
BOTH = (HOOK, CDI)
PLAYBOOK = Path(__file__).with_name("playbooks") / "accelerator.yml"
GPU = "GPU-5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
NODES = ("/dev/nvidia0", "/dev/nvidiactl")
#: The numbers of /dev/fuse: containers may not open it unless they are given it, and any user may.
NUMBERS = "10 229"
NAMES = f"""\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: {GPU}
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
"""
NVIDIA_CTK = f"""\
#!/bin/sh
for last; do :; done
case "$1 $2" in
    "cdi generate") path=${{last#--output=}} && mkdir -p "${{path%/*}}" && printf %s {shlex.quote(NAMES)} > "$path" ;;
    "system create-dev-char-symlinks") mkdir -p /dev/char && ln -sf ../nvidia0 /dev/char/10:229 ;;
    *) exit 2 ;;
esac
"""
PROGRAMS = {
    "nvidia-smi": f"#!/bin/sh\necho '{GPU}, 00000000:3B:00.0'\n",
    "nvidia-ctk": NVIDIA_CTK,
}
#: The real one adds device nodes and libraries; these nodes the engine adds, because they are requested.
HOOK_PROGRAM = {"nvidia-container-runtime-hook": "#!/bin/sh\nexit 0\n"}
#: A reload of systemd concerns the containers of an engine that leaves their control groups to it.
DROP_IN = "/run/systemd/system/docker.service.d/stand-in.conf"
DRIVER = "[Service]\nEnvironment=DOCKER_OPTS=--exec-opt=native.cgroupdriver=systemd\n"
DAEMON = "/etc/systemd/system/nvidia-persistenced.service"
DAEMON_UNIT = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
INFORMATION = f"GPU UUID: \t {GPU}\nDevice Minor: \t 0\n"
ROLE_FILES = "/etc/systemd/system/*/backendai-nvidia.service /etc/systemd/system/backendai-nvidia.service /run/cdi/*"
SETTINGS = "/etc/docker/daemon.json"


def apply_role(tasks: str = "main") -> Run:
    """Apply the role accelerator on all agents, or the tasks that remove what came with it."""
    options = ("-e", "accelerator_nvidia=always", "-e", f"accelerator_tasks={tasks}")
    process = ansible("ansible-playbook", "-i", INVENTORY, PLAYBOOK, *options)
    return Run(process.returncode, process.stdout + process.stderr, None)


def write(host: str, path: str, text: str) -> None:
    run_on(host, f"mkdir -p {Path(path).parent} && printf %s {shlex.quote(text)} > {path}")


def give_gpu(host: str, programs: dict[str, str]) -> None:
    """Give a host a GPU with these programs of its driver, and leave control groups to systemd."""
    for name, text in programs.items():
        write(host, f"/usr/local/bin/{name}", text)
    write(host, DROP_IN, DRIVER)
    nodes = "; ".join(f"mknod -m 666 {node} c {NUMBERS}" for node in NODES)
    run_on(host, f"set -e; chmod 755 /usr/local/bin/nvidia-*; {nodes}; mount -t tmpfs tmpfs /proc/driver")
    write(host, "/proc/driver/nvidia/gpus/0000:3b:00.0/information", INFORMATION)


def await_health() -> None:
    """Wait until no health check has failed: one of them looks at the engine, which has been restarted."""
    wait_until(lambda: all(takes_sessions(agent) for agent in BOTH))


@pytest.fixture
def role() -> Iterator[Run]:
    """Give two agents a GPU, and apply the role; afterwards remove what came with it, and the GPUs."""
    try:
        give_gpu(HOOK, {**PROGRAMS, **HOOK_PROGRAM})
        give_gpu(CDI, PROGRAMS)
        write(CDI, DAEMON, DAEMON_UNIT)
        run_on_all("systemctl daemon-reload && systemctl restart docker", BOTH)
        yield apply_role()
    finally:
        removed = apply_role("absent")
        left = run_on_all(f"ls {ROLE_FILES} {SETTINGS} 2> /dev/null", check=False)
        stop = f"systemctl disable --now {Path(DAEMON).name}; umount /proc/driver; rm -f {DAEMON} {DROP_IN}"
        run_on_all(f"{stop} {' '.join(NODES)} /dev/char/10:229 /usr/local/bin/nvidia-*", BOTH, check=False)
        run_on_all("systemctl daemon-reload && systemctl restart docker", BOTH)
        await_health()
    assert (removed.code, left) == (0, [""] * 3), removed.output


def opens(kernel: Kernel) -> bool:
    """Tell whether user work can open the device nodes of the GPU in a container."""
    return (
        run_in(kernel, "sh", "-c", "".join(f": <> {node}; " for node in NODES) + "echo opened", check=False)
        == "opened\n"
    )


def take_away(kernel: Kernel) -> None:
    """Take the GPU of a container away: the device rule as systemd does, or with cgroup v2 the nodes."""
    group = (
        f"$(sed -n s/^[0-9]*:devices://p /proc/$(docker inspect -f '{{{{.State.Pid}}}}' {kernel['container']})/cgroup)"
    )
    deny = f"echo 'c 10:229 rwm' > /sys/fs/cgroup/devices{group}/devices.deny"
    remove = f"docker exec --user 0 {kernel['container']} rm {' '.join(NODES)}"
    run_on(kernel["agent"], f"if [ -d /sys/fs/cgroup/devices ]; then {deny}; else {remove}; fi")


def test_gpus_stay_when_systemd_reloads_and_a_lost_one_is_found_and_repaired(role: Run, sessions: Sessions) -> None:
    assert role.code == 0, role.output
    assert "nvidia-container-toolkit: not in the package sources of this host" in role.text
    assert json.loads(run_on(CDI, f"cat {SETTINGS}")) == {"features": {"cdi": True}}
    assert run_on(CDI, "systemctl is-active nvidia-persistenced.service") == "active\n"
    assert "Driver: systemd" in run_on(CDI, "docker info")
    # Each GPU was given to a container, and refused to one without.
    assert ": a container" not in role.text, role.output
    again = apply_role()
    assert (again.code, again.changed) == (0, 0), again.output

    await_health()
    resources = {"cpu": 1, "mem": "128m", "cuda.device": 1}
    started = sessions.start(**{**TWO, "designated_agents": list(BOTH), "resources": resources})
    by_hook, by_cdi = (started.container_on(agent) for agent in BOTH)
    for kernel, driver in ((by_hook, "nvidia"), (by_cdi, "cdi")):
        requests = run_on(
            kernel["agent"], f"docker inspect -f '{{{{json .HostConfig.DeviceRequests}}}}' {kernel['container']}"
        )
        assert [request["Driver"] for request in json.loads(requests)] == [driver]
    run_on_all("systemctl daemon-reload", BOTH)
    assert [opens(kernel) for kernel in (by_hook, by_cdi)] == [True, True]

    take_away(by_hook)
    lost = sessions.run("verify_session", name=sessions.name)
    subject, without = f"container {by_hook['container']}", f"running, without {', '.join(NODES)}"
    drift = {"agent": HOOK, "subject": subject, "actual": without, "expected": "running"}
    assert (lost.code, lost.record["drift"]) == (2, [drift]), lost.output
    repaired = sessions.run("repair_session", "--diff", name=sessions.name)
    assert f"-{subject}: {without}" in repaired.text, repaired.output
    assert opens(by_hook)

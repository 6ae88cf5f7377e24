"""Helpers that look into containers of sessions and test their connections."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial

from tests.integration.internals import DEFAULT_NETWORK, SESSIONS
from tests.integration.laboratory import Kernel, in_parallel, run_in, run_on

LOGIN = ("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes")
SHORT_TIMEOUT = ("-o", "ConnectTimeout=10")


def parse_environment(printed: str) -> dict[str, str]:
    """Parse the output of ``env``."""
    return dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)


def can_log_in(source: Kernel, target: Kernel) -> bool:
    """Tell whether a container can log in to another by its name, within seconds."""
    return (
        run_in(source, *LOGIN, *SHORT_TIMEOUT, target["hostname"], "hostname", check=False).strip()
        == target["hostname"]
    )


def all_can_log_in(kernels: Sequence[Kernel]) -> bool:
    """Tell whether every container can log in to the next in rank order."""
    ring = zip(kernels, [*kernels[1:], kernels[0]], strict=True)
    return all(in_parallel(*[partial(can_log_in, source, target) for source, target in ring]))


def wait_for_exit(kernel: Kernel) -> int:
    """Wait until a container has exited, and return its exit code."""
    return int(run_on(kernel["agent"], f"docker wait {kernel['container']}"))


def transferred_bytes(kernel: Kernel, interface: str) -> int:
    """Return the number of bytes that an interface of a container has received and sent."""
    counters = [f"/sys/class/net/{interface}/statistics/{direction}_bytes" for direction in ("rx", "tx")]
    return sum(map(int, run_in(kernel, "cat", *counters).split()))


def default_address(agent: str, container: str) -> str:
    """Return the address of a container on the agent's default network; it may change with every start."""
    form = f'{{{{(index .NetworkSettings.Networks "{DEFAULT_NETWORK}").IPAddress}}}}'
    return run_on(agent, shlex.join(["docker", "inspect", "--format", form, container])).strip()


def public_keys(kernel: Kernel, session_id: str) -> set[str]:
    """Return all public keys that a container has: user keys and host keys."""
    folder = f"{SESSIONS}/{session_id}/{kernel['hostname']}/ssh"
    lines = run_on(kernel["agent"], f"cat {folder}/authorized_keys {folder}/known_hosts").splitlines()
    words = [line.split() for line in lines]
    return {line[line.index("ssh-ed25519") + 1] for line in words}

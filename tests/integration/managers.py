"""Commands on manager1, as its service account and as its users."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

from tests.integration.laboratory import Run, run_on, run_playbook, ssh

MANAGER = "manager1"
ACCOUNT = "backendai"
HOME = "/var/lib/backendai-manager"
LIBRARY = "/usr/local/lib/backendai-manager"
SETTINGS = "/etc/backendai"
KEY = f"{HOME}/.ssh/id_ed25519"
SERVE = f"{LIBRARY}/serve"
QUEUE = f"{HOME}/queue"
#: Folders and files of agents and gateways.
AUTHORIZED_KEYS = f"{HOME}/.ssh/authorized_keys"
ACCESS_RULE = "/etc/sudoers.d/backendai-access"


def provision(folder: Path, *options: str, **variables: object) -> Run:
    """Provision manager1 from the machine, with ``manager_*`` variables given without their prefix."""
    return run_playbook(
        "provision_managers", folder, {f"manager_{name}": value for name, value in variables.items()}, *options
    )


def rotate(folder: Path, *options: str) -> Run:
    """Replace the key of manager1 from the machine."""
    return run_playbook("rotate_manager_key", folder, {}, *options)


def run_as(user: str, line: str, *, check: bool = True) -> str:
    """Run a shell line on manager1 as one of its accounts and return its output."""
    return run_on(MANAGER, shlex.join(["runuser", "--user", user, "--", "sh", "-c", line]), check=check)


def log_in_with(key: Path) -> str:
    """Log in to agent1 as the account, from the machine, with a copy of its key; return what ssh complains of."""
    words = [word.replace("root@", f"{ACCOUNT}@") for word in ssh("agent1", "true")]
    words[words.index("-i") + 1] = str(key)
    return subprocess.run(words, capture_output=True, text=True, check=False).stderr


def play(playbook: str, **variables: object) -> tuple[str, Any]:
    """Run a playbook on manager1 as its account, with ``session_*`` variables given without their prefix.

    Returns the output, and what the playbook has written to the file that ``report`` names a variable for.
    """
    report = f"{HOME}/report.json"
    values = {f"session_{name}": value for name, value in variables.items() if name != "report"}
    values |= {"session_queue_path": QUEUE, f"session_{variables.get('report', 'record')}_path": report}
    words = ["bin/ansible-playbook", "-i", f"{SETTINGS}/inventory.yml", f"backendai.cluster.{playbook}"]
    line = shlex.join([f"{LIBRARY}/venv/{words[0]}", *words[1:], "-e", json.dumps(values)])
    settings = f"ANSIBLE_CONFIG={SETTINGS}/ansible.cfg ANSIBLE_NOCOLOR=1"
    output = run_as(ACCOUNT, f"cd {HOME} && rm -f {report} && {settings} {line}")
    return output, json.loads(run_on(MANAGER, f"cat {report} 2> /dev/null; rm -f {report}", check=False) or "null")

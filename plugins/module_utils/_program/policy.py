# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The phases that check the folders of policies: a manager returns those of its own, hosts return what is wrong."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping
from typing import Any

from .._docker.client import DockerUnavailableError, connect
from .._host.store import Store
from .._model.errors import ClusterError, as_phrase
from .._session.mount_sources import MountSettings
from .._session.policy_folders import PolicyFolder, find_folder_problems, find_unprotected, known_users

READ = (
    "/usr/local/lib/backendai-manager/venv/bin/python",
    "-I",
    "-m",
    "backendai_manager.policy",
    "--folders",
    "/etc/backendai/policy.yml",
)
"""The command of a manager that prints the folders of its policy as JSON."""


def policy(_options: Mapping[str, Any], _check_mode: bool) -> dict[str, Any]:
    """Return the ``folders`` of the policy of this manager. Raises :class:`ClusterError` with why there are none."""
    read = subprocess.run(READ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if read.returncode:
        raise ClusterError(as_phrase(read.stderr) or f"its reading ended with {read.returncode}")
    return {"folders": json.loads(read.stdout)}


def policy_folders(options: Mapping[str, Any], _check_mode: bool) -> dict[str, Any]:
    """Return what is wrong with ``folders`` of policies for ``users``, and who has sessions on this host.

    ``kind`` is ``agent`` for a host where sessions mount them, by the ``docker_host``, ``state_path`` and
    ``mount_roots``, and ``manager`` for one that only shares file systems.
    """
    folders = [PolicyFolder(entry["source"], entry["read_only"]) for entry in options["folders"]]
    users = known_users(options["users"])
    unprotected = find_unprotected(folders, users)
    if options["kind"] == "manager":
        return {"users": [], "problems": [], "unprotected": unprotected}
    # Managers are provisioned before agents.
    client = None
    with contextlib.suppress(DockerUnavailableError):
        client = connect(options["docker_host"]) if folders else None
    store = Store(options["state_path"])
    settings = MountSettings(options["mount_roots"], options["docker_host"])
    return {
        "users": known_users(session.plan.user for session in store.load_all()[0]),
        "problems": find_folder_problems(client, store, settings, folders, users),
        "unprotected": unprotected,
    }

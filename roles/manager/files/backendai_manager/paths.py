# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where things are on a manager; the role ``manager`` installs them."""

from __future__ import annotations

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Paths:
    """The folders of a manager: root's are ``programs`` and ``settings``, and only the account enters the others."""

    programs: Path = Path("/usr/local/lib/backendai-manager")
    settings: Path = Path("/etc/backendai")
    home: Path = Path("/var/lib/backendai-manager")
    runtime: Path = Path("/run/backendai-manager")

    @property
    def serve(self) -> Path:
        """The program that sudo starts: the only one that users may run as the account."""
        return self.programs / "serve"

    @property
    def collections(self) -> Path:
        """The folder of collections of this release: an upgrade replaces the link, not what a run uses."""
        return (self.programs / "collections").resolve()

    @property
    def specification(self) -> Path:
        """The specification of a session's options, in the collection."""
        return self.collections / "ansible_collections/backendai/cluster/roles/session/meta/argument_specs.yml"

    @property
    def manager_settings(self) -> Path:
        """What the role has set for the part that runs as the account."""
        return self.settings / "manager.json"

    @property
    def ansible_settings(self) -> Path:
        """A configuration file of Ansible for all runs, if the operator has written one."""
        return self.settings / "ansible.cfg"

    @property
    def last_good_policy(self) -> Path:
        """The policy that was valid when it was read last."""
        return self.home / "policy.last-good.yml"

    @property
    def seen_sessions(self) -> Path:
        """The list of all sessions, as the timer's last run has seen it."""
        return self.home / "sessions.json"

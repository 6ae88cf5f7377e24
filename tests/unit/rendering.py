"""Templates without Ansible's importer and without a play."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ansible.errors import AnsibleFileNotFound
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader
from ansible.template import Templar

from ansible_collections.backendai.cluster.plugins.filter.decoded import decoded

_PATHS = (
    "queue_path",
    "record_path",
    "list_path",
    "page_path",
    "report_path",
    "logs_path",
    "access_path",
    "token_path",
)

OPTIONS_OF_RUN: dict[str, Any] = {
    **dict.fromkeys(_PATHS, ""),
    "name": "",
    "id": "",
    "user": "",
    "user_uid": -1,
    "hosts_template": "hosts.j2",
    "ssh_config_template": "ssh_config.j2",
    "environment_template": "environment.j2",
    "claim_ttl": 600,
    "token_ttl": 3600,
    "claim_attempts": 5,
    "queue_policy": "fifo",
    "queue_patience": 16,
    "history_days": 30,
    "force": False,
    "fresh_home": False,
    "wait": False,
    "history": False,
    "list_format": "table",
    "list_use": False,
    "agent_lost_after": 600,
    "kernel": "",
    "logs_lines": 100,
    "logs_follow": False,
}
"""The options of a run by default."""


def templar(variables: dict[str, Any]) -> Templar:
    """Return what renders templates of roles, with the filter by which they read their options."""
    made = Templar(loader=DataLoader(), variables=variables)
    # The importer would be asked for it, as for lookups below.
    private: Any = made
    private._engine.environment.filters["backendai.cluster.decoded"] = decoded
    return made


class Rendering(ActionBase):
    """Find a template by its absolute path, or else in the collection."""

    def __init__(self, *made_of: Any) -> None:
        super().__init__(*made_of)
        # Full names need Ansible's importer, which would replace the collection among the imports of the tests.
        by_short_name = SimpleNamespace(get=lambda name, **settings: lookup_loader.get(name.split(".")[-1], **settings))
        self._shared_loader_obj = SimpleNamespace(lookup_loader=by_short_name)

    def _find_needle(self, dirname: str, needle: str) -> str:
        assert dirname == "templates"
        if not (Path(needle).is_absolute() and Path(needle).exists()):
            raise AnsibleFileNotFound(file_name=needle)
        return needle

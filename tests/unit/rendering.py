"""An action that renders templates short of Ansible's own importer and of a play."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ansible.errors import AnsibleFileNotFound
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader

OPTIONS_OF_RUN = {
    "claim_ttl": 600,
    "hosts_template": "hosts.j2",
    "ssh_config_template": "ssh_config.j2",
    "environment_template": "environment.j2",
}


class Rendering(ActionBase):
    """No play has templates of its own: a template is a file's absolute path, or else one of the collection's."""

    def __init__(self, *made_of: Any) -> None:
        super().__init__(*made_of)
        # Full names need Ansible's own importer, which would take the collection's place among the tests' imports.
        by_short_name = SimpleNamespace(get=lambda name, **settings: lookup_loader.get(name.split(".")[-1], **settings))
        self._shared_loader_obj = SimpleNamespace(lookup_loader=by_short_name)

    def _find_needle(self, dirname: str, needle: str) -> str:
        assert dirname == "templates"
        if not (Path(needle).is_absolute() and Path(needle).exists()):
            raise AnsibleFileNotFound(file_name=needle)
        return needle

"""What each playbook of a test would import again: it is imported once, in the process that they are forked from.

Ansible reads its settings while it is imported, so they are set first.
"""

from __future__ import annotations

import importlib
import os

from tests.integration.ansible_settings import environment

os.environ.update(environment())
for name in ("cli.playbook", "executor.playbook_executor", "plugins.strategy.linear", "plugins.connection.ssh"):
    importlib.import_module(f"ansible.{name}")

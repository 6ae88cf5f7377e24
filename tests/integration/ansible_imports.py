"""What each playbook of a test would import again: it is imported once, in the process that they are forked from.

Ansible reads its settings while it is imported, so they are set first. In each process it compiles the modules of a
collection, without bytecode files, and reads the documentation of each plugin for its options.
"""

from __future__ import annotations

import gc
import importlib
import os

from tests.integration.ansible_settings import ROOT, environment

os.environ.update(environment())
for name in ("cli.playbook", "executor.playbook_executor", "plugins.strategy.linear", "plugins.connection.ssh"):
    importlib.import_module(f"ansible.{name}")

loader = importlib.import_module("ansible.plugins.loader")
loader.init_plugin_loader()
importlib.import_module("ansible_collections.ansible.builtin")
for kind in ("inventory", "vars", "cache", "connection", "shell", "become", "callback", "strategy"):
    list(getattr(loader, f"{kind}_loader").all(class_only=True))
for path in (ROOT / "plugins" / "action").glob("[a-z]*.py"):
    importlib.import_module(f"ansible_collections.backendai.cluster.plugins.action.{path.stem}")
# The playbook's process sets it up again, for its own command line.
importlib.import_module("ansible.utils.collection_loader._collection_finder")._AnsibleCollectionFinder._remove()
gc.freeze()

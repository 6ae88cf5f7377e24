"""Print the firewall tables that this agent should have, as the input of ``nft`` that replaces them: ``STATE_FOLDER``.

This file runs on an agent, with the installed program in Python's path; its source is piped to ``python3 - WORDS``.
"""

from __future__ import annotations

import sys

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.sync import render_ruleset
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store


def main(state_folder: str) -> None:
    """Print the tables for all stored sessions, with the active host firewall."""
    store = Store(state_folder)
    sys.stdout.write(render_ruleset(store, FirewallState(store).active()))


if __name__ == "__main__":
    main(sys.argv[1])

"""The large lab's command line."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.lab.command import LabError, report
from tests.large.hosts import remove_agents
from tests.large.identity import LargeLab
from tests.large.lab import up


def main() -> int:
    """Run one command; print errors as one sentence."""
    parser = argparse.ArgumentParser(prog="python -m tests.large", description="Simulated agents without engines.")
    commands = parser.add_subparsers(dest="command", required=True)
    options = commands.add_parser("up", help=up.__doc__)
    options.add_argument("--hosts", type=int, default=200, help="number of agents")
    options.add_argument("--sessions", type=int, help="number of their sessions; by default all agents are full")
    commands.add_parser("down", help=remove_agents.__doc__)
    arguments = parser.parse_args()
    lab = LargeLab(Path(__file__).resolve().parents[2])
    try:
        if os.geteuid() != 0:
            raise LabError("this requires root, to create network namespaces")
        if arguments.command == "down":
            remove_agents(lab)
        else:
            up(lab, arguments.hosts, arguments.sessions)
            report(f"up: ansible-playbook -i {lab.inventory} backendai.cluster.list_agents")
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Simulated agents, as many as a cluster may have. It also calls the collection's code, which is installed in .venv."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / ".venv" / "collections"))

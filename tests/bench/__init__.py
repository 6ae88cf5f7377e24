"""The benchmark: the cost of sessions compared with that of the same containers created by other means.

It never fails because of a figure. It also calls the collection's code, which is installed in the environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / ".venv" / "collections"))

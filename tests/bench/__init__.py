"""The benchmark: what sessions cost, beside what the same containers cost otherwise. Never a test with a limit.

It calls the collection's own code too, which the checkout has as an installed collection in its environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / ".venv" / "collections"))

"""A fake ansible-playbook: appends its arguments and environment to the file `notes` beside it.

The optional file `behaviour` beside it contains the duration of a run in seconds, and its exit code; the file `began`
that of the last run that has begun.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

folder = Path(__file__).parent
behaviour = folder / "behaviour"
seconds, code = behaviour.read_text().split() if behaviour.exists() else ("0.5", "0")
began = time.time()
(folder / "began").write_text(f"{seconds} {code}")
time.sleep(float(seconds))
note = {"arguments": sys.argv[1:], "environment": dict(os.environ), "directory": str(Path.cwd())}
with (folder / "notes").open("a") as notes:
    print(json.dumps({**note, "began": began, "ended": time.time()}), file=notes)
sys.exit(int(code))

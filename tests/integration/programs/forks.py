"""Start processes until the kernel refuses one, write their number to a file, and keep them until another exists.

`forks.py MOST STARTED OVER`
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

most, over = int(sys.argv[1]), Path(sys.argv[3])
started: list[int] = []
try:
    while len(started) < most:
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
            os._exit(0)
        started.append(pid)
except BlockingIOError:
    pass
Path(sys.argv[2]).write_text(str(len(started)))
while not over.exists():
    time.sleep(0.1)
for pid in started:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

"""Start processes until the kernel refuses one, keep them for some seconds, and print their number."""

from __future__ import annotations

import os
import signal
import sys
import time

most, seconds = map(int, sys.argv[1:])
started: list[int] = []
try:
    while len(started) < most:
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        started.append(pid)
except BlockingIOError:
    pass
time.sleep(seconds)
for pid in started:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print(len(started))

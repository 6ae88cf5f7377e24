"""Ask web servers again and again until a file exists: ``ask_often.py FILE URL…``; print how often, and the answers."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import urllib.request

asked = answered = 0
while True:
    ends = os.path.exists(sys.argv[1])
    for url in sys.argv[2:]:
        asked += 1
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            answered += 1
    if ends:
        break
    time.sleep(0.02)
print(asked, answered)

"""Ask web servers again and again: ``ask_often.py SECONDS URL…``; print how often, and how many answers came."""

from __future__ import annotations

import contextlib
import sys
import time
import urllib.request

asked = answered = 0
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for url in sys.argv[2:]:
        asked += 1
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            answered += 1
    time.sleep(0.02)
print(asked, answered)

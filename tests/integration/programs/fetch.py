"""Print the content of each URL: `fetch.py URL…`."""

from __future__ import annotations

import sys
import urllib.request

for url in sys.argv[1:]:
    with urllib.request.urlopen(url, timeout=8) as answer:
        print(answer.read().decode())

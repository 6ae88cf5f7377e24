"""A client of the web terminal: `terminal_client.py HOST PATH LINE EXPECTED`; the token is JSON on standard input.

It opens a terminal at the path below the gateway, sizes it, types the line, and prints the screen once it has the
expected line, or after two minutes.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import time
import urllib.parse

COLUMNS, ROWS = 133, 41

host, path, line, expected = sys.argv[1:]
token = json.load(sys.stdin)
tls = ssl.create_default_context()
tls.check_hostname = False
tls.verify_mode = ssl.CERT_NONE


def fetch(method: str, page: str = "", **fields: object) -> tuple[int, str]:
    """Return the status and the text of a page of the terminal."""
    connection = http.client.HTTPSConnection(host, context=tls, timeout=150)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-www-form-urlencoded; charset=UTF-8"}
    connection.request(method, path + page, urllib.parse.urlencode(fields), headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def post(**fields: object) -> dict[str, str]:
    """Send input to the terminal, or wait for its output; an answer to input is empty."""
    text = fetch("POST", "?", width=COLUMNS, height=ROWS, **fields)[1]
    return dict(json.loads(text)) if text.startswith("{") else {}


statuses = [fetch("GET", page)[0] for page in ("", "ShellInABox.js", "styles.css", "print-styles.css")]
session = post(rooturl=f"https://{host}{path}")["session"]
post(session=session, keys=f"{line}\r".encode().hex())
screen, deadline = b"", time.monotonic() + 120
while expected.encode() not in screen.splitlines() and time.monotonic() < deadline:
    screen += post(session=session).get("data", "").encode("latin-1")  # a character for each byte
print(json.dumps({"statuses": statuses, "screen": screen.decode().splitlines()}))

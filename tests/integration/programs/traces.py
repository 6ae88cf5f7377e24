"""Print what a session could leave behind on an agent, as text that can be compared: `traces.py STATE_FOLDER KEPT…`.

The folders ``KEPT`` are left out: what is there outlives sessions.

It queries the engine's API directly, because the command line takes ten times as long.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ENGINE = "/var/run/docker.sock"


def ask_engine(path: str) -> Any:
    """Return the engine's response to a GET request."""
    with socket.socket(socket.AF_UNIX) as engine:
        engine.connect(ENGINE)
        engine.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        answer = b"".join(iter(lambda: engine.recv(1 << 16), b""))
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def files(folder: Path, *kept: Path) -> Iterator[str]:
    """Yield all files in a folder but those in each ``kept``, with modes, owners and sizes."""
    for path in (folder, *folder.rglob("*")):
        if {*kept} & {path, *path.parents}:
            continue
        with contextlib.suppress(FileNotFoundError):  # a temporary file
            stated = path.lstat()
            # A directory does not shrink.
            size = 0 if stat.S_ISDIR(stated.st_mode) else stated.st_size
            yield f"{path.relative_to(folder)} {stated.st_mode & 0o7777:o} {stated.st_uid} {size}"


def lines(*command: str) -> list[str]:
    """Return what a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def addresses() -> Iterator[str]:
    """Yield all global addresses, each with its link, whatever the state of that."""
    for link in json.loads("".join(lines("ip", "-j", "address", "show"))):
        yield from (f"{link['ifname']} {entry['local']}" for entry in link["addr_info"] if entry["scope"] == "global")


traces = {
    "containers": [name for container in ask_engine("/containers/json?all=1") for name in container["Names"]],
    "networks": [network["Name"] for network in ask_engine("/networks")],
    "volumes": [volume["Name"] for volume in ask_engine("/volumes")["Volumes"] or ()],
    # Those of ended sessions are removed later, by a unit.
    "homes": os.listdir(f"{sys.argv[1]}/homes/sessions"),
    "links": os.listdir("/sys/class/net"),
    "addresses": addresses(),
    "namespaces": lines("ip", "netns", "list"),
    "tables": lines("/usr/sbin/nft", "list", "tables"),
    "files": files(*map(Path, sys.argv[1:])),
}
for kind, names in traces.items():
    print(f"== {kind}", *sorted(names), sep="\n")

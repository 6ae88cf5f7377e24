"""Small host program, and tasks and units that run it in real Python processes."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._program import launcher
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_program import LAUNCHER, PACKAGE
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_request import COMMAND

ECHO = """
import os, sys, threading, time

def reply_to(request):
    if "print" in request:
        print(request["print"], end="")
    if "hang" in request:
        threading.Thread(target=time.sleep, args=(600,)).start()
    return {"result": {"request": request, "ran": __file__, "path": sys.path}}

def command(arguments):
    print(__file__, *arguments)
    return 3
"""
"""The main module of a program that returns its request and its location."""

EMPTY: Mapping[str, Any] = MappingProxyType({})


def archive_of(main: str = ECHO) -> bytes:
    """Return a program of this module only."""
    folders = PACKAGE.split("/")
    files = {"/".join([*folders[:depth], "__init__.py"]): "" for depth in range(1, len(folders) + 1)}
    files |= {f"{PACKAGE}/_program/__init__.py": "", f"{PACKAGE}/_program/main.py": main}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, content in {"__main__.py": LAUNCHER.read_text(), **files}.items():
            packed.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


@dataclasses.dataclass
class Host:
    """The ``home`` of programs on a host. Processes run in the folder ``cwd``, and create temporary folders in it."""

    home: Path
    cwd: Path
    text: bytes = LAUNCHER.read_bytes()
    before: str = ":"
    """The shell command that starts each process."""

    def folder(self, archive: bytes) -> Path:
        """Return the folder of a program on this host, for this Python."""
        return self.home / f"{hashlib.sha256(archive).hexdigest()}-{sys.implementation.cache_tag}"

    def begin(
        self, archive: bytes, *, send: bool = True, request: Mapping[str, Any] | None = EMPTY, **header: Any
    ) -> subprocess.Popen[bytes]:
        """Start a task that sends a request to a program, with or without its archive."""
        sent = header.pop("sent", archive if send else b"")
        manifest = {"digest": hashlib.sha256(archive).hexdigest(), "release": "1.0.0", "home": str(self.home)}
        described = {**manifest, "size": len(sent), "provision": False, "check": False, **header}
        stdin = b"" if request is None else json.dumps(dict(request)).encode()
        payload = b"%d\n%s%s\n%s%s" % (len(self.text), self.text, json.dumps(described).encode(), sent, stdin)
        pipe, environment = subprocess.PIPE, {"TMPDIR": str(self.cwd), "PATH": "/usr/bin:/bin"}
        command = self._command("-c", COMMAND)
        process = subprocess.Popen(command, cwd=self.cwd, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)
        assert process.stdin
        process.stdin.write(payload)
        process.stdin.close()
        process.stdin = None
        return process

    def ask(self, archive: bytes, **how: Any) -> dict[str, Any]:
        """Return the reply to a task; see :meth:`begin`."""
        return reply_of(self.begin(archive, **how))

    def provision(self, archive: bytes, release: str = "1.0.0", *, check: bool = False) -> bool:
        """Install a program for units, and return whether that changed anything, or would have."""
        reply = self.ask(archive, request=None, provision=True, release=release, check=check)
        assert set(reply) == {"installed"}
        return bool(reply["installed"])

    def unit(self, *arguments: str, source: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run the program like a systemd unit, with only the modules of Python itself."""
        program = source or self.home / launcher.CURRENT / launcher.SOURCE
        command = self._command("-I", "-S", str(program), *arguments)
        return subprocess.run(command, cwd=self.cwd, capture_output=True, text=True, check=False)

    def names(self) -> set[str]:
        """Return the contents of the home."""
        return {path.name for path in self.home.iterdir()}

    def _command(self, *arguments: str) -> list[str]:
        return ["/bin/sh", "-c", f'{self.before}; exec "$@"', "sh", sys.executable, *arguments]


def reply_of(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the one reply of a task, which must succeed soon."""
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
    (reply,) = (line for line in output.decode().splitlines() if line.startswith(launcher.MARK))
    parsed: dict[str, Any] = json.loads(reply[len(launcher.MARK) :])
    return parsed

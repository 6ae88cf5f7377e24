"""A site for playbooks that run in ansible-playbook itself; a program stands in for ssh and the hosts behind it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._program.launcher import MARK
from tests.integration import ansible_settings
from tests.integration.ansible_settings import ROOT
from tests.integration.forked_ansible import run_forked

PROGRAM = (sys.executable, "-m", "ansible", "playbook")
SETTINGS = {"ANSIBLE_SSH_RETRIES": "0"}

SECONDS = 300
"""How long a playbook may take that nothing interrupts."""

PLAY: dict[str, Any] = {"hosts": "localhost", "gather_facts": False}

TEAMS = pytest.mark.parametrize(
    "settings",
    [{}, {"ANSIBLE_ANY_ERRORS_FATAL": "True", "ANSIBLE_STRATEGY": "free"}],
    ids=["as usual", "any_errors_fatal, strategy: free"],
)
"""The settings that teams have in their ``ansible.cfg``."""

# A file ``away-HOST`` makes a host unreachable, ``hang-PHASE`` or ``hang-NAME`` lets a request hang.
BEGIN = """#!{python}
import json, os, sys, time
from pathlib import Path

folder = Path({folder!r})
host = next(word for word in sys.argv if word in {hosts!r})

def go_away():
    print("no route to host", file=sys.stderr)
    sys.exit(255)

def hang(step):
    if (folder / f"hang-{{step}}").exists():
        with (folder / "hanging").open("a") as hanging:
            hanging.write(f"{{os.getpid()}}\\n")
        (folder / "worker").write_text(str(os.getppid()))
        time.sleep(600)

if "-O" in sys.argv:
    sys.exit(1)
if (folder / f"away-{{host}}").exists():
    go_away()
stream = sys.stdin.buffer
stream.read(int(stream.readline()))
stream.read(json.loads(stream.readline())["size"])
request = json.loads(stream.read())
phase, options, check = (request[name] for name in ("phase", "options", "check_mode"))
name = ":".join(filter(None, [host, phase, options.get("operation")]))
with (folder / "asked").open("a") as asked:
    asked.write(f"{{name}}{{':look' if check else ''}}\\n")
for step in (phase, name):
    hang(step)
"""
END = """
print({mark!r} + json.dumps({{"result": result}}))
"""

SURVEYED = "result = json.loads((folder / host).read_text())"
"""A program for hosts that only say what :meth:`PlaySite.hold` has given them."""


class PlaySite:
    """A folder with an inventory. ``act`` is the program of its hosts, which sets ``result``.

    It has ``folder``, ``host``, the ``phase`` and ``options`` of the request, ``check`` (whether in check mode), and
    ``name``, which is the host, the phase and the operation, with colons.
    """

    def __init__(self, folder: Path, act: str, groups: Mapping[str, Sequence[str]]) -> None:
        self.folder, self.variables = folder, {"result": f"{folder}/result.json"}
        hosts = [name for names in groups.values() for name in names]
        program = BEGIN.format(python=sys.executable, folder=str(folder), hosts=hosts) + act + END.format(mark=MARK)
        (folder / "ssh").write_text(program)
        (folder / "ssh").chmod(0o755)
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        remote = {"ansible_ssh_executable": str(folder / "ssh"), "ansible_python_interpreter": "/usr/bin/python3"}
        children = {name: {"hosts": {host: {} for host in names}, "vars": remote} for name, names in groups.items()}
        inventory = {"all": {"hosts": {"localhost": local}, "children": children}}
        (folder / "inventory.yml").write_text(yaml.safe_dump(inventory))

    def arguments(self, playbook: str | list[dict[str, Any]], *arguments: str) -> list[str]:
        """Return the arguments of a playbook: the name of one, or its plays."""
        if not isinstance(playbook, str):
            (self.folder / "play.yml").write_text(yaml.safe_dump(playbook))
            playbook = str(self.folder / "play.yml")
        return ["-i", str(self.folder / "inventory.yml"), "-e", json.dumps(self.variables), playbook, *arguments]

    def run(
        self, playbook: str | list[dict[str, Any]], *arguments: str, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a playbook: forked, but with settings in a process of its own, since Ansible reads those as it begins."""
        own = self.arguments(playbook, *arguments)
        if settings:
            line, known = [*PROGRAM, *own], environment(settings)
            return subprocess.run(line, cwd=ROOT, env=known, capture_output=True, text=True, check=False)
        errors = self.folder / "errors"
        line = ["ansible-playbook", *own]
        code, output = run_forked(line, self.folder / "output", SECONDS, errors=errors, settings=SETTINGS)
        return subprocess.CompletedProcess(line, code, output, errors.read_text())

    def play(self, playbook: str | list[dict[str, Any]], *arguments: str, **settings: str) -> tuple[int, str]:
        """Run a playbook; return its exit code and its output."""
        run = self.run(playbook, *arguments, **settings)
        return run.returncode, run.stdout + run.stderr

    @contextlib.contextmanager
    def running(self, playbook: str | list[dict[str, Any]], *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a playbook that the block interrupts; its output is in the file ``output``."""
        # Whoever runs the tests in the background may have signals ignored.
        line = ["env", "--default-signal=INT,TERM", *PROGRAM, *self.arguments(playbook, *arguments)]
        with (
            (self.folder / "output").open("wb") as shown,
            subprocess.Popen(
                line, cwd=ROOT, env=environment({}), start_new_session=True, stdout=shown, stderr=shown
            ) as run,
        ):
            try:
                yield run
            except BaseException:
                # Nothing has interrupted it, and it might never end.
                os.killpg(run.pid, signal.SIGKILL)
                raise

    def hold(self, host: str, facts: AgentFacts) -> None:
        """Let an agent answer surveys with these facts."""
        (self.folder / host).write_text(json.dumps({"agent": facts.to_dict(), "error": None}))

    @property
    def result(self) -> dict[str, Any]:
        """What a playbook has saved with :func:`save`."""
        result: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return result

    @property
    def asked(self) -> list[str]:
        """The names of the requests of hosts, in any order; those of check mode end with ``:look``."""
        path = self.folder / "asked"
        return sorted(path.read_text().split()) if path.exists() else []


def save(register: str) -> dict[str, Any]:
    """Return a task that saves a result for :attr:`PlaySite.result`."""
    content = f"{{{{ {register} | to_json }}}}"
    return {"ansible.builtin.copy": {"content": content, "dest": "{{ result }}"}, "delegate_to": "localhost"}


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a run with these settings."""
    return {**ansible_settings.environment(), **SETTINGS, **settings}


def await_lines(path: Path, count: int) -> list[str]:
    """Return the words of a file as soon as it has as many."""
    deadline = time.monotonic() + 90
    while not path.exists() or len(path.read_text().split()) < count:
        assert time.monotonic() < deadline, f"{path.name} never came"
        time.sleep(0.05)
    return path.read_text().split()


def lives(pid: str) -> bool:
    """Return whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False

"""Runs playbooks in processes that are forked from one that has imported Ansible, which is most of their start.

``ansible-playbook`` does the same after its imports. Tests that kill a run start the program itself.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from tests.integration.ansible_settings import ROOT, environment

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["__main__", "tests.integration.ansible_imports"])


def run_forked(
    line: Sequence[str],
    output: Path,
    timeout: float,
    *,
    errors: Path | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, str]:
    """Run the command line of a playbook to completion; return its exit code and its output, which ``output`` is for.

    Its standard error is part of that, unless there is a file for ``errors``. After ``timeout`` seconds it is killed.
    ``settings`` are added to the environment: those that Ansible reads while it runs, such as options of plugins.
    Raises :class:`subprocess.TimeoutExpired`.
    """
    variables = {**environment(), **settings}
    process = _CONTEXT.Process(target=_play, args=(list(line), variables, str(output), str(errors or output)))
    for path in filter(None, (output, errors)):
        path.write_bytes(b"")
    process.start()
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise subprocess.TimeoutExpired(line, timeout)
    return process.exitcode, output.read_text(errors="replace")


def _play(line: Sequence[str], variables: Mapping[str, str], output: str, errors: str) -> NoReturn:
    """Become what the shell would have started: a session of its own, no input, and all output in files."""
    os.setsid()
    os.chdir(ROOT)
    with open(os.devnull, "rb") as nothing, open(output, "ab", 0) as shown, open(errors, "ab", 0) as wrong:
        for source, target in ((nothing, 0), (shown, 1), (wrong, 2)):
            os.dup2(source.fileno(), target)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = list(line)
    from ansible.cli.playbook import PlaybookCLI

    PlaybookCLI.cli_executor(sys.argv)
    sys.exit(0)

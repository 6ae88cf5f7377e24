"""The part of the kit that hides a user's variables from programs with more rights, and gives them to the command."""

from __future__ import annotations

import subprocess

from tests.unit.builders import REPOSITORY

SCRIPT = (REPOSITORY / "roles/agent/files/kit/hide-loader-variables").read_text()


def run(environment: dict[str, str], after: str) -> str:
    """Source the script as the entrypoint does, with a command of two words, and return what ``after`` prints."""
    text = SCRIPT.replace("/opt/backendai/bin/busybox env", "/usr/bin/env")
    line = f"set -eu; set -- sh -c 'echo \"$LD_AUDIT|$LD_DEBUG_OUTPUT|$OTHER\"'\n{text}\n{after}"
    process = subprocess.run(["/bin/sh", "-c", line], env=environment, capture_output=True, text=True, check=True)
    return process.stdout


def test_the_program_does_not_have_them_and_the_command_has() -> None:
    given = {"LD_AUDIT": "a library", "LD_DEBUG_OUTPUT": "/tmp/it's", "OTHER": "x", "PATH": "/usr/bin:/bin"}
    assert run(given, 'echo "${LD_AUDIT-none}|${LD_DEBUG_OUTPUT-none}|$OTHER"') == "none|none|x\n"
    assert run(given, 'exec "$@"') == "a library|/tmp/it's|x\n"


def test_without_them_the_command_is_as_it_was() -> None:
    assert run({"PATH": "/usr/bin:/bin"}, "echo $#; set | grep -c _backendai_ || :") == "3\n0\n"

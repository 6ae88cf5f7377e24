"""The command ``backendai`` on manager1, as one of its users."""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Any

from tests.integration.laboratory import PYTHON, host_variables, ssh
from tests.integration.managers import MANAGER, run_as

SMALL = ("--image", PYTHON, "--cpu", "1", "--mem", "128m")
SEPARATOR = "---- standard error"


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a command has printed, and its exit code."""

    code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        """The output as data."""
        return json.loads(self.output)


def shell(user: str, line: str) -> Answer:
    """Run a shell line on manager1, in the home of one of its users."""
    script = f"cd; {{ {line}; }} 2> .errors; code=$?; echo; echo $code; echo '{SEPARATOR}'; cat .errors; rm -f .errors"
    output, errors = run_as(user, script).split(f"{SEPARATOR}\n")
    output, code = output.rstrip("\n").rsplit("\n", 1)
    return Answer(int(code), output.rstrip("\n"), errors)


def backendai(user: str, *words: str) -> Answer:
    """Run the command as a user."""
    return shell(user, shlex.join(["backendai", *words]))


def connection(user: str, line: str, *options: str) -> list[str]:
    """Return the SSH command that runs a shell line on manager1 for one of its users, who logs in."""
    command, *words, login, _line = ssh(MANAGER, line)
    return [command, *options, *words, login.replace(f"{host_variables(MANAGER)['ansible_user']}@", f"{user}@"), line]


def create(user: str, name: str, *words: str) -> Any:
    """Create a session, by default a small one, and return its record."""
    answer = backendai(user, "create", "--name", name, *SMALL, "--json", *words)
    assert answer.code == 0, answer
    return answer.json

# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command ``backendai``, as it runs for the user."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import CommandError
from .paths import Paths
from .user.arguments import SHORT_HELP, parse_arguments
from .user.service import Service
from .user.ssh_files import SshFiles
from .user.text import wrapped


def main() -> int:
    """Run the command of the words on the command line, and return its exit code."""
    paths = Paths()
    sys.path.append(str(paths.collections))
    return run(sys.argv[1:], paths, Path.home())


def run(words: Sequence[str], paths: Paths, home: Path, service: Service | None = None) -> int:
    """Run a command. Whatever goes wrong is one sentence on standard error, and an exit code."""
    try:
        if not words:
            sys.stdout.write(SHORT_HELP)
            return 0
        options, command = parse_arguments(words)
        # rich takes a tenth of a second, which --help does not need.
        from .user.verbs import VERBS, Invocation

        invocation = Invocation(options, command, paths, SshFiles(home / ".ssh"), service or Service(paths))
        return VERBS[options.verb](invocation)
    except CommandError as error:
        _complain(str(error))
        return 2 if error.status == "refused" else 1
    except KeyboardInterrupt:
        _complain("cancelled.")
        return 1
    except BrokenPipeError:
        # The reader of our output has gone, such as `head`; Python must not complain at its end, either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as error:
        _complain(f"{error.filename or 'a file'}: {error.strerror or type(error).__name__}.")
        return 1


def _complain(text: str) -> None:
    lines = ["".join(char for char in line if char.isprintable()) for line in f"backendai: {text}".splitlines()]
    width = max(map(len, lines))
    with contextlib.suppress(OSError):
        width = os.get_terminal_size(sys.stderr.fileno()).columns or width
    sys.stderr.writelines(f"{shown}\n" for line in lines for shown in wrapped(line, width))


if __name__ == "__main__":
    sys.exit(main())

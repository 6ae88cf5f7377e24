# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command line: verbs and flags, and what may have been meant by a wrong one."""

from __future__ import annotations

import argparse
import difflib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..errors import RefusedError
from ..options import parse_gpus, parse_time
from ..protocol import MAX_SECONDS
from .spec_file import parse_assignments

SHORT_HELP = """\
Sessions: sets of containers on one private network, over one or more hosts.

  backendai limits                     images, folders and more that you may have
  backendai create --name t1 --image IMAGE --gpu 4
  backendai list                       your sessions; --all: everybody's
  backendai ssh t1                     a shell in main1; ssh t1 sub1 -- COMMAND
  backendai logs -f t1                 what it prints
  backendai why t1                     why it waits, or has ended
  backendai end t1

backendai --help lists all verbs, backendai VERB --help the words of one.
"""


class _Parser(argparse.ArgumentParser):
    """Reports errors as one sentence; ``-v`` may be before or behind the verb."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "allow_abbrev": False})
        # Such as -1h: the value of a flag, which judges it, and no flag itself.
        self._negative_number_matcher = re.compile(r"-\d")
        self.add_argument("-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help="show each step")

    def error(self, message: str) -> NoReturn:
        raise RefusedError(f"{message.removesuffix('.')}; see {self.prog} --help.")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    parser = _Parser(prog="backendai", description="Start, use and end your own cluster sessions.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser)
    _add_create(verbs.add_parser("create", help="create a session, or repair it if it exists"))

    listing = verbs.add_parser("list", help="list your sessions")
    listing.add_argument("--all", action="store_true", help="those of other users, too")
    listing.add_argument("--history", action="store_true", help="those that have ended, too")
    listing.add_argument("--watch", action="store_true", help="again and again, until Ctrl-C")
    listing.add_argument("--cached", action="store_true", help="as the timer's last run has seen them: at once")
    listing.add_argument("--names", action="store_true", help="only their names, one a line")
    _add_json(listing)

    for verb, text in (("show", "show all about a session"), ("why", "say why it waits, is degraded or has ended")):
        one = verbs.add_parser(verb, help=text)
        one.add_argument("session", metavar="NAME")
        _add_json(one)

    logs = verbs.add_parser("logs", help="show what the containers have printed")
    logs.add_argument("session", metavar="NAME")
    logs.add_argument("host", metavar="HOST", nargs="?", default="", help="one container, such as sub1")
    logs.add_argument("-f", "--follow", action="store_true", help="and what they print, until the session ends")
    logs.add_argument("-n", "--lines", type=int, default=100, help="the number of last lines of each (100)")
    _add_json(logs)

    ssh = verbs.add_parser("ssh", help="log in to a container, or run a command there")
    ssh.add_argument("session", metavar="NAME")
    ssh.add_argument("host", metavar="HOST", nargs="?", default="", help="main1 if omitted")
    ssh.usage = "backendai ssh NAME [HOST] [-- COMMAND …]"

    config = verbs.add_parser("ssh-config", help="write ~/.ssh/backendai_config, for ssh, scp, rsync and editors")
    config.add_argument("--for-laptop", action="store_true", help="print one for another computer instead")
    config.add_argument("--key", action="append", default=[], metavar="FILE", help="the private key there")

    for verb, text in (
        ("code", "print a link that opens a session in VS Code, on another computer"),
        ("connect", "connect ssh, which starts it, to a session"),
    ):
        verbs.add_parser(verb, help=text).add_argument("session", metavar="NAME")

    opening = verbs.add_parser("open", help="print a link to an app, with a fresh token")
    opening.add_argument("session", metavar="NAME")
    opening.add_argument("app", metavar="APP", nargs="?", default="")
    opening.add_argument("--seconds", type=_seconds, default=3600, help="how long the link is valid, such as 12h (1h)")
    _add_json(opening)

    end = verbs.add_parser("end", help="end sessions, or cancel those that wait")
    end.add_argument("sessions", metavar="NAME", nargs="+")
    end.add_argument("--yes", action="store_true", help="without asking, also if one is older than an hour")
    end.add_argument("--force", action="store_true", help="at once, also if some of its agents do not answer")
    repair = verbs.add_parser("repair", help="repair a session")
    repair.add_argument("session", metavar="NAME")
    repair.add_argument("--fresh-home", action="store_true", help="with new containers and an empty /home/work")
    _add_json(verbs.add_parser("agents", help="what is free, and the largest session that would start now"))
    _add_json(verbs.add_parser("limits", help="what you may have, what you hold, and what is free"))
    verbs.add_parser("schema", help="print the JSON Schema of a spec file")
    verbs.add_parser("template", help="print a spec file to begin with")
    return parser


def _seconds(text: str) -> int:
    return _judge(parse_time, text)


def _gpus(text: str) -> int:
    """Return a number of GPUs; who names a model, as in ``H100:4:80g``, learns how that is done."""
    words = re.findall(r"[A-Za-z0-9-]+", text[:80])
    memory = next((word for word in words if re.fullmatch(r"\d+[gG][bB]?", word)), "")
    models = (word for word in words if re.search(r"[A-Za-z]", word) and re.search(r"\d", word) and word != memory)
    model = next(models, "")
    if not model:
        example = """; a model is asked for by --gpu 1 --set gpu='{"model": "H100"}'"""
        return _judge(parse_gpus, text, example if re.search(r"[A-Za-z]", text) else "")
    count = next((word for word in words if re.fullmatch(r"\d{1,2}", word)), "1")
    size = f"{memory.lower().removesuffix('b')}" if memory else ""
    asked = json.dumps({"model": model, **({"memory": size} if size else {})})
    return _judge(parse_gpus, text, f"; with a model it is --gpu {count} --set gpu='{asked}'")


def _judge(parse: Callable[[object], int], text: str, more: str = "") -> int:
    """Return what ``parse`` reads in the value of a flag."""
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} {error}{more}") from None


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")


def _add_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar="FILE", nargs="?", help="a spec in YAML; - for standard input")
    parser.add_argument("--name", help="the name of the session")
    parser.add_argument("--image", help="the image of its containers; limits says which you may have")
    parser.add_argument("--size", type=int, help="the number of containers")
    parser.add_argument("--multi-node", action="store_true", help="let them run on several agents")
    for name, text in (("cpu", "cores"), ("mem", "memory, such as 8g")):
        parser.add_argument(f"--{name}", help=f"{text} of each container")
    parser.add_argument("--gpu", type=_gpus, help="NVIDIA GPUs of each container")
    parser.add_argument(
        "--slot", action="append", default=[], metavar="SLOT=N", help="another resource of each container"
    )
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable of its containers")
    parser.add_argument("--mount", action="append", metavar="FOLDER", help="a folder that the policy offers")
    parser.add_argument("--app", action="append", metavar="APP", help="an app, such as jupyter or terminal")
    parser.add_argument("--command", help="a batch session: it ends with this shell command")
    parser.add_argument("--group", help="the resource group")
    parser.add_argument("--set", action="append", default=[], metavar="WORD=VALUE", help="any other word of a spec")
    parser.add_argument("--key", action="append", default=[], metavar="FILE", help="a public key that may log in, too")
    parser.add_argument(
        "--wait",
        type=_seconds,
        nargs="?",
        const=MAX_SECONDS,
        default=0,
        metavar="TIME",
        help="until it runs, or for TIME, such as 10m",
    )
    parser.add_argument(
        "--wait-for-hosts", action="store_true", help="wait, too, for agents with more room than there are"
    )
    parser.add_argument("--follow", action="store_true", help="wait, and show its output until it ends")
    parser.add_argument("--dry-run", action="store_true", help="check and plan only")
    _add_json(parser)


def parse_arguments(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and the words behind ``--``. Raises :class:`RefusedError` with a sentence."""
    own, command = list(words), []
    if "--" in own:
        index = own.index("--")
        own, command = own[:index], own[index + 1 :]
    parser = build_parser()
    verbs = _verbs(parser)
    first = next((word for word in own if not word.startswith("-")), None)
    if first is not None and first not in verbs:
        raise RefusedError(f"{first[:40]!r} is not a verb; {_meant(first, [*verbs])}")
    options, unknown = parser.parse_known_args(own, argparse.Namespace(verbose=False))
    if unknown:
        known = [flag for action in verbs[options.verb]._actions for flag in action.option_strings]
        raise RefusedError(
            f"{unknown[0][:80]!r} is not a word of {options.verb}; {_meant(unknown[0].partition('=')[0], known)}"
        )
    if command and options.verb != "ssh":
        raise RefusedError(f"{options.verb} takes no command behind --.")
    return options, command


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (action,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(action.choices)


def _meant(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."


def session_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the flags of ``create`` say of the session, by the words of a spec."""
    resources = {
        slot: value
        for slot, value in (("cpu", options.cpu), ("mem", options.mem), ("cuda.device", options.gpu))
        if value is not None
    }
    resources |= parse_assignments("--slot", options.slot)
    words = parse_assignments("--set", options.set)
    flags = {
        "name": options.name,
        "image": options.image,
        "cluster_size": options.size,
        "cluster_mode": "multi-node" if options.multi_node else None,
        "resources": resources or None,
        "env": parse_assignments("--env", options.env) or None,
        "mounts": options.mount,
        "apps": options.app,
        "command": options.command,
        "resource_group": options.group,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    for name in words.keys() & given:
        raise RefusedError(f"{name} is given twice: by --set and by an option of its own; leave one out.")
    return words | given

"""Check the pages of documentation: examples parse, and the names, files and links that they contain exist."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.gates.playbook_pages import COLLECTION, HOST_GROUP, VARIABLE, RoleOption, read_role_options

PAGES = ("*.md", "docs/*.md", "roles/*/README.md")
EXTRA_VARIABLES = re.compile(r"(?<![\w-])(?:-e|--extra-vars)[ =]+('[^']*'|\"[^\"]*\"|\S+)")
QUALIFIED = re.compile(rf"(?<![\w./-]){re.escape(COLLECTION)}\.(\w+)")
PLAYBOOK_RUN = re.compile(rf"\bansible-playbook\b[^|;]*?(?<![\w./-]){re.escape(COLLECTION)}\.(\w+)")
MAKE = re.compile(r"(?:^|[;&|] *|\bsudo )make +([^;&|#]+)")
PROMPT = re.compile(r"[^\s$#]*[$#] ")
UNRESOLVED_LINK = re.compile(r"\[[^\]]+\]\[[^\]]*\]")
SHELLS = {"bash", "console", "sh", "shell", "shell-session"}
CODE_FOLDERS = ("plugins", "plugins/module_utils", "plugins/plugin_utils")
"""What pages name files of the code relative to."""
FORBIDDEN = {
    "agent_schedulable[:=] ?false": (
        "drain_agents and cordon_agents take an agent out of service, at once, for all managers, and with a reason"
    ),
    r"docker network rm backendai|rm -r\S* /var/lib/backendai|rm \S*/system/backendai": (
        "remove_agents and remove_gateways give a host back, by the record of what it was before"
    ),
    "provision_managers.*manager_state=absent": "remove_managers gives a manager back, and closes hosts to its key",
    r"^\| *users\b.*\| *-": "managers have users, groups and projects: their accounts, and the policy",
}
"""What no page may say, and why: elsewhere pages say the opposite."""


@dataclass(frozen=True)
class Fault:
    page: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.problem}"


@dataclass(frozen=True)
class Checkout:
    """The names that pages may use."""

    root: Path

    @cached_property
    def playbooks(self) -> set[str]:
        return {path.stem for path in self.root.glob("playbooks/*.yml")}

    @cached_property
    def plugins(self) -> set[str]:
        """The names of modules, plugins and roles."""
        files = self.root.glob("plugins/*/*.py")
        return {path.stem for path in files} | {path.name for path in self.root.glob("roles/*")}

    @cached_property
    def options(self) -> dict[str, RoleOption]:
        return read_role_options(self.root)

    @cached_property
    def variables(self) -> set[str]:
        """The options of roles, and the variables of playbooks that name groups of hosts."""
        texts = (path.read_text() for path in self.root.glob("playbooks/**/*.yml"))
        return {*self.options, *(name for text in texts for name, _group in HOST_GROUP.findall(text))}

    @cached_property
    def groups(self) -> set[str]:
        """The groups that the inventory plugin makes of the sessions in examples and of the hosts in inventory/."""
        pages = "".join(path.read_text() for path in self.pages)
        inventories = "".join(path.read_text() for path in self.root.glob("inventory/*.yml"))
        sessions = re.findall(r"session_name(?:=|: )([a-z0-9-]+)", pages)
        hosts = re.findall(r"^ +(\w+):$", inventories, re.MULTILINE)
        return {f"session_{name.replace('-', '_')}" for name in sessions} | {f"agent_{name}" for name in hosts}

    @cached_property
    def tests(self) -> set[str]:
        """The names of all tests, without the prefix, as docs/security.md names them."""
        texts = (path.read_text() for path in self.root.glob("tests/**/test_*.py"))
        return {name for text in texts for name in re.findall(r"^def test_(\w+)", text, re.MULTILINE)}

    @cached_property
    def names(self) -> set[str]:
        """All names that are written like a variable."""
        return self.variables | self.playbooks | self.plugins | self.groups | self.tests | self.firewall_names

    @cached_property
    def firewall_names(self) -> set[str]:
        """The sets and chains of the firewall's tables."""
        texts = (path.read_text() for path in self.root.glob("plugins/module_utils/_firewall/*.py"))
        return {name for text in texts for names in re.findall(r"@(\w+)|chain (\w+) ", text) for name in names if name}

    @cached_property
    def pages(self) -> list[Path]:
        return sorted({path for pattern in PAGES for path in self.root.glob(pattern)})

    @cached_property
    def targets(self) -> set[str]:
        return set(re.findall(r"^([a-z][a-z-]*):", self.makefile, re.MULTILINE))

    @cached_property
    def settings(self) -> set[str]:
        """The variables of the Makefile that a command may set."""
        return set(re.findall(r"^(\w+) \?=", self.makefile, re.MULTILINE))

    @cached_property
    def makefile(self) -> str:
        return (self.root / "Makefile").read_text()

    @cached_property
    def folders(self) -> set[str]:
        """The folders at the top; a path that begins with one of them is of the checkout."""
        return {path.name for path in self.root.iterdir() if path.is_dir() and not path.name.startswith(".")}

    def has_file(self, path: str) -> bool:
        """Whether a path, which may have wildcards, is of a file or folder of the checkout."""
        return next(self.root.glob(path.rstrip("/")), None) is not None


class Page:
    """One page, taken apart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = path.read_text().split("\n")
        self.tokens = MarkdownIt("commonmark").enable("table").parse("\n".join(self.lines))

    def fences(self) -> Iterator[tuple[int, str, str]]:
        """Yield the line of the content, the language and the content of each fenced block."""
        for token in self.tokens:
            if token.type == "fence" and token.map:
                yield token.map[0] + 2, token.info.strip().lower(), token.content

    def inline(self, kind: str) -> Iterator[tuple[int, Token]]:
        """Yield the line and the token of each inline element of a kind."""
        for block in self.tokens:
            for token in block.children or ():
                if token.type == kind:
                    text = token.content or str(token.attrGet("href") or token.attrGet("src"))
                    yield self._line(block, text), token

    def headings(self) -> Iterator[str]:
        for opening, content in zip(self.tokens, self.tokens[1:], strict=False):
            if opening.type == "heading_open":
                yield "".join(token.content for token in content.children or ())

    def anchors(self) -> set[str]:
        """Return the anchors of the headings, as GitHub makes them."""
        anchors: dict[str, int] = {}
        for heading in self.headings():
            slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            anchors[slug] = count = anchors.get(slug, -1) + 1
            if count:
                anchors[f"{slug}-{count}"] = 0
        return set(anchors)

    def _line(self, block: Token, text: str) -> int:
        """Return the first line of a block that contains a text."""
        first, last = block.map or (0, 0)
        return next((line for line in range(first, last) if text in self.lines[line]), first) + 1


def check_page(path: Path, checkout: Checkout) -> list[Fault]:
    """Return what is wrong with a page."""
    page = Page(path)
    name = str(path.relative_to(checkout.root))
    problems = [
        *_fence_problems(page, checkout),
        *_inline_problems(page, checkout),
        *_link_problems(page, checkout),
        *_forbidden_problems(page),
    ]
    return [Fault(name, line, problem) for line, problem in dict.fromkeys(sorted(problems))]


def _fence_problems(page: Page, checkout: Checkout) -> Iterator[tuple[int, str]]:
    for first, language, content in page.fences():
        if language in ("yaml", "yml"):
            yield from _yaml_problems(first, content, checkout)
        elif language == "json":
            yield from _json_problems(first, content)
        for line, text in _joined_lines(first, content):
            yield from ((line, problem) for problem in _name_problems(text, checkout))
            yield from ((line, problem) for problem in _path_problems(text.split(), checkout))
            command = _command(language, text)
            if command is not None:
                yield from ((line, problem) for problem in _make_problems(command, checkout))


def _inline_problems(page: Page, checkout: Checkout) -> Iterator[tuple[int, str]]:
    for line, token in page.inline("code_inline"):
        problems = [
            *_name_problems(token.content, checkout),
            *_path_problems(token.content.split(), checkout),
            *_make_problems(token.content, checkout),
            *_mention_problems(token.content, checkout),
        ]
        yield from ((line, problem) for problem in problems)


def _yaml_problems(first: int, content: str, checkout: Checkout) -> Iterator[tuple[int, str]]:
    try:
        for document in yaml.compose_all(content, yaml.SafeLoader):
            for key, value in _variables(document):
                if VARIABLE.fullmatch(key.value) and key.value not in checkout.variables:
                    yield first + key.start_mark.line, f"no role has the variable {key.value}"
                elif key.value in checkout.options:
                    errors = _value_errors(key.value, value, checkout.options[key.value])
                    yield from ((first + key.start_mark.line, error) for error in errors)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        yield first + line, f"this is not YAML: {error.problem}"


def _variables(node: yaml.Node | None) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    """Yield the keys and values that may be variables: not the names of hosts and groups, nor options of modules."""
    if isinstance(node, yaml.SequenceNode):
        for element in node.value:
            yield from _variables(element)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield key, value
            names = isinstance(value, yaml.MappingNode) and key.value in ("hosts", "children")
            if names:
                for _name, member in value.value:
                    yield from _variables(member)
            elif not str(key.value).startswith(f"{COLLECTION}."):
                yield from _variables(value)


def _value_errors(name: str, node: yaml.Node, option: RoleOption) -> list[str]:
    """Return what Ansible says of a value that the specification does not allow; templates and tags are not checked."""
    text = yaml.serialize(node)
    if "{{" in text or "!" in text:
        return []
    value = yaml.safe_load(text)
    result = ArgumentSpecValidator({name: dict(option.specification)}).validate({name: value})
    return [str(message) for message in result.error_messages]


def _json_problems(first: int, content: str) -> Iterator[tuple[int, str]]:
    try:
        json.loads(content)
    except json.JSONDecodeError as error:
        yield first + error.lineno - 1, f"this is not JSON: {error.msg}"


def _joined_lines(first: int, content: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of each line; one that ends with a backslash goes on with the next."""
    start, parts = first, list[str]()
    for number, text in enumerate(content.split("\n"), first):
        if not parts:
            start = number
        parts.append(text.removesuffix("\\"))
        if not text.endswith("\\"):
            yield start, " ".join(parts)
            parts = []


def _command(language: str, text: str) -> str | None:
    """Return the command in a line of a block; None where the line is output, or no command."""
    if language not in SHELLS:
        return None
    prompt = PROMPT.match(text)
    if prompt:
        return text[prompt.end() :]
    return None if language in ("console", "shell-session") else text


def _name_problems(text: str, checkout: Checkout) -> Iterator[str]:
    """Yield a sentence for each unknown name that a text gives as one of the collection or as an extra variable."""
    for name in PLAYBOOK_RUN.findall(text):
        if name not in checkout.playbooks:
            yield f"no playbook is called {COLLECTION}.{name}"
    for name in QUALIFIED.findall(PLAYBOOK_RUN.sub("", text)):
        if name not in checkout.playbooks | checkout.plugins and not name.isupper():
            yield f"nothing in the collection is called {COLLECTION}.{name}"
    for name in _extra_variables(text):
        if name not in checkout.variables and not name.startswith("ansible_"):
            yield f"no role has the variable {name}"


def _extra_variables(text: str) -> Iterator[str]:
    for argument in EXTRA_VARIABLES.findall(text):
        value = argument.strip("'\"")
        if value.startswith("{"):
            yield from re.findall(r"[{,]\s*\"?(\w+)\"?\s*:", value)
        elif not value.startswith("@"):
            yield from re.findall(r"(?:^|\s)(\w+)=", value)


def _make_problems(command: str, checkout: Checkout) -> Iterator[str]:
    for arguments in MAKE.findall(command):
        for argument in arguments.split():
            setting, assigns, _value = argument.partition("=")
            if assigns and setting not in checkout.settings:
                yield f"the Makefile has no variable {setting}"
            elif not assigns and not argument.startswith("-") and argument not in checkout.targets:
                yield f"make has no target {argument}"


def _path_problems(words: Iterable[str], checkout: Checkout) -> Iterator[str]:
    for word in words:
        path = word.strip("'\"(),:;")
        folder, separator, _rest = path.partition("/")
        if not separator or not re.fullmatch(r"[\w./*-]+", path):
            continue
        if folder in checkout.folders:
            places = [path]
        elif re.fullmatch(r"_[a-z]+|module_utils|plugin_utils", folder):
            places = [f"{place}/{path}" for place in CODE_FOLDERS]
        else:
            continue
        if not any(checkout.has_file(place) for place in places):
            yield f"there is no file {path}"


def _mention_problems(text: str, checkout: Checkout) -> Iterator[str]:
    """Yield a sentence for inline code that has the form of a variable, alone or with a value, and names nothing."""
    mention = re.match(rf"({VARIABLE.pattern})(?:$|=|: )", text)
    if mention and mention[1] not in checkout.names:
        yield f"neither a variable nor anything in the collection is called {mention[1]}"


def _link_problems(page: Page, checkout: Checkout) -> Iterator[tuple[int, str]]:
    targets = [(line, token.attrGet("href")) for line, token in page.inline("link_open")]
    targets += [(line, token.attrGet("src")) for line, token in page.inline("image")]
    for line, target in targets:
        parts = urlsplit(str(target))
        if parts.scheme or parts.netloc:
            continue
        path = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
        if not path.exists() or not path.is_relative_to(checkout.root.resolve()):
            yield line, f"no file for the link {target}"
        elif parts.fragment and (path.suffix != ".md" or unquote(parts.fragment) not in Page(path).anchors()):
            yield line, f"no heading for the link {target}"
    for line, token in page.inline("text"):
        yield from ((line, f"no address for the link {link}") for link in UNRESOLVED_LINK.findall(token.content))


def _forbidden_problems(page: Page) -> Iterator[tuple[int, str]]:
    for line, text in enumerate(page.lines, 1):
        for pattern, reason in FORBIDDEN.items():
            if found := re.search(pattern, text):
                yield line, f"do not recommend {found[0]!r}: {reason}"


def check_pages(root: Path) -> list[Fault]:
    """Return what is wrong with all pages of a checkout."""
    checkout = Checkout(root)
    return [fault for path in checkout.pages for fault in check_page(path, checkout)]


def main() -> None:
    faults = check_pages(Path.cwd())
    if faults:
        sys.exit("\n".join(str(fault) for fault in faults))
    print("pages of documentation: every example, name, file and link is right")


if __name__ == "__main__":
    main()

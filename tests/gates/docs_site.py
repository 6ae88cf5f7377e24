"""Build the documentation site as HTML, without a network; a warning or a link that leads nowhere is a failure."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.gates import playbook_pages
from tests.gates.playbook_pages import Playbook

SITE = Path(".cache/docs-site")
SOURCES = Path("docs/site")
TOPICS = (
    "users", "sessions", "life", "containers", "access", "queue", "placement", "frameworks", "playbooks", "coming-from",
    "night", "hosts", "inventory", "managers", "operations", "verification", "troubleshooting", "upgrade", "networking",
    "performance", "security", "architecture", "testing",
)  # fmt: skip
"""The order of the pages in docs/; those that are not named here follow."""
LINKS = {("a", "href"), ("link", "href"), ("script", "src"), ("img", "src")}


@dataclass(frozen=True)
class Entry:
    """A page in a list of the start page; without a title, it has the page's own."""

    page: str
    title: str = ""
    summary: str = ""

    @property
    def link(self) -> str:
        return f"{{doc}}`{self.title} </{self.page}>`" if self.title else f"{{doc}}`/{self.page}`"


class Page(HTMLParser):
    """The links and the anchors of one page, and what a browser would load for it from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = {"", "top"}
        self.remote: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value or "")
            elif (tag, name) in LINKS and value:
                local = not urlsplit(value).scheme and not value.startswith("//")
                if local:
                    self.links.add(value)
                elif tag != "a":
                    self.remote.add(value)


def broken_links(site: Path) -> Iterator[str]:
    """Yield a sentence for each link inside a site that leads nowhere, and each file that is loaded from elsewhere."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        yield from (f"{name}: loads {address}" for address in sorted(page.remote))
        for link in sorted(page.links):
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                yield f"{name}: no file for the link {link}"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: no anchor for the link {link}"


def copy_checkout(target: Path) -> None:
    """Copy the files of the checkout that git does not ignore."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"],
        stdout=subprocess.PIPE,
        check=True,
    )
    for name in filter(None, listing.stdout.decode().split("\0")):
        if Path(name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, target / name)


def write_reference(collections: Path, target: Path) -> None:
    """Write a page for each module, plugin and role of the collection, with antsibull-docs."""
    target.mkdir(mode=0o755)
    subprocess.run(
        ["antsibull-docs", "--config-file", Path("tests/gates/antsibull.cfg").absolute(),
         "--config-file", (SOURCES / "antsibull.cfg").absolute(),
         "collection", "--cleanup", "everything", "--use-current", "--fail-on-error", "--squash-hierarchy",
         "--dest-dir", target, playbook_pages.COLLECTION],
        env=os.environ | {"ANSIBLE_COLLECTIONS_PATH": str(collections)},
        # Outside the checkout: its ansible.cfg names another place for collections.
        cwd=collections,
        check=True,
    )  # fmt: skip


def write_playbooks(root: Path) -> list[Playbook]:
    """Write a page for each playbook, and return them."""
    options = playbook_pages.read_role_options(root)
    playbooks = []
    for path in sorted(root.glob("playbooks/*.yml")):
        playbook = playbook_pages.read_playbook(path, options)
        path.with_suffix(".md").write_text(playbook_pages.page(playbook, options))
        playbooks.append(playbook)
    return playbooks


def write_start_page(root: Path, playbooks: Iterable[Playbook]) -> None:
    """Write the start page: what the README says at its beginning, and a list of all pages."""
    introduction = re.split(r"^## ", (root / "README.md").read_text(), maxsplit=1, flags=re.MULTILINE)[0]
    topics = sorted((path.stem for path in root.glob("docs/*.md")), key=_rank)
    others = sorted(path.stem for path in root.glob("*.md") if path.name not in ("README.md", "index.md"))
    roles = [*_reference_entries(root, "role")]
    lists = {
        "Guide": [
            Entry("README", "Getting started"),
            *(Entry(f"docs/{name}") for name in topics),
            *(Entry(name) for name in others),
            Entry("CHANGELOG"),
        ],
        "Playbooks": [Entry(f"playbooks/{book.name}", book.name, book.summary) for book in playbooks],
        "Roles": [Entry(f"roles/{role.title}/README", role.title, role.summary) for role in roles],
        "Variables of roles": [Entry(role.page, role.title) for role in roles],
        "Inventory and connection": [*_reference_entries(root, "inventory"), *_reference_entries(root, "connection")],
        "Modules and filters": [
            Entry("reference/index", "All modules and plugins"),
            *_reference_entries(root, "module"),
            *_reference_entries(root, "filter"),
        ],
    }
    sections = (_section(title, entries) for title, entries in lists.items())
    (root / "index.md").write_text("\n".join([introduction, *sections]))


def _reference_entries(root: Path, kind: str) -> Iterator[Entry]:
    """Yield an entry for each page that antsibull-docs wrote for a plugin of a kind, with the summary in its title."""
    for path in sorted((root / "reference").glob(f"*_{kind}.rst")):
        summary = re.search(rf"^{playbook_pages.COLLECTION}\.\w+ {kind} -- (.*)$", path.read_text(), re.MULTILINE)
        yield Entry(f"reference/{path.stem}", path.stem.removesuffix(f"_{kind}"), summary[1] if summary else "")


def _section(title: str, entries: Iterable[Entry]) -> str:
    """Return a list of pages, and the same for the navigation of all pages."""
    entries = list(entries)
    lines = [
        f"## {title}\n",
        *(f"- {entry.link}" + (f": {entry.summary}" if entry.summary else "") for entry in entries),
        f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n",
        *(f"{entry.title} <{entry.page}>" if entry.title else entry.page for entry in entries),
        "```\n",
    ]
    return "\n".join(lines)


def _rank(topic: str) -> tuple[int, str]:
    return (TOPICS.index(topic) if topic in TOPICS else len(TOPICS), topic)


def build(root: Path, site: Path, doctrees: Path) -> list[str]:
    """Build the site with Sphinx, and return its warnings, with paths as in the checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-qW", "--keep-going", "-b", "html", "-d", doctrees,
         "-c", SOURCES, root, site],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    warnings = done.stderr.replace(f"{root}/", "").splitlines()
    return warnings or ([f"sphinx ended with {done.returncode}"] if done.returncode else [])


def main() -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder).resolve()
        root = top / "ansible_collections" / playbook_pages.COLLECTION.replace(".", "/")
        copy_checkout(root)
        write_reference(top, root / "reference")
        try:
            write_start_page(root, write_playbooks(root))
        except ValueError as error:
            sys.exit(str(error).replace(f"{root}/", ""))
        problems = [*build(root, SITE, top / "doctrees"), *broken_links(SITE)]
    if problems:
        sys.exit("\n".join(problems))
    print(f"documentation site: {len(list(SITE.rglob('*.html')))} pages in {SITE}/index.html")


if __name__ == "__main__":
    main()

"""Built images in the checkout's ``.cache/lab``, where ``down`` leaves them for the next lab.

A file's name has a digest of what builds it. The digest of its content is in a file beside it, so a file that was
damaged, or that a killed run has left, is noticed and built again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.lab.command import report
from tests.lab.identity import Lab


def cached(lab: Lab, name: str) -> Path | None:
    """Return a file of the cache, or None, after its removal, if its content is not what was written."""
    path = lab.cache / name
    mark = _mark(path)
    if path.exists() and mark.exists():
        if mark.read_text() == _digest(path):
            return path
        report(f"{path} is damaged: it is built again")
    path.unlink(missing_ok=True)
    mark.unlink(missing_ok=True)
    return None


@contextlib.contextmanager
def writing(lab: Lab, name: str) -> Iterator[Path]:
    """Yield the path of a draft, which becomes a file of the cache if nothing fails, and is removed otherwise."""
    path = lab.cache / name
    draft = path.with_suffix(".new")
    lab.cache.mkdir(parents=True, exist_ok=True)
    try:
        yield draft
        _mark(path).write_text(_digest(draft))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def remove_others(lab: Lab, current: Collection[str]) -> None:
    """Remove what earlier recipes have built, and drafts of killed runs: all but the files of these names."""
    kept = {lab.cache / name for name in current}
    kept |= {_mark(path) for path in kept}
    for path in lab.cache.glob("*"):
        if path not in kept:
            path.unlink()


def _mark(path: Path) -> Path:
    """Return the path of the file with a file's digest."""
    return path.with_suffix(".sha256")


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

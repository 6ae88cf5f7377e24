"""Mutants of a commit, run against the unit tests of it."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.gates.oracle.draw import Mutant, locate, source, statements
from tests.gates.oracle.mutation import Found, choose, mutate
from tests.gates.oracle.trees import checkout, full_name, git, place, run_in, sandboxed

# CPU seconds for the nearest test files and for the others, so that a busy machine changes no result.
NEAREST, LIMITS = 2, (20, 40)
MEMORY = 6 << 30
# All passed, or none was selected.
PASSED = {0, 5}
EXECUTED = ".cache/oracle/executed.json"


class Commit:
    """A commit with copies of it in which mutants run, and with what its tests execute."""

    def __init__(self, name: str, workers: int) -> None:
        self.name = full_name(name)
        self._trees: queue.Queue[Path] = queue.Queue()
        for number in range(workers):
            self._trees.put(checkout(self.name, str(number)))
        path = place(self.name, "0") / EXECUTED
        if not path.exists():
            run_in(place(self.name, "0"), "-P", str(Path(__file__).with_name("contexts.py")), EXECUTED)
        executed = json.loads(path.read_text())
        self._tests, self._failing, self._lines = executed["tests"], executed["failed"], executed["lines"]

    def test_files(self, path: str, found: Found) -> list[str]:
        """Return the test files that executed a statement: first those of its file's name, then by their share."""
        lines = self._lines.get(path, {})
        files: Counter[str] = Counter()
        for line in found.lines:
            files |= Counter(lines.get(str(line), {}))
        stem = Path(path).stem.strip("_")
        return sorted(files, key=lambda each: (stem not in Path(each).stem, -files[each] / self._tests[each], each))

    def run(self, mutant: Mutant, seed: str, first: str = "") -> dict[str, Any]:
        """Return the result of a mutant: what killed it, or why nothing did."""
        path = locate(self.name, mutant)
        assert path
        text, found = source(self.name, path), statements(self.name, path)[mutant.statement]
        edit = choose(text, found, seed)
        assert edit
        result = {"commit": self.name, "mutant": str(mutant), "what": edit.what, "result": "untested", "by": ""}
        files = sorted(self.test_files(path, found), key=lambda each: each != first)
        tree = self._trees.get()
        try:
            with changed(tree / path, mutate(text, edit)):
                for chosen, limit in zip((files[:NEAREST], files[NEAREST:]), LIMITS, strict=True):
                    if chosen and result["result"] != "killed":
                        result["result"], result["by"] = self._test(tree, chosen, limit)
        finally:
            # A mutant may have changed its own checkout.
            git("checkout", "--quiet", "--force", self.name, folder=tree)
            self._trees.put(tree)
        return result

    def _test(self, tree: Path, files: list[str], limit: int) -> tuple[str, str]:
        """Return what becomes of a mutant by the tests of some files, and the first that failed."""
        failing = [f"--deselect={test}" for test in self._failing if test.partition("::")[0] in files]
        tests = [".venv/bin/python", "-m", "pytest", "-qx", "--tb=no", "-p", "no:cacheprovider", *failing, *files]
        command = sandboxed(tree, ["prlimit", f"--cpu={limit}", f"--as={MEMORY}", *tests])
        try:
            # What waits for something that never comes needs no CPU time.
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=limit * 30, check=False
            )
        except subprocess.TimeoutExpired:
            return "timeout", ""
        if done.returncode in {128 + signal.SIGXCPU, 128 + signal.SIGKILL}:
            return "timeout", ""
        if done.returncode in PASSED:
            return "survived", ""
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        return "killed", failed[1] if failed else (done.stdout + done.stderr)[-300:]


@contextmanager
def changed(path: Path, text: str) -> Iterator[None]:
    """Give a file another text for a while, and then its own with its time again, so that Python compiles both."""
    before, times = path.read_text(), path.stat()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

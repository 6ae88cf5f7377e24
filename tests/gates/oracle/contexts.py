"""Run the unit tests of the working directory, and write which test files execute which lines: ``contexts.py FILE``.

It imports nothing of the tests of this commit, because those of the working directory are another one's.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

try:
    from coverage import Coverage, CoverageData
except ImportError:
    sys.exit(
        f"oracle: coverage is missing, which only oracles need: run {sys.prefix}/bin/pip install coverage, then again"
    )

MEASURED = ("plugins", "roles/manager/files")


class Contexts:
    """A plugin of pytest: what a test executes, with its fixtures, belongs to the context of its name."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self.tests: Counter[str] = Counter()
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Switch to the context of a test while it runs."""
        self.tests[file_of(item.nodeid)] += 1
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember which tests fail without a mutation."""
        if report.failed:
            self.failed.add(report.nodeid)


def file_of(test: str) -> str:
    """Return the file of a test."""
    return test.partition("::")[0]


def executed(data: CoverageData, here: Path) -> dict[str, dict[int, Counter[str]]]:
    """Return, for each line of each file, how many tests of which files execute it; imports do not count."""
    result = {}
    for path in sorted(data.measured_files()):
        lines = data.contexts_by_lineno(path)
        counts = {line: Counter(file_of(test) for test in tests if test) for line, tests in sorted(lines.items())}
        result[str(Path(path).relative_to(here))] = counts
    return result


def main() -> None:
    """Run all unit tests, or those that are named."""
    result, *tests = sys.argv[1:]
    here = Path.cwd()
    coverage = Coverage(data_file=None, source=[str(here / name) for name in MEASURED], config_file=False)
    contexts = Contexts(coverage)
    coverage.start()
    pytest.main([*(tests or ["tests/unit"]), "-q", "-p", "no:cacheprovider"], plugins=[contexts])
    coverage.stop()
    lines = executed(coverage.get_data(), here)
    Path(result).write_text(json.dumps({"tests": contexts.tests, "failed": sorted(contexts.failed), "lines": lines}))


if __name__ == "__main__":
    main()

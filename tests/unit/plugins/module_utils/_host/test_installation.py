"""Which packages may go from a host."""

from __future__ import annotations

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import installation

#: What needs a package, directly or not, on the host of these tests.
NEEDED_BY = {"runc": {"docker.io"}, "docker.io": {"compose"}, "libc-extra": {"tool"}}


def closure(packages: set[str]) -> set[str]:
    """Return packages with all that need them."""
    more = packages.union(*(NEEDED_BY.get(package, set()) for package in packages))
    return more if more == packages else closure(more)


@pytest.fixture(autouse=True)
def apt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer as apt-get does that simulates a removal."""

    def run(*command: str) -> str:
        assert command[:5] == ("apt-get", "--quiet", "--assume-yes", "--simulate", "purge")
        return "".join(f"Purg {name}:amd64 [1.0]\n" for name in sorted(closure({*command[5:]})))

    monkeypatch.setattr(installation, "_run", run)


def test_packages_that_nothing_else_needs_may_go() -> None:
    assert installation.keep_needed({"docker.io", "runc", "compose", "less"}, ()) == {}


def test_what_a_package_of_the_operator_needs_stays_and_so_does_what_that_needs() -> None:
    kept = installation.keep_needed({"docker.io", "runc", "less"}, ())
    assert kept == {"docker.io": "compose", "runc": "compose"}


def test_a_protected_package_stays_with_what_it_needs() -> None:
    kept = installation.keep_needed({"docker.io", "runc", "compose", "less"}, {"docker.io"})
    assert kept == {"docker.io": "docker.io", "runc": "docker.io"}


def test_no_package_is_no_question() -> None:
    assert installation.keep_needed(frozenset(), ()) == {}

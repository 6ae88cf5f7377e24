"""Commands inside a container, with a stand-in for what enters it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.inside import run_as_work


@pytest.fixture
def nsenter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the program that is run as nsenter, whose content a test may choose."""
    program = tmp_path / "nsenter"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program.touch(mode=0o755)
    return program


def test_a_line_is_run_by_work_in_every_namespace_of_the_container_but_as_a_user(nsenter: Path) -> None:
    nsenter.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    assert run_as_work(4711, "ssh sub1 hostname").splitlines() == [
        *("--target", "4711", "--mount", "--uts", "--ipc", "--net", "--pid"),
        *("/opt/backendai/bin/busybox", "su", "-", "work", "-c", "ssh sub1 hostname"),
    ]


def test_errors_come_with_the_output(nsenter: Path) -> None:
    nsenter.write_text("#!/bin/sh\necho no >&2\nprintf 'caf\\351'\nexit 1\n")
    assert run_as_work(4711, "x") == "no\ncaf\ufffd"


def test_a_line_that_never_ends_is_given_up(nsenter: Path) -> None:
    nsenter.write_text("#!/bin/sh\nexec sleep 30\n")
    assert run_as_work(4711, "x", seconds=0.6) == "no answer within 1 s"

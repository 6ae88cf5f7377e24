"""The launcher in systemd units: runs the provisioned program, compiled for its Python."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._program import launcher
from ansible_collections.backendai.cluster.plugins.plugin_utils import host_program
from tests.unit.program import ECHO, Host, archive_of

ARCHIVE = archive_of()


def of_another_python(host: Host) -> Path:
    """Make the current program look compiled for another Python; return its folder."""
    host.provision(ARCHIVE)
    ours = host.folder(ARCHIVE)
    theirs = ours.with_name(f"{ours.name.partition('-')[0]}-cpython-35")
    ours.rename(theirs)
    link = host.home / launcher.CURRENT
    link.unlink()
    link.symlink_to(theirs.name)
    return theirs


def ran(host: Host, *arguments: str, source: Path | None = None) -> str:
    """Run a unit, check its arguments and exit code, and return the path of the program that ran."""
    result = host.unit(*arguments, source=source)
    place, *received = result.stdout.split()
    assert (received, result.returncode, result.stderr) == (list(arguments), 3, "")
    return place


def test_unit_runs_the_compiled_program_and_marks_it_used(host: Host) -> None:
    host.provision(ARCHIVE)
    os.utime(host.folder(ARCHIVE), (1, 1))
    assert ran(host, "--rules", "x").startswith(f"{host.folder(ARCHIVE)}/{launcher.PROGRAM}/")
    assert time.time() - host.folder(ARCHIVE).stat().st_mtime < 600


def test_unit_compiles_the_program_for_its_python(host: Host) -> None:
    theirs = of_another_python(host)
    assert ran(host, "--rules").startswith(f"{host.folder(ARCHIVE)}/{launcher.PROGRAM}/")
    assert host.names() == {theirs.name, host.folder(ARCHIVE).name, launcher.CURRENT}
    assert os.readlink(host.home / launcher.CURRENT) == host.folder(ARCHIVE).name
    assert (host.folder(ARCHIVE) / launcher.RELEASE).read_text() == "1.0.0"
    assert host.ask(ARCHIVE, send=False)["installed"] is False


def test_unit_replaces_a_damaged_program(host: Host) -> None:
    host.provision(ARCHIVE)
    program = host.folder(ARCHIVE) / launcher.PROGRAM
    program.write_bytes(program.read_bytes()[:-10])
    assert ran(host, "--rules").startswith(f"{program}/")
    assert host.ask(ARCHIVE, send=False)["installed"] is False


def test_unit_runs_the_sources_on_a_read_only_disk(host: Host) -> None:
    theirs = of_another_python(host)
    host.before = "ulimit -f 0"
    assert ran(host, "--rules").startswith(f"{theirs}/{launcher.SOURCE}/")
    assert host.names() == {theirs.name, launcher.CURRENT}


def test_unit_of_an_older_release_keeps_the_newer_one_current(host: Host) -> None:
    theirs, newer = of_another_python(host), archive_of(f"{ECHO}\n# newer\n")
    host.provision(newer, "1.1.0")
    assert ran(host, "--rules", source=theirs / launcher.SOURCE).startswith(f"{host.folder(ARCHIVE)}/")
    assert os.readlink(host.home / launcher.CURRENT) == host.folder(newer).name


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "from its sources"])
def test_real_program_applies_rules_without_ansible(host: Host, tmp_path: Path, compiled: bool) -> None:
    host.provision(host_program.archive())
    if not compiled:
        (host.folder(host_program.archive()) / launcher.PROGRAM).unlink()
        host.before = "ulimit -f 0"
    # Neither site-packages nor the checkout is visible: only the standard library.
    result = host.unit("--state-path", str(tmp_path), "--docker-host", "unix:///nowhere", "--rules")
    reason = f"{tmp_path} is not ready (No such file or directory)"
    sentence = f"<3>{reason}: run backendai.cluster.provision_agents on this host.\n"
    assert (result.returncode, result.stdout, result.stderr) == (1, "", sentence)

"""Open MPI in a session, without options: its daemons and its data use the session's network.

On the default network it would hang: all agents have the same subnet there, and containers cannot reach each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration.containers import transferred_bytes
from tests.integration.laboratory import run_in
from tests.integration.programs import source
from tests.integration.session_requests import FOUR
from tests.integration.sessions import StartedSession, started_session

pytestmark = [pytest.mark.containers, pytest.mark.network]

# Without its own warnings, unless it fails.
QUIET = ("sh", "-c", '"$@" 2> /tmp/errors || { cat /tmp/errors; exit 1; }', "quiet")
MPIRUN = (*QUIET, "timeout", "300", "mpirun", "-np", "4", "--host", "main1,sub1,sub2,sub3")
NUMBERS = 1 << 18

REQUEST = {**FOUR, "image": "lab/mpi:1"}


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Four containers on three agents."""
    with started_session(tmp_path_factory.mktemp("four"), **REQUEST) as session:
        yield session


def test_mpirun_reads_the_hostfile_of_the_session(four: StartedSession) -> None:
    by_slots = ("mpirun", "-np", "4", "--hostfile", "/var/lib/backendai/hostfile", "hostname")
    output = run_in(four.kernels[0], *QUIET, "timeout", "300", *by_slots)
    assert sorted(output.split()) == ["main1", "sub1", "sub2", "sub3"]


def test_mpi_traffic_uses_the_session_network(four: StartedSession) -> None:
    kernels = four.kernels
    before = [{name: transferred_bytes(kernel, name) for name in ("cluster0", "eth0")} for kernel in kernels]
    printed = run_in(kernels[0], *MPIRUN, "python3", "-c", source("mpi_all_reduce"), str(NUMBERS))
    results = sorted(json.loads(line) for line in printed.splitlines())
    assert results == [[kernel["hostname"], rank, 0, True] for rank, kernel in enumerate(kernels)]
    for kernel, counted in zip(kernels, before, strict=True):
        assert transferred_bytes(kernel, "cluster0") - counted["cluster0"] > 8 * NUMBERS
        assert transferred_bytes(kernel, "eth0") - counted["eth0"] < NUMBERS // 8

"""Open MPI in a session, without one option: its daemons and its data take the session's network.

On the default network all agents have the same subnet, and nothing is open between containers: there it would hang.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.conftest import Sessions
from tests.integration.laboratory import Run, inside

pytestmark = pytest.mark.long

MPIRUN = ("timeout", "90", "mpirun", "-np", "4", "--host", "main1,sub1,sub2,sub3")
NUMBERS = 1 << 18

ALL_REDUCE = f"""
import ctypes, json, socket

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
world, double, total = (
    ctypes.byref(ctypes.c_char.in_dll(mpi, name))
    for name in ("ompi_mpi_comm_world", "ompi_mpi_double", "ompi_mpi_op_sum")
)
mpi.MPI_Init(None, None)
rank = ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
given = (ctypes.c_double * {NUMBERS})(*(10.0**rank.value + place for place in range({NUMBERS})))
taken = (ctypes.c_double * {NUMBERS})()
code = mpi.MPI_Allreduce(given, taken, {NUMBERS}, double, total, world)
mpi.MPI_Finalize()
right = all(number == 1111 + 4 * place for place, number in enumerate(taken))
print(json.dumps([socket.gethostname(), rank.value, code, right]), flush=True)
"""


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Four containers over three agents, two of them on one."""
    made = Sessions(tmp_path_factory.mktemp("four"))
    run = made.create(image="lab/mpi:1", cluster_mode="multi-node", cluster_size=4, agent_selection="dispersed")
    assert run.code == 0, run.output
    yield run
    assert made.terminate().code == 0


def carried(kernel: dict[str, Any], interface: str) -> int:
    """Return how many bytes an interface of a container has received and sent."""
    counters = [f"/sys/class/net/{interface}/statistics/{way}_bytes" for way in ("rx", "tx")]
    return sum(int(line) for line in inside(kernel, "cat", *counters).split())


def test_mpirun_starts_a_program_in_every_container(four: Run) -> None:
    main = four.record["kernels"][0]
    assert sorted(inside(main, *MPIRUN, "hostname").split()) == ["main1", "sub1", "sub2", "sub3"]


def test_what_processes_tell_each_other_takes_the_sessions_network(four: Run) -> None:
    kernels = four.record["kernels"]
    before = [{name: carried(kernel, name) for name in ("cluster0", "eth0")} for kernel in kernels]
    printed = inside(kernels[0], *MPIRUN, "python3", "-c", ALL_REDUCE)
    results = sorted(json.loads(line) for line in printed.splitlines())
    assert results == [[kernel["hostname"], rank, 0, True] for rank, kernel in enumerate(kernels)]
    for kernel, counted in zip(kernels, before, strict=True):
        assert carried(kernel, "cluster0") - counted["cluster0"] > 8 * NUMBERS
        assert carried(kernel, "eth0") - counted["eth0"] < NUMBERS // 8

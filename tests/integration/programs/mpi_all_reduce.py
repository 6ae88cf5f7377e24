"""Sum numbers over four processes of Open MPI: `mpi_all_reduce.py COUNT`.

Each prints as JSON: its host, its rank, the return code of the reduction, whether the sum is correct.
"""

from __future__ import annotations

import ctypes
import json
import socket
import sys

count = int(sys.argv[1])
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
world, double, total = (
    ctypes.byref(ctypes.c_char.in_dll(mpi, name))
    for name in ("ompi_mpi_comm_world", "ompi_mpi_double", "ompi_mpi_op_sum")
)
mpi.MPI_Init(None, None)
rank = ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
values = (ctypes.c_double * count)(*(10.0**rank.value + place for place in range(count)))
sums = (ctypes.c_double * count)()
code = mpi.MPI_Allreduce(values, sums, count, double, total, world)
mpi.MPI_Finalize()
correct = all(number == 1111 + 4 * place for place, number in enumerate(sums))
print(json.dumps([socket.gethostname(), rank.value, code, correct]), flush=True)

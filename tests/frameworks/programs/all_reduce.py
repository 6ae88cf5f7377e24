"""Sum numbers over all containers of a session with PyTorch: `all_reduce.py COUNT`, started by torchrun.

Each process prints as JSON: its host, its rank, the number of processes, and whether the sum is correct.
"""

from __future__ import annotations

import json
import socket
import sys
from importlib import import_module

# By name: where types are checked there is no PyTorch.
torch, distributed = import_module("torch"), import_module("torch.distributed")

distributed.init_process_group("gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
numbers = torch.arange(int(sys.argv[1]), dtype=torch.float64)
taken = numbers * 10**rank
distributed.all_reduce(taken)
right = torch.equal(taken, numbers * sum(10**other for other in range(size)))
distributed.destroy_process_group()
print(json.dumps({"host": socket.gethostname(), "rank": rank, "size": size, "right": right}), flush=True)

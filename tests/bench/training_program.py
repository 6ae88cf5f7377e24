"""One process of a training on CPUs; this file is piped to ``python3 - STEPS`` in a container.

``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT`` are set. The process of rank 0 prints the all-reduces a
second of 64 MB over Gloo, and the steps a second of a small model with DistributedDataParallel.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib import import_module

# By name: where types are checked there is no PyTorch.
torch, distributed = import_module("torch"), import_module("torch.distributed")
parallel = import_module("torch.nn.parallel")

STEPS, NUMBERS, WIDTH = int(sys.argv[1]), 16 << 20, 512

torch.set_num_threads(1)
distributed.init_process_group("gloo")


def rate(step: Callable[[], object]) -> float:
    """Return how often a second a step is done: after one for warming up, as the slowest process does it."""
    step()
    distributed.barrier()
    began = time.monotonic()
    for _number in range(STEPS):
        step()
    distributed.barrier()
    return STEPS / (time.monotonic() - began)


numbers = torch.ones(NUMBERS)
reduces = rate(lambda: distributed.all_reduce(numbers))

layers = [layer for _number in range(4) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
model = parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
inputs = torch.randn(64, WIDTH)


def train() -> None:
    """Do one step of the training."""
    model.zero_grad()
    model(inputs).square().mean().backward()


steps = rate(train)
if distributed.get_rank() == 0:
    print(reduces, steps, flush=True)
distributed.destroy_process_group()
# At the interpreter's own end, a thread of PyTorch may still run, which aborts the process.
os._exit(0)

"""Train a small model with PyTorch's DistributedDataParallel; started by torchrun in every container.

``pytorch_ddp.py [STEPS]``. Each process sees its own part of the data. It prints its host, its rank, the loss, and a
digest of the weights.
"""

import json
import socket
import sys

import torch
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group()
rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()

torch.manual_seed(0)
inputs = torch.randn(768, 16)
targets = inputs @ torch.arange(16.0).unsqueeze(1)
inputs, targets = inputs[rank::size], targets[rank::size]

model = DistributedDataParallel(torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 100):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()

weights = round(model.module.weight.sum().item(), 3)
print(json.dumps({"host": socket.gethostname(), "rank": rank, "loss": round(loss.item(), 4), "weights": weights}))
torch.distributed.destroy_process_group()

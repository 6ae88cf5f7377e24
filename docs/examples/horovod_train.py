"""Train a small PyTorch model with Horovod; started by horovodrun."""

import json
import socket

import horovod.torch as hvd
import torch

hvd.init()
torch.manual_seed(hvd.rank())
inputs = torch.randn(256, 16)
targets = inputs @ torch.arange(16.0).unsqueeze(1)

model = torch.nn.Linear(16, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
for _step in range(100):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()

weights = round(model.weight.sum().item(), 3)
result = {"host": socket.gethostname(), "rank": hvd.rank(), "size": hvd.size(), "weights": weights}
print(json.dumps(result))

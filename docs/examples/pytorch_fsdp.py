"""Train a model whose parameters are sharded over all processes (FSDP); started by torchrun in every container.

Each process prints how many of the parameters it holds, and the loss at the end.
"""

import json
import socket

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.distributed.init_process_group()
rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(48, 96), torch.nn.ReLU(), torch.nn.Linear(96, 3)).to(device)
parameters = sum(parameter.numel() for parameter in model.parameters())
mesh = init_device_mesh(device, (size,))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)

optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
inputs = torch.randn(300, 48, device=device)
targets = inputs[:, :3].abs()
for _step in range(100):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs[rank::size]), targets[rank::size])
    loss.backward()
    optimizer.step()

held = sum(parameter.to_local().numel() for parameter in model.parameters())
result = {"host": socket.gethostname(), "held": held, "of": parameters, "loss": round(loss.item(), 4)}
print(json.dumps(result))
torch.distributed.destroy_process_group()

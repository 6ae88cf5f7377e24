"""Train a small model with DeepSpeed, whose optimizer state is divided among the hosts (ZeRO 1).

Started by ``deepspeed`` in main1. It prints the host, the rank, and a digest of the weights.
"""

import argparse
import json
import socket

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)  # given by the launcher
parser.parse_args()

deepspeed.init_distributed()
rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()

torch.manual_seed(0)
inputs = torch.randn(768, 16)
targets = inputs @ torch.arange(16.0).unsqueeze(1)
inputs, targets = inputs[rank::size], targets[rank::size]

model = torch.nn.Linear(16, 1)
settings = {
    "train_micro_batch_size_per_gpu": len(inputs),
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "gradient_clipping": 0.0,
}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
engine, *_others = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
for _step in range(100):
    engine.backward(torch.nn.functional.mse_loss(engine(inputs), targets))
    engine.step()

weights = round(model.weight.sum().item(), 3)
print(json.dumps({"host": socket.gethostname(), "rank": rank, "weights": weights}))
torch.distributed.destroy_process_group()

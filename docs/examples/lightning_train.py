"""Train a small model with Lightning; started by torchrun in every container."""

import json
import os
import socket

import lightning
import torch


class Line(lightning.LightningModule):
    """A linear model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(0)
inputs = torch.randn(480, 16)
data = torch.utils.data.TensorDataset(inputs, inputs @ torch.arange(16.0).unsqueeze(1))
trainer = lightning.Trainer(
    num_nodes=int(os.environ["BACKENDAI_CLUSTER_SIZE"]),
    devices=1,
    strategy="ddp",
    max_epochs=5,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Line()
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=16))
weights = round(model.layer.weight.sum().item(), 3)
result = {"host": socket.gethostname(), "rank": trainer.global_rank, "size": trainer.world_size, "weights": weights}
print(json.dumps(result))

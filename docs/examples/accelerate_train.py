"""Train a tiny transformer, made on the spot, with Hugging Face Accelerate; started by torchrun in every container."""

import json
import socket

import torch
from accelerate import Accelerator
from transformers import BertConfig, BertForSequenceClassification

accelerator = Accelerator(cpu=not torch.cuda.is_available())
torch.manual_seed(0)
config = BertConfig(
    vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, num_labels=2
)
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
words = torch.randint(2, 64, (240, 8))
data = torch.utils.data.TensorDataset(words, (words[:, 1] > 32).long())
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for _epoch in range(4):
    for batch, labels in loader:
        optimizer.zero_grad()
        loss = model(input_ids=batch, labels=labels).loss
        accelerator.backward(loss)
        optimizer.step()
losses = accelerator.gather(loss.detach().unsqueeze(0))
hosts = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
print(json.dumps({"host": socket.gethostname(), "processes": hosts, "batches": len(loader), "losses": len(losses)}))
accelerator.end_training()

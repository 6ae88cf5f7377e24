"""Train a small model, and when the session ends, write a checkpoint from which the next session goes on.

``checkpoint_train.py FILE [STEPS]``. When a session ends, every process in it gets SIGTERM, and has
``session_stop_grace`` to end by itself.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch

path, steps = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2000
torch.manual_seed(0)
inputs = torch.randn(768, 16)
targets = inputs @ torch.arange(16.0).unsqueeze(1)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
if path.exists():
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
print(f"starts at step {step}")

ended = []
signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
while step < steps and not ended:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    step += 1
    time.sleep(0.05)

# A process that is killed while it writes leaves the checkpoint before.
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f"{path}.new")
os.replace(f"{path}.new", path)
print(f"stops at step {step} with loss {loss.item():.4f}")

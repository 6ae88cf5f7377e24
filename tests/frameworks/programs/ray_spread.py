"""Run Ray tasks that all read one object of this host, and print where they ran and how much they read, as JSON."""

from __future__ import annotations

import json
import os
import socket
import time
from importlib import import_module

# By name: where types are checked there is no Ray.
ray = import_module("ray")

TASKS, LENGTH = 24, 20 << 20

ray.init(address="auto", log_to_driver=False)
end = time.monotonic() + 60
while sum(node["Alive"] for node in ray.nodes()) < int(os.environ["BACKENDAI_CLUSTER_SIZE"]) and time.monotonic() < end:
    time.sleep(0.2)
content = ray.put(bytes(LENGTH))


@ray.remote(scheduling_strategy="SPREAD", num_cpus=1)
def read(received: bytes) -> tuple[str, int]:
    """Return the host of this task, and how much of the object it has."""
    time.sleep(0.5)  # Long enough for the other hosts to start their workers.
    return socket.gethostname(), len(received)


results = ray.get([read.remote(content) for _task in range(TASKS)], timeout=120)
hosts = sorted({host for host, _length in results})
print(json.dumps({"hosts": hosts, "complete": [length for _host, length in results] == [LENGTH] * TASKS}))

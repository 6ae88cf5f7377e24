"""Wait for as many Dask workers as there are containers, run a function on each, and print the results as JSON."""

from __future__ import annotations

import json
import os
import socket
from importlib import import_module

# By name: where types are checked there is no Dask.
distributed = import_module("distributed")

with distributed.Client("tcp://main1:8786", timeout=60) as client:
    client.wait_for_workers(int(os.environ["BACKENDAI_CLUSTER_SIZE"]), timeout=60)
    workers = client.run(socket.gethostname)
    total = client.submit(sum, client.map(len, [bytes(number) for number in range(100)])).result(timeout=60)
    print(json.dumps({"workers": workers, "total": total}))

"""Start Dask's scheduler and workers over SSH on the hosts that are named, and print what they computed, as JSON."""

from __future__ import annotations

import json
import socket
import sys
from importlib import import_module

# By name: where types are checked there is no Dask.
distributed = import_module("distributed")

with (
    distributed.SSHCluster(sys.argv[1:], connect_options={"known_hosts": None}) as cluster,
    distributed.Client(cluster) as client,
):
    client.wait_for_workers(len(sys.argv) - 2, timeout=60)
    workers = client.run(socket.gethostname)
    total = client.submit(sum, client.map(len, [bytes(number) for number in range(100)])).result(timeout=60)
    print(json.dumps({"workers": sorted(workers.values()), "total": total}))

"""Start Dask's scheduler in main1 and a worker in every container over SSH, and compute on them; run in main1."""

import json
import os
import socket

from distributed import Client, SSHCluster

hosts = os.environ["BACKENDAI_CLUSTER_HOSTS"].split(",")
with SSHCluster([hosts[0], *hosts]) as cluster, Client(cluster) as client:
    client.wait_for_workers(len(hosts), timeout=120)
    workers = client.run(socket.gethostname)
    total = client.submit(sum, client.map(len, [bytes(number) for number in range(100)])).result(timeout=60)
    print(json.dumps({"workers": sorted(workers.values()), "total": total}))

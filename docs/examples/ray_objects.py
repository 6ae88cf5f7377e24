"""Put an object in Ray's store in main1, and read it in tasks on every host; run by ray_cluster.

It prints the hosts of the tasks and whether each task had all of the object.
"""

import json
import socket
import time

import ray

ray.init(log_to_driver=False)
content = ray.put(bytes(20 << 20))


@ray.remote(scheduling_strategy="SPREAD")
def read(received: bytes) -> tuple[str, int]:
    """Return the host of this task, and how much of the object it has."""
    time.sleep(0.5)  # Long enough for the other hosts to start their workers.
    return socket.gethostname(), len(received)


results = ray.get([read.remote(content) for _task in range(24)], timeout=120)
hosts = sorted({host for host, _length in results})
print(json.dumps({"hosts": hosts, "complete": all(length == 20 << 20 for _host, length in results)}))

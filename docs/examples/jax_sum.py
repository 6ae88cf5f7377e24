"""Sum an array that is spread over all processes with JAX; started by mpirun, which tells JAX of the others."""

import json
import socket

import jax
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize(cluster_detection_method="ompi")
mesh = jax.make_mesh((jax.device_count(),), ("hosts",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("hosts"))
rows = jax.make_array_from_callback((jax.device_count(), 1024), sharding, lambda _index: jax.numpy.ones((1, 1024)))
total = jax.jit(lambda array: array.sum(), out_shardings=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
ranks = process_allgather(jax.numpy.array(jax.process_index()))
result = {"host": socket.gethostname(), "processes": jax.process_count(), "ranks": ranks.tolist()}
print(json.dumps({**result, "total": float(total(rows))}))

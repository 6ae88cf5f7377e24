"""Count in partitions over every worker with Spark; run by spark_cluster.

It prints the hosts that worked, and the sum of the squares of the numbers below 1,000.
"""

import json
import os
import socket
import time
from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession

SIZE = int(os.environ["BACKENDAI_CLUSTER_SIZE"])


def work(numbers: Iterable[int]) -> Iterator[tuple[str, int]]:
    """Return the host of this partition, and its sum."""
    time.sleep(0.5)  # Long enough for the other hosts to take partitions.
    yield socket.gethostname(), sum(number * number for number in numbers)


spark = SparkSession.builder.appName("squares").getOrCreate()
context = spark.sparkContext
while context._jsc.sc().getExecutorMemoryStatus().size() <= SIZE:  # the driver is one of them
    time.sleep(0.2)
results = context.parallelize(range(1000), 8 * SIZE).mapPartitions(work).collect()
print(json.dumps({"hosts": sorted({host for host, _sum in results}), "total": sum(part for _host, part in results)}))
spark.stop()

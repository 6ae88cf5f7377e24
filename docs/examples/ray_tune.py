"""Search a learning rate with Ray Tune, one trial at a time on each host; run by ray_cluster.

It prints the hosts of the trials and the learning rate that came nearest to the minimum.
"""

import json
import os
import socket
import time
from collections.abc import Mapping

import ray
from ray import tune


def train(config: Mapping[str, float]) -> dict[str, float | str]:
    """Return the error after ten steps of a gradient descent, and the host of this trial."""
    weight = 1.0
    for _step in range(10):
        weight -= config["rate"] * 2 * weight
        time.sleep(0.2)
    return {"error": abs(weight), "host": socket.gethostname()}


ray.init(log_to_driver=False)
tuner = tune.Tuner(
    train,
    param_space={"rate": tune.grid_search([0.1, 0.2, 0.3, 0.4, 0.45, 0.5])},
    tune_config=tune.TuneConfig(metric="error", mode="min", max_concurrent_trials=ray.cluster_resources()["CPU"]),
    run_config=tune.RunConfig(storage_path=os.path.abspath("ray-results"), verbose=0),
)
results = tuner.fit()
hosts = sorted({result.metrics["host"] for result in results})
print(json.dumps({"hosts": hosts, "rate": results.get_best_result().config["rate"]}))

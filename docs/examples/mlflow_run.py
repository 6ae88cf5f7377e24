"""Log a run on the MLflow server in main1, and read it back; run in every container, with the Python of MLflow.

It prints the host, and the metric as the server has it.
"""

import json
import os
import socket

import mlflow

mlflow.set_tracking_uri("http://main1:5000")
rank = int(os.environ["BACKENDAI_CLUSTER_LOCAL_RANK"])
with mlflow.start_run(run_name=socket.gethostname()) as run:
    mlflow.log_param("rank", rank)
    mlflow.log_metric("error", 1 / (rank + 1))
stored = mlflow.get_run(run.info.run_id)
print(json.dumps({"host": stored.info.run_name, "error": round(stored.data.metrics["error"], 3)}))

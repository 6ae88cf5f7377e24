"""Print as JSON the cluster that TensorFlow resolves, and the process's own task."""

from __future__ import annotations

import json
from importlib import import_module

# By name: where types are checked there is no TensorFlow.
tensorflow = import_module("tensorflow")

resolver = tensorflow.distribute.cluster_resolver.TFConfigClusterResolver()
result = {"cluster": resolver.cluster_spec().as_dict(), "task": [resolver.task_type, resolver.task_id]}
print(json.dumps(result), flush=True)

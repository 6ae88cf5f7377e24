"""Train a variable with TensorFlow; started in every container, where TF_CONFIG names all workers."""

import json
import os
import socket

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
with strategy.scope():
    weight = tf.Variable(0.0)


@tf.function
def train() -> tf.Tensor:
    """Take a step towards the average of what the workers want: their index."""

    def step() -> tf.Tensor:
        gradient = tf.distribute.get_replica_context().all_reduce("mean", weight - float(index))
        weight.assign_sub(0.5 * gradient)
        return gradient

    return strategy.reduce("mean", strategy.run(step), axis=None)


for _step in range(20):
    gradient = train()
(reached,) = strategy.experimental_local_results(weight)
result = {"host": socket.gethostname(), "workers": strategy.num_replicas_in_sync, "weight": round(float(reached), 3)}
print(json.dumps(result))

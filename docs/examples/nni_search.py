"""Search a minimum with NNI, whose trials run over SSH in every container; run in main1, with the Python of NNI.

It prints the hosts of the trials, and how many there were.
"""

import json
import os
import socket
from pathlib import Path

from nni.experiment import Experiment, RemoteMachineConfig

HOSTS = os.environ["BACKENDAI_CLUSTER_HOSTS"].split(",")
KEY = str(Path.home() / ".ssh" / "id_ed25519")

experiment = Experiment("remote")
config = experiment.config
config.search_space = {"x": {"_type": "uniform", "_value": [0, 1]}}
config.trial_command = "/opt/nni/bin/python nni_trial.py"
config.trial_code_directory = Path(__file__).parent
config.trial_concurrency = len(HOSTS)
config.max_trial_number = 3 * len(HOSTS)
config.tuner.name = "Random"
config.nni_manager_ip = socket.gethostbyname("main1")
config.training_service.reuse_mode = False
config.training_service.machine_list = [
    RemoteMachineConfig(host=host, user="work", ssh_key_file=KEY, python_path="/opt/nni/bin") for host in HOSTS
]
experiment.run(8081)
values = [trial.value for trial in experiment.export_data()]
print(json.dumps({"hosts": sorted({value["host"] for value in values}), "trials": len(values)}))
experiment.stop()

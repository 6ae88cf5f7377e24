# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The apps that an entry of ``session_apps`` names by one word.

None of them asks for a password: the gateway has checked the user's token. What they serve is in the home of user work,
or in its folder ``data``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from ...module_utils._model.session import KEEP, NONE

_KIT = "/opt/backendai"

# By name, the options that an entry may override. ``{port}`` in a command is the port.
KNOWN_APPS: MappingProxyType[str, dict[str, Any]] = MappingProxyType(
    {
        "jupyter": {
            "port": 8888,
            "path": KEEP,
            "program": "jupyter-lab",
            # Without a Host that it knows, it would refuse requests through a gateway.
            "command": "exec jupyter-lab --no-browser --ip=0.0.0.0 --port={port} --ServerApp.port_retries=0"
            ' --ServerApp.base_url="$BACKENDAI_APP_BASE_URL" --ServerApp.allow_remote_access=True'
            " --IdentityProvider.token= --PasswordIdentityProvider.hashed_password=",
        },
        "terminal": {
            "port": 7681,
            "program": f"{_KIT}/bin/shellinaboxd",
            # Each page has a login shell of its own, whose environment, the session's, has precedence.
            "command": f"exec {_KIT}/bin/shellinaboxd --port={{port}} --disable-ssl --no-beep --disable-utmp-logging"
            f' --service="/:$({_KIT}/bin/busybox id -u):$({_KIT}/bin/busybox id -g):/home/work'
            f':{_KIT}/bin/busybox env LANG=C.UTF-8 {_KIT}/shell/${{SHELL##*/}}"',
        },
        "code-server": {
            "port": 8080,
            "path": NONE,
            "program": "code-server",
            "command": "exec code-server --bind-addr=0.0.0.0:{port} --auth=none --disable-telemetry"
            " --disable-update-check /home/work",
        },
        "tensorboard": {
            "port": 6006,
            "path": KEEP,
            "program": "tensorboard",
            "command": "mkdir -p /home/work/data/tensorboard"
            '\nexec tensorboard --bind_all --port={port} --path_prefix="$BACKENDAI_APP_BASE_URL"'
            " --logdir=/home/work/data/tensorboard",
        },
        "mlflow": {
            "port": 5000,
            "program": "mlflow",
            # It answers hosts and origins that it was told of: the gateways', and containers of the session.
            "command": "mkdir -p /home/work/data/mlflow"
            "\nown=main1:{port},localhost:{port},127.0.0.1:{port}"
            "\nhosts=$(echo \"$BACKENDAI_APP_ORIGINS\" | /opt/backendai/bin/busybox sed 's,https://,,g')"
            '\nexec mlflow server --host=0.0.0.0 --port={port} --allowed-hosts="$own${hosts:+,$hosts}"'
            ' --cors-allowed-origins="http://main1:{port}${BACKENDAI_APP_ORIGINS:+,$BACKENDAI_APP_ORIGINS}"'
            " --backend-store-uri=sqlite:////home/work/data/mlflow/mlflow.db"
            " --artifacts-destination=/home/work/data/mlflow/artifacts",
        },
        "dask": {
            "port": 8787,
            "start": "/status",
            "program": "dask",
            "command": "exec dask scheduler --port=8786 --dashboard-address=0.0.0.0:{port}",
        },
        "ray": {
            "port": 8265,
            "program": "ray",
            "command": "exec ray start --head --block --disable-usage-stats --include-dashboard=true"
            " --dashboard-host=0.0.0.0 --dashboard-port={port}",
        },
    }
)

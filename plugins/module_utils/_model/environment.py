# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The environment of containers: what the session sets, and what is derived for distributed training."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from .network import SESSION_INTERFACE
from .plan import Kernel, SessionPlan
from .session import preopen_ports, service_ports

DEFAULT_MASTER_PORT = 29500

# What tells Open MPI its networks: for its daemons up to version 4, for data, for its daemons from version 5 on.
#
# Each is completed by ``include`` or ``exclude``, and Open MPI refuses to have both. Without them it takes the default
# network too, at which containers do not meet.
MPI_SELECTIONS = ("OMPI_MCA_oob_tcp_if_", "OMPI_MCA_btl_tcp_if_", "PRTE_MCA_prte_if_")

# What depends on others, and so is derived again once the user's bootstrap script has changed these.
REDERIVED_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "TF_CONFIG")

_PORT = re.compile(r"[1-9][0-9]{0,4}")


def session_environment(plan: SessionPlan, kernel: Kernel) -> dict[str, str]:
    """Return the ``BACKENDAI_*`` variables of one container, present in sessions of every size.

    ``LOCAL_USER_ID`` and ``LOCAL_GROUP_ID`` are the ids of user work, where images look for them.
    """
    roles = [peer.role for peer in plan.kernels]
    apps = plan.apps if kernel.rank == 0 else ()
    return {
        "BACKENDAI_SESSION_ID": plan.id,
        "BACKENDAI_SESSION_NAME": plan.name,
        "BACKENDAI_KERNEL_ID": kernel.id,
        "BACKENDAI_KERNEL_IMAGE": kernel.image,
        "BACKENDAI_CLUSTER_SIZE": str(len(plan.kernels)),
        "BACKENDAI_CLUSTER_HOSTS": ",".join(peer.hostname for peer in plan.kernels),
        "BACKENDAI_CLUSTER_REPLICAS": ",".join(f"{role}:{roles.count(role)}" for role in dict.fromkeys(roles)),
        "BACKENDAI_CLUSTER_HOST": kernel.hostname,
        "BACKENDAI_CLUSTER_IDX": str(kernel.index),
        "BACKENDAI_CLUSTER_ROLE": kernel.role,
        "BACKENDAI_CLUSTER_LOCAL_RANK": str(kernel.rank),
        "BACKENDAI_CLUSTER_MODE": plan.cluster_mode,
        "BACKENDAI_SERVICE_PORTS": service_ports(apps),
        "BACKENDAI_PREOPEN_PORTS": preopen_ports(apps),
        "LOCAL_USER_ID": str(plan.uid),
        "LOCAL_GROUP_ID": str(plan.gid),
    }


def build_environment(
    image: Mapping[str, str], explicit: Mapping[str, str], interface: str = SESSION_INTERFACE, networks: str = ""
) -> dict[str, str]:
    """Return the whole environment of a container: the image's, then what is given, then what follows from both.

    ``interface`` is the one at which the container meets the others, empty where it is not known before the start, and
    ``networks`` are those at which all meet, comma-separated.
    What is derived never replaces a value that the image or the user has set, unless that value is empty, and is
    left out in sessions of one. ``WORLD_SIZE``, ``RANK`` and ``LOCAL_RANK`` belong to launchers such as torchrun.
    """
    return {**image, **explicit, **derived_variables(image, explicit, interface, networks)}


def derived_variables(
    image: Mapping[str, str], explicit: Mapping[str, str], interface: str = SESSION_INTERFACE, networks: str = ""
) -> dict[str, str]:
    """Return the part of :func:`complete` that follows from the rest.

    The entrypoint derives :data:`AGAIN` anew, by the same rules, after the user's bootstrap script.
    """
    merged = {**image, **explicit}
    if int(merged.get("BACKENDAI_CLUSTER_SIZE", "1")) <= 1:
        return {}
    derived = training_environment(merged, interface)
    selections = [selection for selection in MPI_SELECTIONS if not merged.get(f"{selection}exclude")]
    derived |= {f"{selection}include": networks for selection in selections}
    return {key: value for key, value in derived.items() if value and not merged.get(key)}


def training_environment(environment: Mapping[str, str], interface: str) -> dict[str, str]:
    """Return what frameworks of distributed training look for, derived from the session's own variables.

    ``TF_CONFIG`` gives each worker the base port plus its position, as TensorFlow's cluster resolver reads it. Raises
    :class:`ValueError` where the image names a base port that is none.
    """
    hosts = environment["BACKENDAI_CLUSTER_HOSTS"].split(",")
    rank = int(environment["BACKENDAI_CLUSTER_LOCAL_RANK"])
    base = environment.get("BACKENDAI_DIST_MASTER_PORT") or str(DEFAULT_MASTER_PORT)
    if not _PORT.fullmatch(base) or int(base) >= 1 << 16:
        raise ValueError(f"BACKENDAI_DIST_MASTER_PORT: {base!r} is not a port")
    port = int(base)
    workers = [f"{host}:{port + position}" for position, host in enumerate(hosts)]
    return {
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": str(port),
        "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}),
        "NCCL_SOCKET_IFNAME": interface,
        "GLOO_SOCKET_IFNAME": interface,
    }


def environment_text(environment: Mapping[str, str]) -> str:
    """Return an environment as the text of a file: ``KEY=VALUE`` in each line."""
    return "".join(f"{name}={value}\n" for name, value in environment.items())


def parse_environment(text: str) -> dict[str, str]:
    """Return the variables of the text of an environment file, where ``#`` begins a comment line."""
    lines = (line for line in text.split("\n") if "=" in line and not line.lstrip().startswith("#"))
    return {key.strip(): value for key, _mark, value in (line.partition("=") for line in lines)}

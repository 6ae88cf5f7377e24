# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The environment of containers: variables of the session, and derived ones for distributed training."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from .accounts import HOME, LOGIN_SHELL, USER
from .devices import HOST_SLOTS
from .network import SESSION_INTERFACE
from .plan import Kernel, SessionPlan
from .session import preopen_ports, service_ports

DEFAULT_MASTER_PORT = 29500

# The user's choice of that port; all other variables that begin with ``BACKENDAI_`` are the session's.
MASTER_PORT_VARIABLE = "BACKENDAI_DIST_MASTER_PORT"

# Where the entrypoint puts the list of hosts that launchers such as mpirun, horovodrun and DeepSpeed read.
HOSTFILE = "/var/lib/backendai/hostfile"
HOSTFILE_VARIABLE = "BACKENDAI_CLUSTER_HOSTFILE"

# Prefixes of the variables that select Open MPI's networks: daemons up to version 4, data, daemons from version 5 on.
#
# ``include`` or ``exclude`` is appended; Open MPI rejects both together. Without them it also uses the default network,
# where containers cannot reach each other.
MPI_SELECTIONS = ("OMPI_MCA_oob_tcp_if_", "OMPI_MCA_btl_tcp_if_", "PRTE_MCA_prte_if_")

# Variables by which programs find the interface of the session, each with where its authors describe it. Without them,
# programs try the default network, too, where containers cannot reach each other. Each takes one name.
INTERFACE_VARIABLES = (
    "NCCL_SOCKET_IFNAME",  # docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
    "GLOO_SOCKET_IFNAME",  # docs.pytorch.org/docs/stable/distributed.html
    "TP_SOCKET_IFNAME",  # PyTorch RPC: torch/csrc/distributed/rpc/tensorpipe_agent.cpp
    "FI_TCP_IFACE",  # libfabric: fi_tcp(7)
    "FI_SOCKETS_IFACE",  # libfabric: fi_sockets(7)
)
# Launchers pass the name on to all hosts, so that it must be the same there: on the agents' own network it may differ.
_LAUNCHER_VARIABLES = (
    "HYDRA_IFACE",  # MPICH: github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Using_the_Hydra_Process_Manager.md
    "I_MPI_HYDRA_IFACE",  # Intel MPI Library Developer Reference, "Hydra Environment Variables"
)
# It names all devices, so that it would switch RDMA off: openucx.readthedocs.io/en/master/faq.html.
_DEVICES_VARIABLE = "UCX_NET_DEVICES"

# Variables by which programs learn of a proxy, each also in capitals, and of the hosts that are reached without it.
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
_NO_PROXY_VARIABLES = ("no_proxy", "NO_PROXY")

# Variables that depend on others and are derived again after the user's bootstrap script, which may change those.
REDERIVED_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", *_NO_PROXY_VARIABLES)

# Variables of NVIDIA that containers get as they are: what they may use of the driver, what an image requires of it,
# what libraries and services read themselves, and what images of NVIDIA say about themselves. Others may be switches of
# NVIDIA's container runtime (NVIDIA_MOFED, NVIDIA_GDS, NVIDIA_IMEX_CHANNELS, NVIDIA_MIG_CONFIG_DEVICES), or of a newer.
_HARMLESS_NVIDIA = re.compile(
    r"NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|REQUIRE_\w+|DISABLE_REQUIRE|TF32_OVERRIDE|BUILD_ID|PRODUCT_NAME"
    r"|\w+_VERSION|(\w+_)?API_KEY)",
    re.ASCII,
)

# Variables that say who the user is, and which a login sets itself.
_USER_VARIABLES = {"HOME": HOME, "USER": USER, "LOGNAME": USER, "SHELL": LOGIN_SHELL}

_PORT = re.compile(r"[1-9][0-9]{0,4}")


def session_environment(plan: SessionPlan, kernel: Kernel) -> dict[str, str]:
    """Return the ``BACKENDAI_*`` variables of one container, present in sessions of every size.

    Images read the uid and gid of user work from ``LOCAL_USER_ID`` and ``LOCAL_GROUP_ID``.
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
        HOSTFILE_VARIABLE: HOSTFILE,
        "BACKENDAI_SERVICE_PORTS": service_ports(apps),
        "BACKENDAI_PREOPEN_PORTS": preopen_ports(apps),
        "LOCAL_USER_ID": str(plan.uid),
        "LOCAL_GROUP_ID": str(plan.gid),
    }


def hostfile(plan: SessionPlan) -> str:
    """Return the hosts in rank order with the number of processes that launchers start there by default.

    It is the number of accelerators, or of cores in a container without any.
    """
    return "".join(f"{kernel.hostname} slots={_accelerators(kernel) or _cores(kernel)}\n" for kernel in plan.kernels)


def interface_variables(plan: SessionPlan) -> tuple[str, ...]:
    """Return the variables that name the interface of the session in each of its containers."""
    if len(plan.kernels) == 1:
        return ()
    if plan.shares_host_network:
        return INTERFACE_VARIABLES
    return (*INTERFACE_VARIABLES, *_LAUNCHER_VARIABLES, *(() if plan.infiniband else (_DEVICES_VARIABLE,)))


def threads(kernel: Kernel) -> int:
    """Return the number of threads of a process: the cores, shared by one process for each accelerator."""
    return max(1, _cores(kernel) // max(1, _accelerators(kernel)))


def _cores(kernel: Kernel) -> int:
    return kernel.resources["cpu"]


def _accelerators(kernel: Kernel) -> int:
    return sum(amount for slot, amount in kernel.resources.items() if slot not in HOST_SLOTS)


def build_environment(
    image: Mapping[str, str],
    explicit: Mapping[str, str],
    interface: str = SESSION_INTERFACE,
    networks: str = "",
    omp_threads: int = 0,
    interface_names: Sequence[str] = INTERFACE_VARIABLES,
) -> dict[str, str]:
    """Return the complete environment of a container: the image's, the explicit and the derived variables.

    ``interface`` is the container's interface on the session network, and ``interface_names`` are the variables that
    name it. ``networks`` are the session's networks, comma-separated, and ``omp_threads`` is the number of threads of a
    process, 0 to leave that to programs. Derived variables never replace a non-empty value of the image or the user,
    and are omitted in sessions of one container. ``WORLD_SIZE``, ``RANK`` and ``LOCAL_RANK`` are left to launchers such
    as torchrun.
    """
    return {
        **image,
        # Of a process that the engine begins by docker exec, what the image says of its user would be of another one.
        **{name: value for name, value in _USER_VARIABLES.items() if name in image},
        **explicit,
        **derived_variables(image, explicit, interface, networks, omp_threads, interface_names),
    }


def derived_variables(
    image: Mapping[str, str],
    explicit: Mapping[str, str],
    interface: str = SESSION_INTERFACE,
    networks: str = "",
    omp_threads: int = 0,
    interface_names: Sequence[str] = INTERFACE_VARIABLES,
) -> dict[str, str]:
    """Return the derived part of :func:`build_environment`.

    The entrypoint derives :data:`REDERIVED_VARIABLES` again, by the same rules, after the user's bootstrap script.
    """
    merged = {**image, **explicit}
    if int(merged.get("BACKENDAI_CLUSTER_SIZE", "1")) <= 1:
        return {}
    derived = {**training_environment(merged), **dict.fromkeys(interface_names, interface), **_no_proxy(merged)}
    derived["OMP_NUM_THREADS"] = str(omp_threads or "")
    selections = [selection for selection in MPI_SELECTIONS if not merged.get(f"{selection}exclude")]
    derived |= {f"{selection}include": networks for selection in selections}
    return {key: value for key, value in derived.items() if value and not merged.get(key)}


def _no_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the hosts that are reached without a proxy, if there is one and nobody has named such hosts."""
    proxies = [environment.get(written) for name in _PROXY_VARIABLES for written in (name, name.upper())]
    if not any(proxies) or any(environment.get(name) for name in _NO_PROXY_VARIABLES):
        return {}
    return dict.fromkeys(_NO_PROXY_VARIABLES, f"localhost,127.0.0.1,{environment['BACKENDAI_CLUSTER_HOSTS']}")


def training_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that distributed training frameworks read, derived from the session's own variables.

    ``TF_CONFIG`` gives each worker the base port plus its position, as TensorFlow's cluster resolver expects. Raises
    :class:`ValueError` if the base port is not a valid port.
    """
    hosts = environment["BACKENDAI_CLUSTER_HOSTS"].split(",")
    rank = int(environment["BACKENDAI_CLUSTER_LOCAL_RANK"])
    base = environment.get(MASTER_PORT_VARIABLE) or str(DEFAULT_MASTER_PORT)
    if not is_port(base):
        raise ValueError(f"{MASTER_PORT_VARIABLE}: {base!r} is not a port")
    port = int(base)
    workers = [f"{host}:{port + position}" for position, host in enumerate(hosts)]
    return {
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": str(port),
        "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}),
    }


def is_nvidia_switch(name: str) -> bool:
    """Return whether NVIDIA's runtime may act upon a variable that this collection does not set."""
    return name.startswith("NVIDIA_") and not _HARMLESS_NVIDIA.fullmatch(name)


def is_port(text: str) -> bool:
    """Return whether a text is the number of a port."""
    return bool(_PORT.fullmatch(text)) and int(text) < 1 << 16


def environment_text(environment: Mapping[str, str]) -> str:
    """Format an environment as a file with ``KEY=VALUE`` in each line."""
    return "".join(f"{name}={value}\n" for name, value in environment.items())


def parse_environment(text: str) -> dict[str, str]:
    """Parse the text of an environment file; lines that begin with ``#`` are comments."""
    lines = (line for line in text.split("\n") if "=" in line and not line.lstrip().startswith("#"))
    return {key.strip(): value for key, _equals, value in (line.partition("=") for line in lines)}

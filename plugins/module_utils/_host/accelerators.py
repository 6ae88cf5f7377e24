# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Detect the devices of an agent: GPUs of drivers and CDI specifications, and devices declared in the inventory."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._model.devices import HOST_SLOTS, Device
from .._model.errors import one_line
from .._model.quantity import parse_bytes
from .nvidia import are_linked, gpu_nodes

KIND = "nvidia.com/gpu"

_KIND = re.compile(r"""^kind:\s*["']?nvidia\.com/gpu["']?\s*(#.*)?$""", re.MULTILINE)
_VERSION = re.compile(r"""["']?cdiVersion["']?:\s*["']?v?(\d+)\.(\d+)""")
_NAME = re.compile(r"""^[\s-]*name:\s*["']?((?:GPU|MIG)-[^\s"'#]+)""", re.MULTILINE)


def named_gpus(folders: Iterable[str], root: Path = Path("/"), newest: tuple[int, ...] = ()) -> frozenset[str]:
    """Return the UUIDs of the GPUs, and of their MIG instances, that can be assigned to containers by CDI.

    ``folders`` are the engine's CDI specification directories, below ``root``. GPUs that a specification names only by
    index are ignored, because indexes change. Specifications that cannot be read are ignored, and those of a version
    above the ``newest`` that the engine reads.
    """
    specs = (path for folder in folders for path in sorted((root / folder.lstrip("/")).glob("*")))
    return frozenset(uuid for path in specs for uuid in _read_gpu_uuids(path, newest))


def _read_gpu_uuids(path: Path, newest: tuple[int, ...]) -> list[str]:
    read = {".json": _parse_json_spec, ".yaml": _parse_yaml_spec}.get(path.suffix)
    try:
        text = path.read_text() if read else ""
        version = _VERSION.search(text)
        is_newer = newest and version and (int(version[1]), int(version[2])) > newest
        return read(text) if read and not is_newer else []
    except (OSError, ValueError, TypeError, LookupError):
        return []


def _parse_json_spec(text: str) -> list[str]:
    spec = json.loads(text)
    names = [str(device["name"]) for device in spec["devices"]] if spec["kind"] == KIND else []
    return [name for name in names if name.startswith(("GPU-", "MIG-"))]


def _parse_yaml_spec(text: str) -> list[str]:
    return _NAME.findall(text) if _KIND.search(text) else []


CUDA, ROCM = "cuda.device", "rocm.device"
QUERY = ("nvidia-smi", "--query-gpu=uuid,pci.bus_id,name,memory.total,mig.mode.current", "--format=csv,noheader")
LIST = ("nvidia-smi", "-L")
# Timeout of driver queries in seconds.
TIMEOUT_SECONDS = 30

# The hook that assigns GPUs to containers without CDI; the engine has the driver ``nvidia`` only if it is installed.
NVIDIA_HOOK = "nvidia-container-runtime-hook"

INFINIBAND = "/dev/infiniband"

_GPU = re.compile(
    r"^(?P<uuid>GPU-\S+), (?P<domain>[0-9a-f]+):(?P<rest>[^\s,]+)"
    r"(, (?P<model>[^,\n]+), (?P<memory>[^,\n]+)(, (?P<mig>[^,\n]+))?)?$",
    re.MULTILINE | re.IGNORECASE,
)
# A GPU in the driver's list, or an instance of the GPU before it.
_LISTED = re.compile(
    r"^GPU \d+: .*\(UUID: (?P<gpu>[^)\s]+)\)|^\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>[^)\s]+)\)",
    re.MULTILINE,
)


class Accelerators(NamedTuple):
    """All devices of an agent, and warnings about drivers that failed and GPUs that cannot be used."""

    devices: list[Device]
    warnings: list[str]


def find_accelerators(
    slots: Sequence[Mapping[str, Any]],
    root: Path = Path("/"),
    cdi_folders: Iterable[str] = (),
    *,
    newest_cdi: tuple[int, ...] = (),
    systemd_rules: bool = False,
) -> Accelerators:
    """Return the devices of the host below ``root``; ``slots`` are those declared in the inventory (``agent_slots``).

    A declared slot replaces the detected devices of that name; without devices, it hides them; ``cuda.device`` hides
    MIG instances, too. A driver that fails yields a warning and no devices. NVIDIA GPUs that the engine cannot assign
    yield a warning too; ``cdi_folders`` are its CDI specification directories, and ``newest_cdi`` is the newest version
    that it reads. So do those that containers may lose, with ``systemd_rules``: if systemd applies the device rules of
    containers, it takes away what it does not know of.
    Raises :class:`ValueError` with one sentence for an invalid declaration.
    """
    declared = _parse_slots(slots, root)
    names = {slot["name"] for slot in slots}
    detected = [] if ROCM in names else _find_rocm(root)
    gpus: list[Device] = []
    try:
        found, warnings = ([], []) if CUDA in names else _find_cuda(root)
        gpus = [gpu for gpu in found if gpu.slot not in names]
    except subprocess.TimeoutExpired:
        warnings = [f"nvidia-smi did not finish within {TIMEOUT_SECONDS} seconds, so this agent offers no {CUDA}"]
    except subprocess.CalledProcessError as error:
        said = one_line(f"{error.stdout} {error.stderr}")
        warnings = [f"nvidia-smi failed ({said}), so this agent offers no {CUDA}"]
    named = named_gpus(cdi_folders, root, newest_cdi)
    unusable = _unusable_gpus([gpu.id for gpu in gpus], named)
    if unusable:
        read = f" of version {'.'.join(map(str, newest_cdi))} or older, which this engine reads," if newest_cdi else ""
        reason = f"no CDI specification{read} contains them and {NVIDIA_HOOK} is not installed"
        warnings.append(
            f"{', '.join(unusable)}: {reason}, so this agent does not offer them: install nvidia-container-toolkit"
        )
    usable = [gpu for gpu in gpus if gpu.id not in unusable]
    fleeting = _fleeting_gpus([gpu.id for gpu in usable if gpu.id not in named], root) if systemd_rules else []
    if fleeting:
        warnings.append(
            f"{', '.join(fleeting)}: {NVIDIA_HOOK} gives them to containers, which lose them when systemd reloads its"
            " units (cgroup driver systemd): use an engine with CDI, or provision this agent again, so that"
            " the role accelerator links their device nodes in /dev/char"
        )
    return Accelerators([*declared, *detected, *usable], warnings)


def infiniband_nodes(root: Path = Path("/")) -> list[str]:
    """Return the sorted paths of the InfiniBand device nodes that programs need; empty without a ``uverbs`` node.

    Those for management (``umad*``, ``issm*``) are omitted: they can send management datagrams to the subnet manager.
    Symbolic links are ignored.
    """
    verbs = _find_infiniband("uverbs*", root)
    return [*_find_infiniband("rdma_cm", root), *verbs] if verbs else []


def _find_infiniband(pattern: str, root: Path) -> list[str]:
    entries = sorted((root / INFINIBAND.lstrip("/")).glob(pattern))
    paths = [f"/{path.relative_to(root)}" for path in entries if not path.is_symlink()]
    return [path for path in paths if _is_node(path, root)]


def _unusable_gpus(gpus: Iterable[str], cdi_gpus: Collection[str]) -> list[str]:
    """Return the NVIDIA GPUs that the engine cannot assign to containers; it can assign ``cdi_gpus``."""
    return [] if shutil.which(NVIDIA_HOOK) else [gpu for gpu in gpus if gpu not in cdi_gpus]


def _fleeting_gpus(gpus: Iterable[str], root: Path) -> list[str]:
    """Return those of the GPUs that the hook gives to containers whose device nodes are unknown, or not linked."""
    nodes = gpu_nodes(root)
    return [gpu for gpu in gpus if gpu not in nodes or not are_linked(nodes[gpu], root)]


def _parse_slots(slots: Iterable[Mapping[str, Any]], root: Path) -> list[Device]:
    devices: dict[str, Device] = {}
    for slot in slots:
        if slot["name"] in HOST_SLOTS:
            raise ValueError(f"agent_slots: {slot['name']} is measured on the host and cannot be declared")
        for entry in slot["devices"]:
            device = _parse_device(slot["name"], entry, root)
            if device.id in devices:
                raise ValueError(
                    f"agent_slots: {device.id} is declared twice, but a device can only be in one container"
                )
            devices[device.id] = device
    return list(devices.values())


def _parse_device(slot: str, entry: Any, root: Path) -> Device:
    """Parse one declared device: a path, a list of paths, or a mapping of ``paths`` and ``numa``."""
    declaration = entry if isinstance(entry, Mapping) else {"paths": entry}
    paths = [declaration["paths"]] if isinstance(declaration.get("paths"), str) else declaration.get("paths")
    numa = -1 if declaration.get("numa") is None else declaration["numa"]
    if not isinstance(paths, list) or not paths or not isinstance(numa, int) or declaration.keys() - {"paths", "numa"}:
        allowed = "must be a path, a list of paths, or a mapping of paths and numa"
        raise ValueError(f"agent_slots: {entry!r} of {slot} {allowed}")
    for path in paths:
        if not _is_node(path, root):
            raise ValueError(f"agent_slots: {path} of {slot} is not a device node on this host")
    return Device(slot, ",".join(paths), _numa_or_none(numa))


def _find_cuda(root: Path) -> tuple[list[Device], list[str]]:
    """Return the NVIDIA GPUs, or instead of those in MIG mode their instances, and warnings about GPUs without any."""
    if shutil.which(QUERY[0]) is None:
        return [], []
    devices: list[Device] = []
    split: dict[str, Device] = {}
    for gpu in _GPU.finditer(_ask_driver(QUERY)):
        # nvidia-smi prints the PCI domain with eight digits, the kernel with at least four.
        address = f"{int(gpu['domain'], 16):04x}:{gpu['rest'].lower()}"
        numa = _read_numa_node(root / "sys/bus/pci/devices" / address)
        whole = Device(CUDA, gpu["uuid"], numa, model=gpu["model"] or "", memory=_bytes_or_zero(gpu["memory"]))
        if gpu["mig"] == "Enabled":
            split[whole.id] = whole
        else:
            devices.append(whole)
    instances = _find_instances(_ask_driver(LIST), split) if split else {}
    empty = [gpu for gpu in split if gpu not in instances]
    warnings = (
        [f"{', '.join(empty)}: in MIG mode without instances, so this agent does not offer them"] if empty else []
    )
    return [*devices, *(device for found in instances.values() for device in found)], warnings


def _find_instances(listed: str, gpus: Mapping[str, Device]) -> dict[str, list[Device]]:
    """Return the MIG instances of GPUs, by the UUIDs of these; each kind of instance is a slot."""
    instances: dict[str, list[Device]] = {}
    gpu = ""
    for entry in _LISTED.finditer(listed):
        gpu = entry["gpu"] or gpu
        if entry["uuid"] and gpu in gpus:
            # The name of a slot has no plus sign, which instances with media engines have.
            slot = f"cuda.mig-{entry['profile'].lower().replace('+', '.')}"
            size = re.search(r"\d+gb", slot)
            whole = gpus[gpu]
            memory = _bytes_or_zero(size[0]) if size else 0
            instances.setdefault(gpu, []).append(
                Device(slot, entry["uuid"], whole.numa, model=whole.model, memory=memory, gpu=gpu)
            )
    return instances


def _ask_driver(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_SECONDS).stdout


def _bytes_or_zero(text: str | None) -> int:
    """Return the bytes in a text of the driver; 0 if it has no number, as for memory that is shared with the host."""
    try:
        return parse_bytes(text)
    except ValueError:
        return 0


def _find_rocm(root: Path) -> list[Device]:
    devices = []
    folders = root.glob("sys/class/kfd/kfd/topology/nodes/*")
    for folder in sorted(folders, key=lambda folder: int(folder.name)):
        try:
            lines = (folder / "properties").read_text().splitlines()
        except PermissionError:
            # The kernel hides the properties of GPUs that this host may not use.
            continue
        properties = dict(words for words in map(str.split, lines) if len(words) == 2)
        render = f"renderD{properties.get('drm_render_minor')}"
        paths = ["/dev/kfd", f"/dev/dri/{render}"]
        if properties.get("simd_count", "0") != "0" and all(_is_node(path, root) for path in paths):
            devices.append(Device(ROCM, ",".join(paths), _read_numa_node(root / "sys/class/drm" / render / "device")))
    return devices


def _is_node(path: Any, root: Path) -> bool:
    # Commas separate the paths in the id of a device.
    if not isinstance(path, str) or not path.startswith("/") or "," in path:
        return False
    node = root / path.lstrip("/")
    return node.is_char_device() or node.is_block_device()


def _read_numa_node(folder: Path) -> int | None:
    try:
        return _numa_or_none(int((folder / "numa_node").read_text()))
    except OSError:
        return None


def _numa_or_none(numa: int) -> int | None:
    """Return the number of a NUMA node; ``None`` for -1, the kernel's value for an unknown one."""
    return numa if numa >= 0 else None

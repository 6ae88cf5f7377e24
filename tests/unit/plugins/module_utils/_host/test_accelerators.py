"""Tests for the devices of an agent, on a host simulated by a folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import accelerators
from ansible_collections.backendai.cluster.plugins.module_utils._host.accelerators import (
    NVIDIA_HOOK,
    Accelerators,
    find_accelerators,
    infiniband_nodes,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device

NVIDIA = "GPU-aaaa, 00000000:3B:00.0\nGPU-bbbb, 00000000:D8:00.0\nGPU-cccc, 00010000:01:00.0\n"
Driver = Callable[..., None]


@pytest.fixture(autouse=True)
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Return a function that installs this script as nvidia-smi, and NVIDIA's hook, on an otherwise empty PATH."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))

    def install(script: str, *, hook: bool = True) -> None:
        for name in ("nvidia-smi", *([NVIDIA_HOOK] if hook else [])):
            (programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (programs / name).chmod(0o755)

    return install


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host with three device nodes only."""
    (tmp_path / "root/dev/net").mkdir(parents=True)
    for name in ("fuse", "net/tun", "kvm"):
        (tmp_path / "root/dev" / name).symlink_to("/dev/null")
    (tmp_path / "root/dev/file").touch()
    return tmp_path / "root"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def amd(root: Path, node: int, render: int, simds: int = 256, numa: str | None = None) -> None:
    """Add a node of AMD's topology to the host, with its device nodes."""
    properties = f"cpu_cores_count 0\nsimd_count {simds}\ndrm_render_minor {render}\n"
    write(root / f"sys/class/kfd/kfd/topology/nodes/{node}/properties", properties)
    (root / "dev/dri").mkdir(exist_ok=True)
    for name in ("kfd", f"dri/renderD{render}"):
        if not (root / "dev" / name).is_symlink():
            (root / "dev" / name).symlink_to("/dev/null")
    if numa is not None:
        write(root / f"sys/class/drm/renderD{render}/device/numa_node", numa)


def slot(*devices: Any, name: str = "lab.device") -> list[dict[str, Any]]:
    return [{"name": name, "devices": list(devices)}]


def test_host_without_drivers_has_no_devices(root: Path) -> None:
    assert find_accelerators((), root) == Accelerators([], [])


@pytest.mark.parametrize(
    ("entry", "device"),
    [
        ("/dev/fuse", Device("lab.device", "/dev/fuse")),
        (["/dev/fuse"], Device("lab.device", "/dev/fuse")),
        (["/dev/kvm", "/dev/net/tun"], Device("lab.device", "/dev/kvm,/dev/net/tun")),
        ({"paths": "/dev/fuse"}, Device("lab.device", "/dev/fuse")),
        ({"paths": ["/dev/fuse"], "numa": 1}, Device("lab.device", "/dev/fuse", 1)),
        ({"paths": ["/dev/fuse"], "numa": -1}, Device("lab.device", "/dev/fuse")),
        ({"paths": ["/dev/fuse"], "numa": None}, Device("lab.device", "/dev/fuse")),
    ],
)
def test_device_is_declared_by_its_nodes(root: Path, entry: Any, device: Device) -> None:
    assert find_accelerators(slot(entry), root).devices == [device]


def test_slot_may_be_declared_in_several_entries(root: Path) -> None:
    declared = [*slot("/dev/fuse"), *slot("/dev/net/tun"), *slot("/dev/kvm", name="kvm")]
    assert [(device.slot, device.id) for device in find_accelerators(declared, root).devices] == [
        ("lab.device", "/dev/fuse"),
        ("lab.device", "/dev/net/tun"),
        ("kvm", "/dev/kvm"),
    ]


SHAPE = "must be a path, a list of paths, or a mapping of paths and numa"


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        (slot(["/dev/fuse", "/dev/nope"]), "agent_slots: /dev/nope of lab.device is not a device node on this host"),
        (slot("/dev/file"), "agent_slots: /dev/file of lab.device is not a device node on this host"),
        (slot("dev/fuse"), "agent_slots: dev/fuse of lab.device is not a device node on this host"),
        (slot("/dev/fuse,/dev/kvm"), "agent_slots: /dev/fuse,/dev/kvm of lab.device is not a device node on this host"),
        (slot([7]), "agent_slots: 7 of lab.device is not a device node on this host"),
        (slot([]), f"agent_slots: [] of lab.device {SHAPE}"),
        (slot(7), f"agent_slots: 7 of lab.device {SHAPE}"),
        (slot({"numa": 0}), f"agent_slots: {{'numa': 0}} of lab.device {SHAPE}"),
        (
            slot({"paths": "/dev/fuse", "node": 0}),
            f"agent_slots: {{'paths': '/dev/fuse', 'node': 0}} of lab.device {SHAPE}",
        ),
        (
            slot({"paths": "/dev/fuse", "numa": "near"}),
            f"agent_slots: {{'paths': '/dev/fuse', 'numa': 'near'}} of lab.device {SHAPE}",
        ),
        (
            [*slot("/dev/fuse"), *slot("/dev/fuse", name="kvm")],
            "agent_slots: /dev/fuse is declared twice, but a device can only be in one container",
        ),
        (slot("/dev/fuse", name="mem"), "agent_slots: mem is measured on the host and cannot be declared"),
    ],
)
def test_invalid_slot_declaration_is_rejected(root: Path, declared: list[dict[str, Any]], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        find_accelerators(declared, root)


def test_nvidia_gpus_have_a_uuid_and_a_numa_node(root: Path, nvidia_smi: Driver) -> None:
    fields = "uuid,pci.bus_id,name,memory.total,mig.mode.current"
    nvidia_smi(f'[ "$*" = "--query-gpu={fields} --format=csv,noheader" ] && printf "{NVIDIA}"')
    write(root / "sys/bus/pci/devices/0000:3b:00.0/numa_node", "0\n")
    write(root / "sys/bus/pci/devices/0000:d8:00.0/numa_node", "-1\n")
    write(root / "sys/bus/pci/devices/10000:01:00.0/numa_node", "1\n")
    assert find_accelerators((), root) == Accelerators(
        [Device("cuda.device", "GPU-aaaa", 0), Device("cuda.device", "GPU-bbbb"), Device("cuda.device", "GPU-cccc", 1)],
        [],
    )


@pytest.mark.parametrize(
    ("printed", "model", "memory"),
    [
        ("NVIDIA H100 80GB HBM3, 81559 MiB", "NVIDIA H100 80GB HBM3", 81559 << 20),
        ("NVIDIA H100 80GB HBM3, 81559 MiB, Disabled", "NVIDIA H100 80GB HBM3", 81559 << 20),
        ("NVIDIA GB10, [N/A], [N/A]", "NVIDIA GB10", 0),
    ],
)
def test_nvidia_gpus_have_a_model_and_memory(
    root: Path, nvidia_smi: Driver, printed: str, model: str, memory: int
) -> None:
    nvidia_smi(f'echo "GPU-aaaa, 00000000:3B:00.0, {printed}"')
    write(root / "sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n")
    (gpu,) = find_accelerators((), root).devices
    assert gpu == Device("cuda.device", "GPU-aaaa", 1, model=model, memory=memory)


MIG = """\
case $1 in
    -L) printf 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaa)\\n'
        printf '  MIG 1g.10gb     Device  0: (UUID: MIG-1111)\\n  MIG 1g.10gb+me  Device  1: (UUID: MIG-2222)\\n'
        printf 'GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bbbb)\\nGPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-cccc)\\n'
        printf '  MIG 3g.40gb     Device  0: (UUID: MIG-GPU-cccc/1/0)\\n' ;;
    *) for gpu in 'aaaa, 00000000:3B:00.0' 'bbbb, 00000000:D8:00.0' 'cccc, 00010000:01:00.0'; do
            case $gpu in bbbb*) mode=Disabled ;; *) mode=Enabled ;; esac
            echo "GPU-$gpu, NVIDIA H100 80GB HBM3, 81559 MiB, $mode"
        done ;;
esac"""


def test_instances_of_a_gpu_in_mig_mode_are_offered_instead_of_it(root: Path, nvidia_smi: Driver) -> None:
    nvidia_smi(MIG)
    write(root / "sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n")
    model = "NVIDIA H100 80GB HBM3"
    assert find_accelerators((), root) == Accelerators(
        [
            Device("cuda.device", "GPU-bbbb", model=model, memory=81559 << 20),
            Device("cuda.mig-1g.10gb", "MIG-1111", 1, model=model, memory=10 << 30, gpu="GPU-aaaa"),
            Device("cuda.mig-1g.10gb.me", "MIG-2222", 1, model=model, memory=10 << 30, gpu="GPU-aaaa"),
            Device("cuda.mig-3g.40gb", "MIG-GPU-cccc/1/0", model=model, memory=40 << 30, gpu="GPU-cccc"),
        ],
        [],
    )
    hidden = find_accelerators([{"name": "cuda.mig-1g.10gb", "devices": []}], root).devices
    assert [device.id for device in hidden] == ["GPU-bbbb", "MIG-2222", "MIG-GPU-cccc/1/0"]


def test_instances_without_a_specification_of_their_own_are_not_offered(root: Path, nvidia_smi: Driver) -> None:
    nvidia_smi(MIG, hook=False)
    write(root / "etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ndevices:\n- name: MIG-1111\n- name: GPU-bbbb\n")
    write(root / "etc/cdi/more.json", '{"kind": "nvidia.com/gpu", "devices": [{"name": "MIG-GPU-cccc/1/0"}]}')
    accelerators = find_accelerators((), root, ["/etc/cdi"])
    assert [device.id for device in accelerators.devices] == ["GPU-bbbb", "MIG-1111", "MIG-GPU-cccc/1/0"]
    assert [warning.split(":")[0] for warning in accelerators.warnings] == ["MIG-2222"]


def test_a_gpu_in_mig_mode_without_instances_is_a_warning(root: Path, nvidia_smi: Driver) -> None:
    nvidia_smi("[ $1 = -L ] || echo 'GPU-aaaa, 00000000:3B:00.0, NVIDIA H100, 81559 MiB, Enabled'")
    assert find_accelerators((), root) == Accelerators(
        [], ["GPU-aaaa: in MIG mode without instances, so this agent does not offer them"]
    )


@pytest.mark.parametrize(
    ("folders", "hook", "offered"),
    [
        ((), True, ["GPU-aaaa", "GPU-bbbb", "GPU-cccc"]),
        (("/etc/cdi",), True, ["GPU-aaaa", "GPU-bbbb", "GPU-cccc"]),
        (("/etc/cdi",), False, ["GPU-aaaa", "GPU-bbbb"]),
        ((), False, []),
    ],
    ids=["hook", "both", "CDI", "neither"],
)
def test_unassignable_gpus_yield_a_warning_and_are_not_offered(
    root: Path, nvidia_smi: Driver, folders: tuple[str, ...], hook: bool, offered: list[str]
) -> None:
    nvidia_smi(f'printf "{NVIDIA}"', hook=hook)
    write(root / "etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ndevices:\n- name: GPU-aaaa\n- name: GPU-bbbb\n")
    amd(root, 1, 128)
    accelerators = find_accelerators(slot("/dev/fuse"), root, folders)
    assert [device.id for device in accelerators.devices] == ["/dev/fuse", "/dev/kfd,/dev/dri/renderD128", *offered]
    lost = [gpu for gpu in ("GPU-aaaa", "GPU-bbbb", "GPU-cccc") if gpu not in offered]
    sentence = (
        f"{', '.join(lost)}: no CDI specification contains them and nvidia-container-runtime-hook is not installed, so"
        " this agent does not offer them: install nvidia-container-toolkit"
    )
    assert accelerators.warnings == ([sentence] if lost else [])


@pytest.mark.parametrize(
    ("hook", "offered"), [(True, ["GPU-aaaa", "GPU-bbbb", "GPU-cccc"]), (False, [])], ids=["hook", "no hook"]
)
def test_gpus_with_names_that_the_engine_does_not_read_are_given_by_the_hook_or_not_offered(
    root: Path, nvidia_smi: Driver, hook: bool, offered: list[str]
) -> None:
    nvidia_smi(f'printf "{NVIDIA}"', hook=hook)
    names = "".join(f"- name: GPU-{letter * 4}\n" for letter in "abc")
    write(root / "etc/cdi/nvidia.yaml", f"cdiVersion: 0.7.0\nkind: nvidia.com/gpu\ndevices:\n{names}")
    found = find_accelerators((), root, ["/etc/cdi"], newest_cdi=(0, 6))
    assert [device.id for device in found.devices] == offered
    sentence = (
        "GPU-aaaa, GPU-bbbb, GPU-cccc: no CDI specification of version 0.6 or older, which this engine reads, contains"
        " them and nvidia-container-runtime-hook is not installed, so this agent does not offer them: install"
        " nvidia-container-toolkit"
    )
    assert found.warnings == ([] if hook else [sentence])


@pytest.mark.parametrize(
    ("systemd_rules", "minor", "links", "fleeting"),
    [
        (False, 0, [], []),
        (True, 0, [], ["GPU-bbbb", "GPU-cccc"]),
        (True, 0, ["1:3"], ["GPU-cccc"]),
        (True, 5, ["1:3"], ["GPU-bbbb", "GPU-cccc"]),
    ],
    ids=["other rules", "no links", "linked", "no node"],
)
def test_gpus_that_the_hook_gives_and_systemd_takes_away_yield_a_warning(
    root: Path, nvidia_smi: Driver, systemd_rules: bool, minor: int, links: list[str], fleeting: list[str]
) -> None:
    nvidia_smi(f'printf "{NVIDIA}"')
    write(root / "etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ndevices:\n- name: GPU-aaaa\n")
    information = f"GPU UUID: \t GPU-bbbb\nDevice Minor: \t {minor}\n"
    write(root / "proc/driver/nvidia/gpus/0000:d8:00.0/information", information)
    (root / "dev/nvidia0").symlink_to("/dev/null")
    for link in links:
        write(root / "dev/char" / link, "")
    found = find_accelerators((), root, ["/etc/cdi"], systemd_rules=systemd_rules)
    assert [device.id for device in found.devices] == ["GPU-aaaa", "GPU-bbbb", "GPU-cccc"]
    sentence = (
        f"{', '.join(fleeting)}: nvidia-container-runtime-hook gives them to containers, which lose them when systemd"
        " reloads its units (cgroup driver systemd): use an engine with CDI, or provision this agent again,"
        " so that the role accelerator links their device nodes in /dev/char"
    )
    assert found.warnings == ([sentence] if fleeting else [])


def test_folder_without_nodes_is_no_infiniband(root: Path) -> None:
    assert infiniband_nodes(root) == []
    (root / "dev/infiniband/by-ibdev").mkdir(parents=True)
    (root / "dev/infiniband/uverbs0").touch()
    assert infiniband_nodes(root) == []


@pytest.mark.parametrize(
    ("names", "nodes"),
    [
        (["issm0", "rdma_cm", "ucm0", "umad0", "uverbs0", "uverbs1"], ["rdma_cm", "uverbs0", "uverbs1"]),
        (["umad0", "uverbs0"], ["uverbs0"]),
        (["rdma_cm", "umad0"], []),
    ],
    ids=["all kinds", "no connection manager", "no verbs"],
)
def test_infiniband_nodes_are_those_for_programs_without_links(
    root: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], nodes: list[str]
) -> None:
    """Files replace the device nodes, which a test cannot create."""
    folder = root / "dev/infiniband"
    (folder / "by-ibdev").mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    (folder / "by-ibdev/uverbs7").symlink_to("../umad0")
    (folder / "uverbs8").symlink_to("umad0")
    monkeypatch.setattr(Path, "is_char_device", Path.is_file)
    assert infiniband_nodes(root) == [f"/dev/infiniband/{name}" for name in nodes]


def test_what_a_driver_says_on_standard_error_is_no_answer(root: Path, nvidia_smi: Driver) -> None:
    nvidia_smi("echo 'GPU-b, 00000000:3C:00.0, H100, 80 GiB' >&2; echo 'GPU-a, 00000000:3B:00.0, H100, 80 GiB'")
    assert [device.id for device in find_accelerators((), root).devices] == ["GPU-a"]


@pytest.mark.parametrize(
    ("script", "timeout", "warning"),
    [
        (
            "echo 'NVIDIA-SMI has failed because'; echo 'there is no GPU.' >&2; exit 9",
            30,
            "nvidia-smi failed (NVIDIA-SMI has failed because there is no GPU.), so this agent offers no cuda.device",
        ),
        (
            "exec /bin/sleep 30",
            0.1,
            "nvidia-smi did not finish within 0.1 seconds, so this agent offers no cuda.device",
        ),
    ],
    ids=["fails", "hangs"],
)
def test_failing_driver_yields_a_warning_and_no_devices(
    root: Path, nvidia_smi: Driver, monkeypatch: pytest.MonkeyPatch, script: str, timeout: float, warning: str
) -> None:
    nvidia_smi(script)
    monkeypatch.setattr(accelerators, "TIMEOUT_SECONDS", timeout)
    amd(root, 1, 128)
    host = find_accelerators(slot("/dev/fuse"), root)
    assert [device.slot for device in host.devices] == ["lab.device", "rocm.device"]
    assert host.warnings == [warning]


def test_amd_gpus_have_a_render_node_and_the_shared_kfd_node(root: Path) -> None:
    amd(root, 0, 0, simds=0)
    amd(root, 10, 130)
    amd(root, 1, 128, numa="1\n")
    amd(root, 2, 129, numa="-1\n")
    assert find_accelerators((), root).devices == [
        Device("rocm.device", "/dev/kfd,/dev/dri/renderD128", 1),
        Device("rocm.device", "/dev/kfd,/dev/dri/renderD129"),
        Device("rocm.device", "/dev/kfd,/dev/dri/renderD130"),
    ]


def test_gpu_without_a_device_node_is_not_offered(root: Path) -> None:
    amd(root, 1, 128)
    amd(root, 2, 129)
    (root / "dev/dri/renderD128").unlink()
    assert [device.id for device in find_accelerators((), root).devices] == ["/dev/kfd,/dev/dri/renderD129"]


@pytest.mark.parametrize("properties", ["", "name\n", "simd_count 64\n", "drm_render_minor 128\na line of words\n"])
def test_topology_node_with_missing_properties_is_no_gpu(root: Path, properties: str) -> None:
    amd(root, 2, 129)
    write(root / "sys/class/kfd/kfd/topology/nodes/1/properties", properties)
    assert [device.id for device in find_accelerators((), root).devices] == ["/dev/kfd,/dev/dri/renderD129"]


def test_gpu_without_permission_is_not_offered(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    amd(root, 1, 128)
    amd(root, 2, 129)

    def guarded(path: Path) -> str:
        if path.parent.name == "1":
            raise PermissionError(1, "Operation not permitted")
        return path.read_bytes().decode()

    monkeypatch.setattr(Path, "read_text", guarded)
    assert [device.id for device in find_accelerators((), root).devices] == ["/dev/kfd,/dev/dri/renderD129"]


@pytest.mark.parametrize("name", ["cuda.device", "rocm.device"])
@pytest.mark.parametrize("devices", [["/dev/fuse"], []], ids=["others", "none"])
def test_declared_slot_replaces_detected_devices(root: Path, nvidia_smi: Driver, name: str, devices: list[str]) -> None:
    nvidia_smi(f'printf "{NVIDIA}"')
    amd(root, 1, 128)
    detected = find_accelerators(slot(*devices, name=name), root).devices
    assert [device.id for device in detected if device.slot == name] == devices
    assert {device.slot for device in detected} - {name} == {"cuda.device", "rocm.device"} - {name}


def test_devices_of_the_current_host_can_be_read() -> None:
    assert find_accelerators(slot("/dev/null")).devices[0] == Device("lab.device", "/dev/null")

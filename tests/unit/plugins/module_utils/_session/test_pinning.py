"""Pinning to cores and devices, compared with all possible choices."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import (
    Device,
    PinnedResources,
    device_nodes,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.pinning import pin_containers

TWO_NODES = {0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1, 7: 1}
GPU = "cuda.device"
FPGA = "fpga"


def gpus(*numas: int | None) -> list[Device]:
    """Return GPUs ``g0``, ``g1`` … on these nodes."""
    return [Device(GPU, f"g{number}", numa) for number, numa in enumerate(numas)]


def cpus_of(pinned: Sequence[PinnedResources]) -> list[list[int]]:
    return [resources.cpus for resources in pinned]


def test_cores_are_on_the_node_of_the_devices() -> None:
    pinned = pin_containers(TWO_NODES, {}, 1, gpus(1, 0), [{"cpu": 2, GPU: 1}, {"cpu": 2, GPU: 1}])
    assert pinned == [PinnedResources([0, 1], {GPU: ["g1"]}), PinnedResources([4, 5], {GPU: ["g0"]})]


def test_devices_of_one_container_are_on_one_node() -> None:
    assert pin_containers(TWO_NODES, {}, 1, gpus(0, 1, 0, 1, 1), [{"cpu": 1, GPU: 3}]) == [
        PinnedResources([4], {GPU: ["g1", "g3", "g4"]})
    ]


def test_devices_of_different_slots_are_on_one_node_too() -> None:
    free = [*gpus(0, 1), Device(FPGA, "f0", 1)]
    assert pin_containers(TWO_NODES, {}, 1, free, [{"cpu": 1, GPU: 1, FPGA: 1}]) == [
        PinnedResources([4], {GPU: ["g1"], FPGA: ["f0"]})
    ]


def test_devices_are_on_a_node_with_enough_cores() -> None:
    load = dict.fromkeys((0, 1, 2), 1)
    assert pin_containers(TWO_NODES, load, 1, gpus(0, 1), [{"cpu": 2, GPU: 1}]) == [
        PinnedResources([4, 5], {GPU: ["g1"]})
    ]


def test_node_with_the_fewest_devices_that_fit_is_used() -> None:
    assert pin_containers(TWO_NODES, {}, 1, gpus(0, 0, 1), [{"cpu": 1, GPU: 1}]) == [
        PinnedResources([4], {GPU: ["g2"]})
    ]


def test_devices_stay_together_although_their_node_has_no_cores_left() -> None:
    load = dict.fromkeys((4, 5, 6, 7), 1)
    assert pin_containers(TWO_NODES, load, 1, gpus(0, 1, 1), [{"cpu": 2, GPU: 2}]) == [
        PinnedResources([0, 1], {GPU: ["g1", "g2"]})
    ]


def test_devices_span_nodes_if_no_node_has_enough() -> None:
    nodes = {**TWO_NODES, 8: 2}
    assert pin_containers(nodes, {}, 1, gpus(0, 1, 1, 2), [{"cpu": 1, GPU: 3}]) == [
        PinnedResources([0], {GPU: ["g1", "g2", "g0"]})
    ]


def test_device_of_unknown_node_matches_any_node() -> None:
    free = [*gpus(0, 1), Device(FPGA, "f0")]
    load = dict.fromkeys((0, 1, 2, 3), 1)
    assert pin_containers(TWO_NODES, load, 1, free, [{"cpu": 1, GPU: 1, FPGA: 1}]) == [
        PinnedResources([4], {GPU: ["g1"], FPGA: ["f0"]})
    ]


def test_without_known_nodes_the_least_loaded_cores_are_used() -> None:
    one_node = dict.fromkeys(range(4), 0)
    pinned = pin_containers(one_node, {0: 1, 2: 1}, 8, gpus(None, None), [{"cpu": 2, GPU: 1}, {"cpu": 3, GPU: 1}])
    assert pinned == [PinnedResources([1, 3], {GPU: ["g0"]}), PinnedResources([0, 1, 2], {GPU: ["g1"]})]


def test_node_with_the_fewest_available_cores_that_fit_is_used() -> None:
    assert cpus_of(pin_containers(TWO_NODES, {4: 1}, 1, (), [{"cpu": 3}, {"cpu": 4}])) == [[5, 6, 7], [0, 1, 2, 3]]


def test_equal_nodes_are_ordered_by_load() -> None:
    load = dict.fromkeys((0, 1, 2, 3), 1)
    assert cpus_of(pin_containers(TWO_NODES, load, 4, (), [{"cpu": 2}])) == [[4, 5]]


def test_too_wide_container_spans_the_fewest_nodes() -> None:
    nodes = {0: 0, 1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 3, 7: 3, 8: 3}
    assert cpus_of(pin_containers(nodes, {}, 1, (), [{"cpu": 4}])) == [[0, 1, 2, 3]]
    assert cpus_of(pin_containers(nodes, {}, 1, (), [{"cpu": 5}])) == [[1, 2, 3, 4, 5]]


def test_core_at_the_limit_is_used_only_if_too_few_are_available() -> None:
    load = {0: 2, 1: 3, 2: 0, 3: 1, **dict.fromkeys((4, 5, 6, 7), 2)}
    assert cpus_of(pin_containers(TWO_NODES, load, 2, (), [{"cpu": 2}, {"cpu": 3}])) == [[2, 3], [0, 2, 3]]


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"cpu": 9}, "a container requests 9 cores, and 8 are online"),
        ({"cpu": 1, GPU: 2}, "1 of cuda.device are requested beyond what is free"),
        ({"cpu": 1, "tpu": 1}, "1 of tpu are requested beyond what is free"),
    ],
)
def test_missing_resources_are_an_error(request_: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        pin_containers(TWO_NODES, {}, 1, gpus(0), [request_])


@pytest.mark.parametrize(
    ("devices", "nodes"),
    [
        ([], []),
        (["/dev/fuse"], ["/dev/fuse"]),
        (
            ["/dev/kfd,/dev/dri/renderD128", "/dev/kfd,/dev/dri/renderD129"],
            ["/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129"],
        ),
        (["GPU-8d3f", "/dev/fuse"], ["/dev/fuse"]),
    ],
)
def test_device_ids_determine_the_device_nodes(devices: list[str], nodes: list[str]) -> None:
    assert device_nodes(devices) == nodes


machines = st.dictionaries(st.integers(0, 11), st.integers(0, 2), min_size=1, max_size=9)
loads = st.dictionaries(st.integers(0, 11), st.integers(0, 3))
free_devices = st.lists(
    st.builds(Device, st.sampled_from([GPU, FPGA]), st.just(""), st.sampled_from([None, 0, 1, 2])), max_size=6
).map(lambda drawn: [Device(device.slot, f"d{number}", device.numa) for number, device in enumerate(drawn)])
containers = st.lists(
    st.fixed_dictionaries(
        {"cpu": st.integers(1, 4), "mem": st.just(1)}, optional={GPU: st.integers(0, 2), FPGA: st.integers(1, 2)}
    ),
    min_size=1,
    max_size=4,
)


def cut(requests: Sequence[Mapping[str, int]], cores: int, free: Sequence[Device]) -> list[dict[str, int]]:
    """Return the requests limited to the available resources."""
    remaining = {slot: sum(device.slot == slot for device in free) for slot in (GPU, FPGA)}
    fitting = []
    for request in requests:
        granted = {slot: min(amount, remaining.get(slot, cores)) for slot, amount in request.items()}
        remaining = {slot: count - granted.get(slot, 0) for slot, count in remaining.items()}
        fitting.append(granted)
    return fitting


def could_hold(
    node: int, request: Mapping[str, int], open_cores: Collection[int], nodes: Mapping[int, int], free: list[Device]
) -> tuple[bool, bool]:
    """Return whether a node has enough available cores, and enough devices, for a container."""
    near = [device.slot for device in free if device.numa in (node, None)]
    devices = all(near.count(slot) >= amount for slot, amount in request.items() if slot in (GPU, FPGA))
    return sum(nodes[cpu] == node for cpu in open_cores) >= request["cpu"], devices


@given(nodes=machines, load=loads, overcommit=st.integers(1, 3), free=free_devices, drawn=containers)
def test_cores_are_distinct_and_devices_are_not_shared(
    nodes: dict[int, int], load: dict[int, int], overcommit: int, free: list[Device], drawn: list[dict[str, int]]
) -> None:
    requests = cut(drawn, len(nodes), free)
    pinned = pin_containers(nodes, load, overcommit, free, requests)
    slots = {device.id: device.slot for device in free}
    for resources, request in zip(pinned, requests, strict=True):
        assert len(set(resources.cpus)) == request["cpu"]
        assert set(resources.cpus) <= set(nodes)
        assert resources.cpus == sorted(resources.cpus)
        counts = {slot: len(ids) for slot, ids in resources.devices.items()}
        assert counts == {slot: request[slot] for slot in (GPU, FPGA) if request.get(slot)}
        assert all(slots[device] == slot for slot, ids in resources.devices.items() for device in ids)
    given_away = [device for resources in pinned for device in resources.device_ids]
    assert len(set(given_away)) == len(given_away)


@given(nodes=machines, load=loads, overcommit=st.integers(1, 3), free=free_devices, drawn=containers)
def test_container_is_on_one_node_if_any_node_fits(
    nodes: dict[int, int], load: dict[int, int], overcommit: int, free: list[Device], drawn: list[dict[str, int]]
) -> None:
    numas = {device.id: device.numa for device in free}
    remaining, busy = free, {cpu: load.get(cpu, 0) for cpu in nodes}
    requests = cut(drawn, len(nodes), free)
    for resources, request in zip(pin_containers(nodes, load, overcommit, free, requests), requests, strict=True):
        open_cores = [cpu for cpu in nodes if busy[cpu] < overcommit]
        everywhere = set(nodes.values()) | {device.numa for device in remaining if device.numa is not None}
        can = [could_hold(node, request, open_cores, nodes, remaining) for node in everywhere]
        of_cores = {nodes[cpu] for cpu in resources.cpus}
        of_devices = {numas[device] for device in resources.device_ids} - {None}
        if any(cores for cores, _devices in can):
            assert len(of_cores) == 1
        if any(devices for _cores, devices in can):
            assert len(of_devices) <= 1
        if (True, True) in can:
            assert len(of_cores | of_devices) == 1
        remaining = [device for device in remaining if device.id not in resources.device_ids]
        for cpu in resources.cpus:
            busy[cpu] += 1


@given(nodes=machines, load=loads, overcommit=st.integers(1, 3), requested=st.integers(1, 9))
def test_container_spans_as_few_nodes_as_possible(
    nodes: dict[int, int], load: dict[int, int], overcommit: int, requested: int
) -> None:
    open_cores = [cpu for cpu in nodes if load.get(cpu, 0) < overcommit]
    count = min(requested, len(open_cores))
    if count:
        (resources,) = pin_containers(nodes, load, overcommit, (), [{"cpu": count}])
        sizes = [sum(nodes[cpu] == node for cpu in open_cores) for node in set(nodes.values())]
        fewest = min(
            k for k in range(1, 4) for some in itertools.combinations(sizes, min(k, len(sizes))) if sum(some) >= count
        )
        assert len({nodes[cpu] for cpu in resources.cpus}) == fewest


@given(nodes=machines, load=loads, overcommit=st.integers(1, 3), free=free_devices, drawn=containers)
def test_within_a_node_the_least_loaded_cores_are_used_first(
    nodes: dict[int, int], load: dict[int, int], overcommit: int, free: list[Device], drawn: list[dict[str, int]]
) -> None:
    busy = {cpu: load.get(cpu, 0) for cpu in nodes}
    for resources in pin_containers(nodes, load, overcommit, free, cut(drawn, len(nodes), free)):
        for used, unused in itertools.product(resources.cpus, nodes.keys() - resources.cpus):
            if nodes[used] == nodes[unused]:
                assert (busy[used], used) < (busy[unused], unused)
        for cpu in resources.cpus:
            busy[cpu] += 1


@given(nodes=machines, load=loads, overcommit=st.integers(1, 3), drawn=containers)
def test_core_at_the_limit_is_unused_while_others_are_available(
    nodes: dict[int, int], load: dict[int, int], overcommit: int, drawn: list[dict[str, int]]
) -> None:
    busy = {cpu: load.get(cpu, 0) for cpu in nodes}
    requests = [{"cpu": min(request["cpu"], len(nodes))} for request in drawn]
    for resources in pin_containers(nodes, load, overcommit, (), requests):
        open_cores = {cpu for cpu in nodes if busy[cpu] < overcommit}
        full = set(resources.cpus) - open_cores
        assert not full or open_cores <= set(resources.cpus)
        assert all((busy[cpu], cpu) < (busy[other], other) for cpu in full for other in nodes.keys() - resources.cpus)
        for cpu in resources.cpus:
            busy[cpu] += 1


@given(nodes=machines, sizes=st.lists(st.integers(1, 3), min_size=1, max_size=6))
def test_without_overcommit_cores_are_exclusive_while_any_is_free(nodes: dict[int, int], sizes: list[int]) -> None:
    last = len(nodes)
    fitting = [size for size, total in zip(sizes, itertools.accumulate(sizes), strict=True) if total <= last]
    given_away = [
        cpu
        for resources in pin_containers(nodes, {}, 1, (), [{"cpu": size} for size in fitting])
        for cpu in resources.cpus
    ]
    assert len(set(given_away)) == len(given_away) == sum(fitting)


@given(nodes=machines, load=loads, free=free_devices, drawn=containers)
def test_pinning_does_not_depend_on_the_order_of_its_inputs(
    nodes: dict[int, int], load: dict[int, int], free: list[Device], drawn: list[dict[str, int]]
) -> None:
    requests = cut(drawn, len(nodes), free)
    turned = dict(reversed(nodes.items()))
    assert pin_containers(turned, load, 2, free, requests) == pin_containers(nodes, load, 2, free, requests)

"""Makes every call of the collection to an engine, as the collection makes it."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._docker import (
    container,
    containers,
    default_network,
    foreign,
    image_files,
    images,
    labels,
    logs,
    networks,
    registry,
)
from ansible_collections.backendai.cluster.plugins.module_utils._docker.container import Bind, Container, LogConfig
from ansible_collections.backendai.cluster.plugins.module_utils._docker.exec import run_as_work
from ansible_collections.backendai.cluster.plugins.module_utils._session.others import find_others
from tests.unit.engine_api.engine import INDEX, NAME

MAC = "02:ba:0a:80:03:02"
NETWORK = "backendai-train-llm"
MAIN = Container(
    name="backendai-train-llm-main1",
    hostname="main1",
    image=NAME,
    argv=("python3", "-i"),
    explicit_environment={"TOKEN": "hunter2", "BACKENDAI_CLUSTER_SIZE": "1"},
    image_environment={"PATH": "/bin"},
    kit="/kit",
    uid=1000,
    gid=100,
    binds=(Bind("/sessions/main1", "/run/backendai"), Bind("/mnt/a", "/a")),
    cpus=(0, 2),
    devices=("GPU-1", "/dev/fuse"),
    memory=1 << 30,
    shm_size=None,
    default_network="backendai-default",
    network=NETWORK,
    address="10.128.3.2",
    mac=MAC,
    labels={labels.OWNER: labels.OWNER_VALUE, labels.SESSION_ID: "1", labels.HOSTNAME: "main1"},
    published=((22, "192.0.2.1", 30000),),
    ulimits={"memlock": -1},
    infiniband=("/dev/infiniband/rdma_cm",),
    groups=(2000,),
    sources={"/mnt/a": "/srv/a"},
    pids=4608,
    log=LogConfig("json-file", 20 << 20, 5),
)


def desired(client: Any) -> Container:
    """Return the container for a client; what it is depends on the engine."""
    recursive = container.speaks(client, "1.44")
    return dataclasses.replace(MAIN, recursive=recursive, cdi_gpus=frozenset({"GPU-1"} if recursive else ()))


def bridge(name: str = NETWORK) -> networks.BridgeNetwork:
    """Return the network of a session on one agent."""
    return networks.BridgeNetwork(name, "10.128.3.0/29", 1450, "bai-1", "1")


def make_all_calls(client: Any) -> None:
    """Make each of the calls."""
    client.info()
    client.version()
    _call_for_networks(client)
    _call_for_images(client)
    main = container.create_container(client, desired(client))
    for other in (
        dataclasses.replace(desired(client), network=None, address=None, mac=None, devices=(), infiniband=None),
        dataclasses.replace(desired(client), mac=None, no_new_privileges=False),
        dataclasses.replace(desired(client), network="host", address=None, mac=None, published=()),
    ):
        container.create_container(client, other)
    containers.find_labelled(client)
    containers.find_labelled(client, "1")
    containers.inspect(client, main)
    client.start(main)
    run_as_work(client, main, ["true"], 5)
    logs.tail_of(client, main, 10, timestamps=True, since=5)
    client.kill(main, "SIGPWR")
    containers.kill(client, main)
    containers.remove_containers(client, [{"Id": main, "Names": ["/main1"], "State": "exited"}])
    foreign.list_foreign(client)
    find_others(client, ask_driver=False)


def _call_for_networks(client: Any) -> None:
    networks.create_network(client, bridge())
    networks.find_networks(client, "1")
    networks.remove_networks(client, "1")
    default = default_network.DefaultNetwork("backendai-default", "backendai0", "172.30.0.0/16")
    default_network.create_default_network(client, default)


def _call_for_images(client: Any) -> None:
    lines: list[Any] = []
    digest = f"{NAME.rpartition(':')[0]}@{INDEX}"
    images.pull_image(client, NAME, digest, {}, lines.append)
    image = images.find_image(client, NAME)
    assert image is not None
    images.disk_usage(client, dataclasses.replace(image, in_containerd=True))
    images.image_ids(client)
    images.remove_image(client, dataclasses.replace(image, digests=()))
    assert registry.may_read(client, digest, {"username": "reader", "password": "hunter2"}, 5)
    # The image has no files.
    with (
        contextlib.suppress(image_files.ImageLookError),
        image_files.image_files(client, image.id, "backendai-look-1", ["/data"]) as files,
    ):
        files.entry("/etc/passwd")
        files.read("/etc/passwd", 1)

"""Agents with another engine or another store of images than those of the lab, beside it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.laboratory import Run, in_parallel
from tests.integration.removals import Hosts
from tests.integration.spare_hosts import SpareHost, spare_hosts
from tests.lab.identity import Host

#: Where agents of these tests ask their engine: a program there writes down what, and passes it on.
RECORDER, REQUESTS = "/run/lab-recorder.sock", "/root/requests.json"
ENGINE = "/run/docker.sock"
#: Packages that a role installs with the engine of the distribution, for hosts that have another one.
WITHOUT_ENGINE = (
    *("busybox-static", "ca-certificates", "iproute2", "iptables", "nftables", "openssh-client", "openssh-server"),
    *("python3-docker", "shellinabox"),
)


class Variant(NamedTuple):
    """An agent: its ``engine`` is that of its suite, or what is in a folder of packages."""

    name: str
    suite: str
    version: str
    containerd: bool = False
    packages: str = ""


def _given() -> tuple[Variant, ...]:
    """Return the variants of the engine whose packages somebody has put into a folder, with both stores."""
    folder = os.environ.get("LAB_AGENT3_ENGINE", "")
    if not folder:
        return ()
    return (
        Variant("given", "trixie", "", packages=folder),
        Variant("given-containerd", "trixie", "", containerd=True, packages=folder),
    )


#: The first is a neighbour of the others.
VARIANTS = (
    Variant("bookworm", "bookworm", "20.10."),
    Variant("trixie", "trixie", "26.1."),
    Variant("trixie-containerd", "trixie", "26.1.", containerd=True),
    Variant("sid", "trixie-sid", ""),
    Variant("sid-containerd", "trixie-sid", "", containerd=True),
    *_given(),
)


class Agents:
    """The agents, provisioned and with the session images."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._by_name = {host.name: host for host in hosts.hosts}

    def of(self, variant: Variant) -> SpareHost:
        """Return the agent of a variant."""
        return self._by_name[agent_name(variant)]

    def play(self, playbook: str, **variables: object) -> Run:
        """Run a playbook on all of them."""
        return self._hosts.play(playbook, **{"agent_docker_host": f"unix://{RECORDER}", **variables})

    def session(self, playbook: str, **variables: object) -> Run:
        """Run a playbook with ``session_*`` variables given without their prefix."""
        return self.play(playbook, **{f"session_{name}": value for name, value in variables.items()})

    def requests(self, variant: Variant) -> list[Mapping[str, Any]]:
        """Return what the engine of a variant was asked."""
        return [json.loads(line) for line in self.of(variant).run(f"cat {REQUESTS}").splitlines()]


def agent_name(variant: Variant) -> str:
    """Return the name of the agent of a variant."""
    return f"engine{VARIANTS.index(variant)}"


def _prepare(host: SpareHost, variant: Variant) -> None:
    """Let a host have its own engine, or its settings, before it is provisioned, and start the recorder."""
    if variant.containerd:
        settings = json.dumps({"features": {"containerd-snapshotter": True}})
        host.run(f"mkdir -p /etc/docker && echo '{settings}' > /etc/docker/daemon.json")
    if variant.packages:
        host.run("mkdir /root/engine")
        host.copy(Path(variant.packages), "/root/engine")
        host.run("apt-get install -y -q --no-install-recommends /root/engine/*.deb iptables")
    host.run("mkdir /root/recorder")
    host.copy(Path(__file__).parent, "/root/recorder")
    program = f"python3 /root/recorder/recorder.py {RECORDER} {ENGINE} {REQUESTS}"
    host.run(f"systemd-run --quiet --unit=lab-recorder {program}")


@contextlib.contextmanager
def agents(folder: Path) -> Iterator[Agents]:
    """Yield the agents of all variants."""
    wanted = [
        Host(agent_name(variant), "agents", variant.suite, 70 + number) for number, variant in enumerate(VARIANTS)
    ]
    packages = {"agent_packages": list(WITHOUT_ENGINE)}
    variables = {agent_name(variant): packages for variant in VARIANTS if variant.packages}
    with spare_hosts(folder, *wanted, variables=variables) as (hosts, options):
        in_parallel(*(partial(_prepare, host, variant) for host, variant in zip(hosts, VARIANTS, strict=True)))
        made = Agents(Hosts(hosts, options, folder))
        provisioned = made.play("provision_agents")
        assert provisioned.code == 0, provisioned.output
        in_parallel(*(host.load_images for host in hosts))
        yield made

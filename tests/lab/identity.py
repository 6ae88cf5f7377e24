"""Names and paths of a lab, all derived from the checkout's path and the lab's number.

Two labs have two ids, so their resources cannot be confused.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Literal

EngineKind = Literal["machine", "private"]

#: The pool of session networks (the collection's default).
SESSION_POOL = IPv4Network("10.128.0.0/9")
#: The pool of underlays; each lab uses a /24.
UNDERLAY_POOL = IPv4Network("10.77.0.0/16")
#: The label of everything that the lab creates in an engine.
LABEL = "backendai.lab"
#: Suites whose C library is older than glibc 2.34: their own programs are no runtime kit.
SUITES_WITHOUT_KIT = ("bullseye",)


@dataclass(frozen=True)
class Host:
    """One host of the lab. ``offset`` is its address in the underlay's /24."""

    name: str
    group: str
    suite: str
    offset: int

    @property
    def needs_kit(self) -> bool:
        """Whether it is provisioned with the runtime kit as a file."""
        return self.group == "agents" and self.suite in SUITES_WITHOUT_KIT


#: Where agents have the folder that they share.
SHARED = "/mnt/shared"
#: With the suite ``trixie-sid`` the engine is unstable's, which changes every day, so it is no default. Agents with
#: ``bullseye`` are as old as RHEL 9: Python 3.9, nft 0.9.8, version 4.1 of the Docker SDK.
HOSTS = (
    Host("agent1", "agents", "bookworm", 11),
    Host("agent2", "agents", "bookworm", 12),
    Host("agent3", "agents", os.environ.get("LAB_AGENT3_SUITE", "trixie"), 13),
    Host("gateway1", "gateways", "bookworm", 21),
    Host("user1", "users", "bookworm", 31),
    Host("manager1", "managers", "bookworm", 41),
)
AGENTS = tuple(host for host in HOSTS if host.group == "agents")
MANAGER = next(host for host in HOSTS if host.group == "managers")
SUITES = tuple(dict.fromkeys(host.suite for host in HOSTS))


@dataclass(frozen=True)
class Lab:
    """Names and folders of a lab of one checkout. The first is everybody's; others make test runs shorter."""

    checkout: Path
    number: int = 1

    @property
    def id(self) -> str:
        """Eight hexadecimal digits: short enough for interface names, which hold 15 characters."""
        return hashlib.sha256(f"{self.checkout}{self._suffix}".encode()).hexdigest()[:8]

    @property
    def folder(self) -> Path:
        """The folder of all state."""
        return self.checkout / f".lab{self._suffix}"

    @property
    def _suffix(self) -> str:
        return "" if self.number == 1 else str(self.number)

    @property
    def logs(self) -> Path:
        """The folder of the logs of long commands."""
        return self.folder / "logs"

    @property
    def images(self) -> Path:
        """The folder of the session images' archive."""
        return self.folder / "images"

    @property
    def shared(self) -> Path:
        """The folder that all agents have as :data:`SHARED`: one file system, as of a file server."""
        return self.folder / "shared"

    @property
    def cache(self) -> Path:
        """The folder of built images, which outlives the lab."""
        return self.checkout / ".cache" / "lab"

    @property
    def wheels(self) -> Path:
        """The folder of Python packages for manager1, which has no way out; it outlives the lab, too."""
        return self.checkout / ".cache" / "manager-wheels"

    @property
    def inventory(self) -> Path:
        """The inventory of all hosts."""
        return self.folder / "inventory.yml"

    @property
    def manager_inventory(self) -> Path:
        """The inventory that is installed on manager1."""
        return self.folder / "manager-inventory.yml"

    @property
    def kit(self) -> Path:
        """The runtime kit as a file, of packages of this machine."""
        return self.folder / "kit.tar.gz"

    @property
    def key(self) -> Path:
        """The private SSH key for the hosts."""
        return self.folder / "ssh" / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """The hosts' public keys."""
        return self.folder / "ssh" / "known_hosts"

    @property
    def run_folder(self) -> Path:
        """The private engine's /run. Outside ``.lab``, because a socket's path is limited to 108 bytes."""
        return Path("/run") / self.name

    @property
    def connections(self) -> Path:
        """The folder of the SSH connections of provisioning, whose path is as limited."""
        return Path("/run") / f"{self.name}-ssh"

    @property
    def provisioned(self) -> Path:
        """The note of what the hosts were provisioned with."""
        return self.folder / "provisioned.json"

    @property
    def name(self) -> str:
        """The name of the network namespace, the cgroup, the Docker network and the image repository."""
        return f"backendai-lab-{self.id}"

    @property
    def veth(self) -> str:
        """The control node's interface on the underlay of a private engine."""
        return f"bl{self.id}r"

    @property
    def bridge(self) -> str:
        """The underlay's bridge."""
        return f"bl{self.id}b"

    @property
    def metric(self) -> int:
        """The metric of the lab's blackhole routes: it identifies them, and is higher than that of usual routes."""
        return 0x80000000 | int(self.id, 16) & 0x7FFFFFFF


def labs_of(checkout: Path) -> list[Lab]:
    """Return the first lab of a checkout, and the others that it has."""
    others = (path.name.removeprefix(".lab") for path in checkout.glob(".lab*"))
    return [Lab(checkout), *(Lab(checkout, int(number)) for number in sorted(others) if number.isdigit())]


@dataclass(frozen=True)
class State:
    """Settings chosen at the first ``up``, which must not change while the lab exists."""

    engine: EngineKind
    subnet: str
    docker_host: str

    def address(self, host: Host) -> IPv4Address:
        """Return the host's address on the underlay."""
        return IPv4Network(self.subnet)[host.offset]

    @property
    def router(self) -> IPv4Address:
        """The bridge's address: the hosts' default gateway, which forwards nothing."""
        return IPv4Network(self.subnet)[1]

    @property
    def control_node(self) -> IPv4Address:
        """The machine's address on the underlay; that of the bridge if the engine is the machine's."""
        return IPv4Network(self.subnet)[2 if self.engine == "private" else 1]


def load_state(lab: Lab) -> State | None:
    """Return the lab's saved state, or None if it is missing or corrupt."""
    try:
        return State(**json.loads((lab.folder / "state.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def save_state(lab: Lab, state: State) -> None:
    """Save the lab's state atomically."""
    lab.folder.mkdir(exist_ok=True)
    draft = lab.folder / "state.json.new"
    draft.write_text(json.dumps({**asdict(state)}, indent=2) + "\n")
    draft.replace(lab.folder / "state.json")

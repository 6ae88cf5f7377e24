"""Names, paths and addresses of a large lab: simulated agents, which have no engine of their own."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from tests.lab.identity import Lab

#: The addresses of the agents, each in a network namespace without a way out; reserved for measurements (RFC 2544).
ADDRESSES = IPv4Network("198.18.0.0/15")
#: An agent offers this many times its cores, and its containers take all of them, each as many as there are.
CONTAINERS = 5


@dataclass(frozen=True)
class LargeLab(Lab):
    """Names and folders of the large lab of one checkout, or of another folder."""

    @property
    def folder(self) -> Path:
        return self.checkout / ".lab-large"

    @property
    def name(self) -> str:
        return f"backendai-large-{self.id}"

    @property
    def inventory(self) -> Path:
        """The inventory of the agents."""
        return self.folder / "inventory.yml"

    @property
    def queue(self) -> Path:
        """The folder of the queue."""
        return self.folder / "queue"

    def agent(self, number: int) -> SimulatedAgent:
        """Return the agent with that number, which begins with 1."""
        name = f"simulated{number:03}"
        return SimulatedAgent(
            name, ADDRESSES[number], f"{self.name}-{number}", self.folder / name, self.run_folder / f"{name}.sock"
        )


@dataclass(frozen=True)
class SimulatedAgent:
    """One agent: its name in the inventory, its address, its network namespace, its folder and its engine's socket."""

    name: str
    address: IPv4Address
    namespace: str
    folder: Path
    socket: Path

    @property
    def state(self) -> Path:
        """The folder ``agent_state_path``."""
        return self.folder / "state"

    @property
    def homes(self) -> Path:
        """The folder ``agent_home_path``."""
        return self.folder / "homes"

    @property
    def interpreter(self) -> Path:
        """The program that runs Python on the agent."""
        return self.folder / "python"

"""The lab's command line."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

from tests.lab.blackholes import ensure_blackholes, remove_blackholes
from tests.lab.command import LabError, report, step
from tests.lab.debian import require
from tests.lab.distributed_image import ensure_distributed_image
from tests.lab.engine import Engine, clear_private_engine, docker_host, engine_kind, ensure_engine
from tests.lab.exclusive import exclusive
from tests.lab.host_image import SPACE, ensure_images, remove_outdated_images
from tests.lab.hosts import (
    await_hosts,
    container_name,
    ensure_hosts,
    ensure_login_key,
    host_states,
    remove_hosts,
    ssh_answers,
)
from tests.lab.identity import HOSTS, Lab, State, labs_of, load_state, save_state
from tests.lab.inventory import write_inventories
from tests.lab.leftovers import remove_folder
from tests.lab.network import choose_subnet, connect_control_node
from tests.lab.provision import ensure_provisioned, remove_runs
from tests.lab.scenarios import create_scenario_hosts, parse_hosts, remove_scenario_hosts
from tests.lab.session_images import load_session_images
from tests.lab.tools import set_up_meanwhile
from tests.lab.users import ensure_users
from tests.lab.wheels import ensure_wheels

#: A disk with fewer free MiB is full: what could not be written was larger.
FULL = 64


def up(lab: Lab) -> int:
    """Build and start whatever is missing of the lab, and write the inventory."""
    engine, state = _ensure_underlay(lab)
    ensure_images(engine, state)
    with step("hosts"):
        new = ensure_hosts(engine, state)
        if new:  # a new host is not provisioned
            lab.provisioned.unlink(missing_ok=True)
            remove_outdated_images(engine)
        await_hosts(engine, state, new)
    ensure_users(engine, state)
    write_inventories(lab, state)
    places = ", ".join(f"{host.name} {state.address(host)}" for host in HOSTS)
    report(f"up ({state.engine} engine, {state.docker_host}): {places}")
    return 0


def _ensure_underlay(lab: Lab) -> tuple[Engine, State]:
    """Start whatever is missing of the engine, the network and the way into it."""
    require("ip", "ssh-keygen")
    state = load_state(lab) or _create_state(lab)
    engine = ensure_engine(lab, state)
    if state.engine == "private":
        connect_control_node(lab, state)
    ensure_blackholes(lab, IPv4Network(state.subnet))
    ensure_login_key(lab)
    return engine, state


def _create_state(lab: Lab) -> State:
    """Remove leftovers, then choose and save the settings that stay the same for the life of a lab."""
    _clear(lab)
    kind = engine_kind()
    state = State(engine=kind, subnet=str(choose_subnet(lab)), docker_host=docker_host(lab, kind))
    save_state(lab, state)
    return state


def all_of_it(lab: Lab) -> int:
    """Set up the tools and start the hosts at the same time, then provision the hosts and load the session images."""
    with step("the lab"):
        with set_up_meanwhile(lab):
            up(lab)
        ensure_provisioned(lab, partial(images, lab))
    return 0


def provision(lab: Lab) -> int:
    """Provision the hosts that are not as the current collection makes them."""
    _existing(lab)
    ensure_provisioned(lab)
    return 0


def images(lab: Lab) -> int:
    """Load the session images on the agents."""
    engine, state = _existing(lab)
    load_session_images(engine, partial(container_name, state, lab))
    return 0


def distributed(lab: Lab) -> int:
    """Build the image with the software for distributed work, and load it on the agents."""
    engine, state = _existing(lab)
    ensure_distributed_image(engine, partial(container_name, state, lab))
    return 0


def suites(lab: Lab, names: Sequence[str]) -> int:
    """Provide the images of hosts of these suites."""
    engine, state = _existing(lab)
    ensure_images(engine, state, names, with_sessions=False)
    return 0


def create(lab: Lab, scenario: str, inventory: Path, hosts: Sequence[str]) -> int:
    """Make new hosts of a Molecule scenario, beside the lab's, and write their inventory."""
    wanted = parse_hosts(scenario, hosts)
    engine, state = _ensure_underlay(lab)
    ensure_images(engine, state, sorted({suite for _name, suite in wanted}), with_sessions=False)
    create_scenario_hosts(engine, state, scenario, wanted, inventory)
    return 0


def destroy(lab: Lab, scenario: str) -> int:
    """Remove the hosts of a Molecule scenario."""
    state = load_state(lab)
    if state and (engine := Engine(lab, state.docker_host)).answers():
        remove_scenario_hosts(engine, scenario)
    return 0


def wheels(lab: Lab) -> int:
    """Download the Python packages that a host of the role manager installs."""
    ensure_wheels(lab)
    return 0


def status(lab: Lab) -> int:
    """Print a line per host; the exit code is 1 unless all of them can be reached."""
    engine, state = _existing(lab)
    states = host_states(engine, state)
    reachable = {host.name: states[host.name] == "running" and ssh_answers(state.address(host)) for host in HOSTS}
    for host in HOSTS:
        answer = "ssh answers" if reachable[host.name] else "no answer"
        report(f"{host.name:9} {state.address(host)!s:12} {host.suite:9} {states[host.name]}, {answer}")
    return 0 if all(reachable.values()) else 1


def down(lab: Lab) -> int:
    """Remove all labs of the checkout and everything that they created."""
    with step("down"):
        for each in labs_of(lab.checkout):
            _clear(each)
    return 0


def _existing(lab: Lab) -> tuple[Engine, State]:
    """Return the engine and the state of a running lab."""
    state = load_state(lab)
    if state:
        engine = Engine(lab, state.docker_host)
        if engine.answers():
            return engine, state
    raise LabError("the lab is not up: run `python3 -m tests.lab up`")


def _clear(lab: Lab) -> None:
    """Remove everything with the lab's id, even without a saved state."""
    machine = Engine(lab, docker_host(lab, "machine"))
    if machine.answers():
        remove_scenario_hosts(machine)
        remove_hosts(machine)
    clear_private_engine(lab)
    remove_runs(lab)
    remove_blackholes(lab)
    remove_folder(lab.folder)


def _explained(lab: Lab, error: LabError | OSError) -> str:
    """Return the sentence for an error: whatever failed on a full disk says so in words of its own."""
    if shutil.disk_usage(lab.checkout).free < FULL << 20:
        return f"no space is left in {lab.checkout}: free {SPACE} GiB, then run the command again"
    return str(error)


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, whose ``command`` is the function to call with the other arguments."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.lab", description="The lab of six hosts.")
    parser.add_argument("--number", type=int, default=1, help="that of the lab, if it is not the first")
    subparsers = parser.add_subparsers(required=True)
    parsers: dict[str, argparse.ArgumentParser] = {}
    named = {
        command.__name__: command for command in (up, provision, images, distributed, status, down, wheels, suites)
    }
    for name, command in {
        "all": all_of_it,
        **named,
        "create": create,
        "destroy": destroy,
        "wheels": wheels,
        "suites": suites,
    }.items():
        parsers[name] = subparsers.add_parser(name, help=command.__doc__)
        parsers[name].set_defaults(command=command)
    for name in ("create", "destroy"):
        parsers[name].add_argument("scenario", help="the name of the scenario")
    parsers["suites"].add_argument("names", nargs="+", metavar="SUITE", help="trixie-sid, for example")
    parsers["create"].add_argument("inventory", type=Path, help="the file to write")
    parsers["create"].add_argument("hosts", nargs="+", metavar="NAME:SUITE", help="agent1:bookworm, for example")
    return parser


def main() -> int:
    """Run one command; print errors as one sentence."""
    arguments = vars(_parser().parse_args())
    command = arguments.pop("command")
    lab = Lab(Path(__file__).resolve().parents[2], arguments.pop("number"))
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # missing in the PATH of `su`
    try:
        if os.geteuid() != 0:
            raise LabError("this requires root, to create network namespaces and start a Docker engine")
        if command is status:  # read-only, so allowed while another command runs
            return status(lab)
        with exclusive(lab):
            return int(command(lab, **arguments))
    except (LabError, OSError) as error:
        print(f"lab: {_explained(lab, error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted; run `up` again to continue, or `down`", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

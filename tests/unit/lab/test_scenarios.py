"""Hosts of Molecule scenarios are beside those of the lab: neither side touches the other's."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lab import __main__ as commands
from tests.lab import scenarios
from tests.lab.command import LabError
from tests.lab.engine import Engine
from tests.lab.host_image import image_tag, remove_outdated_images
from tests.lab.identity import HOSTS, LABEL, Lab, State

STATE = State(engine="private", subnet="10.77.5.0/24", docker_host="unix:///missing")
MACHINES = State(engine="machine", subnet="10.77.5.0/24", docker_host="unix:///missing")
AGENT = ("agent1", "bookworm")
USER = ("user1", "trixie")


class FakeEngine(Engine):
    """An engine that has containers and answers nothing else."""

    def __init__(self, lab: Lab, *containers: str) -> None:
        super().__init__(lab, STATE.docker_host)
        self.containers = {line.split("\t")[0]: line for line in containers}
        self.calls: list[tuple[str, ...]] = []

    def docker(self, *arguments: str, **_options: Any) -> str:
        self.calls.append(arguments)
        if arguments[0] == "ps":
            assert f"label={scenarios.OWNER_LABEL}={self.lab.id}" in arguments
            return "\n".join(self.containers.values())
        if arguments[0] == "rm":
            del self.containers[arguments[-1]]
        if arguments[0] == "create":
            name = arguments[arguments.index("--name") + 1]
            labels = dict(word.removeprefix("--label=").split("=") for word in arguments if word.startswith("--label="))
            line = "\t".join([name, labels[f"{LABEL}.offset"], labels[scenarios.SCENARIO_LABEL]])
            self.containers[name] = line
        return "ssh-ed25519 AAAA root@host" if arguments[0] == "exec" else ""

    def created(self) -> list[tuple[str, ...]]:
        return [call for call in self.calls if call[0] == "create"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A lab in which every host boots at once."""
    monkeypatch.setattr(scenarios, "await_ssh", lambda *_host: None)
    lab = Lab(tmp_path)
    lab.key.parent.mkdir(parents=True)
    lab.key.with_suffix(".pub").write_text("ssh-ed25519 BBBB lab\n")
    return lab


def create(engine: Engine, scenario: str, *wanted: tuple[str, str], state: State = STATE) -> dict[str, str]:
    """Create hosts, and return the addresses in the inventory."""
    path = engine.lab.checkout / f"{scenario}.json"
    scenarios.create_scenario_hosts(engine, state, scenario, wanted, path)
    hosts = json.loads(path.read_text())["all"]["hosts"]
    return {name: variables["ansible_host"] for name, variables in hosts.items()}


def test_hosts_know_each_other_and_not_the_lab(lab: Lab) -> None:
    engine = FakeEngine(lab)
    addresses = create(engine, "agent", AGENT, USER)
    first, second = sorted(engine.created(), key=lambda call: call[2])
    assert (first[2], second[2]) == ("agent-agent1", "agent-user1")
    assert [word for word in first if word.startswith("--add-host=")] == [f"--add-host=user1:{addresses['user1']}"]
    assert f"--ip={addresses['agent1']}" in first
    assert first[-1].startswith(f"{lab.name}/bookworm:")
    assert second[-1].startswith(f"{lab.name}/trixie:")


def test_no_label_of_a_host_is_that_of_the_lab(lab: Lab) -> None:
    engine = FakeEngine(lab)
    create(engine, "agent", AGENT)
    (created,) = engine.created()
    assert f"--label={LABEL}={lab.id}" not in created
    assert f"--label={scenarios.OWNER_LABEL}={lab.id}" in created


def test_containers_in_the_engine_of_the_machine_have_the_name_of_the_lab(lab: Lab) -> None:
    engine = FakeEngine(lab)
    create(engine, "agent", AGENT, state=MACHINES)
    assert list(engine.containers) == [f"{lab.name}-agent-agent1"]


def test_addresses_are_not_those_of_the_lab_nor_of_other_scenarios_nor_the_last_ones(lab: Lab) -> None:
    engine = FakeEngine(lab, "other-agent1\t201\tother")
    first = create(engine, "agent", AGENT, USER)
    again = create(engine, "agent", AGENT, USER)
    assert first == {"agent1": "10.77.5.200", "user1": "10.77.5.202"}
    assert again == {"agent1": "10.77.5.203", "user1": "10.77.5.204"}
    assert not {host.offset for host in HOSTS} & set(scenarios.OFFSETS)


def test_after_the_last_address_comes_the_first(lab: Lab) -> None:
    engine = FakeEngine(lab)
    (lab.folder / "scenarios").mkdir()
    (lab.folder / "scenarios" / "next-offset").write_text(f"{scenarios.OFFSETS[-1]}\n")
    assert create(engine, "agent", AGENT, USER) == {"agent1": "10.77.5.249", "user1": "10.77.5.200"}


def test_a_lab_without_a_free_address_says_so(lab: Lab) -> None:
    engine = FakeEngine(lab, *(f"other-{offset}\t{offset}\tother" for offset in scenarios.OFFSETS))
    with pytest.raises(LabError, match="remove them with `make lab-down`"):
        create(engine, "agent", AGENT)


def test_a_scenario_removes_its_own_hosts_and_folder_alone(lab: Lab) -> None:
    engine = FakeEngine(lab, "other-agent1\t240\tother")
    create(engine, "agent", AGENT, USER)
    other = scenarios.scenario_folder(lab, "other")
    other.mkdir()
    scenarios.remove_scenario_hosts(engine, "agent")
    assert list(engine.containers) == ["other-agent1"]
    assert not scenarios.scenario_folder(lab, "agent").exists()
    assert other.exists()
    scenarios.remove_scenario_hosts(engine)
    assert engine.containers == {}
    assert not other.exists()


def test_a_login_trusts_the_keys_that_the_engine_has_shown(lab: Lab) -> None:
    addresses = create(FakeEngine(lab), "agent", AGENT)
    variables = json.loads((lab.checkout / "agent.json").read_text())["all"]["vars"]
    known_hosts = scenarios.scenario_folder(lab, "agent") / "known_hosts"
    assert known_hosts.read_text() == f"{addresses['agent1']},agent1 ssh-ed25519 AAAA\n"
    assert f"UserKnownHostsFile={known_hosts} " in variables["ansible_ssh_common_args"]
    assert "StrictHostKeyChecking=yes" in variables["ansible_ssh_common_args"]


@pytest.mark.parametrize(
    ("scenario", "words", "sentence"),
    [
        ("a/b", ["agent1:bookworm"], "'a/b' is no name of a scenario or host"),
        ("agent", ["../x:bookworm"], r"'../x' is no name of a scenario or host"),
        ("agent", ["agent1"], "its suite is bullseye or bookworm or trixie"),
        ("agent", ["agent1:sarge"], "its suite is bullseye or bookworm or trixie"),
        ("agent", ["a:bookworm", "b:bookworm", "c:bookworm"], "make it 2 different hosts at most"),
        ("agent", ["a:bookworm", "a:trixie"], "make it 2 different hosts at most"),
    ],
)
def test_hosts_that_cannot_be_made_are_refused(scenario: str, words: Sequence[str], sentence: str) -> None:
    with pytest.raises(LabError, match=sentence):
        scenarios.parse_hosts(scenario, words)


def test_hosts_are_given_as_name_and_suite() -> None:
    assert scenarios.parse_hosts("agent", ["agent1:bookworm", "user1:trixie"]) == [AGENT, USER]


class ImageStore(Engine):
    """An engine with images of hosts, of which a container uses one."""

    def __init__(self, lab: Lab, images: Sequence[str], used: str) -> None:
        super().__init__(lab, STATE.docker_host)
        self.images, self.used = list(images), used

    def docker(self, *arguments: str, **_options: Any) -> str:
        if arguments[0] == "rmi":
            self.images.remove(arguments[-1])
        return {"images": "\n".join(self.images), "ps": self.used}.get(arguments[0], "")


def test_an_outdated_image_stays_while_a_host_uses_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    current = image_tag(lab, "bookworm")
    used, outdated = f"{lab.name}/bookworm:used", f"{lab.name}/bookworm:outdated"
    engine = ImageStore(lab, [current, used, outdated, "others/image:1"], used)
    remove_outdated_images(engine)
    assert engine.images == [current, used, "others/image:1"]


def test_commands_name_the_scenario_and_its_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[tuple[str, list[tuple[str, str]], Path]] = []
    monkeypatch.setattr(commands, "_ensure_underlay", lambda lab: (FakeEngine(lab), STATE))
    built: list[Sequence[str]] = []
    monkeypatch.setattr(commands, "ensure_images", lambda _engine, _state, suites, **_options: built.append(suites))
    monkeypatch.setattr(
        commands,
        "create_scenario_hosts",
        lambda _engine, _state, scenario, wanted, inventory: calls.append((scenario, wanted, inventory)),
    )
    monkeypatch.setattr(commands, "Lab", lambda _checkout, number: Lab(tmp_path, number))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", os.environ["PATH"])  # main() extends it
    monkeypatch.setattr(sys, "argv", ["lab", "create", "agent", "lab.json", "agent1:bookworm", "user1:trixie"])
    assert commands.main() == 0
    assert built == [["bookworm", "trixie"]]
    assert calls == [("agent", [AGENT, USER], Path("lab.json"))]

"""The inventory plugin, with folders of this machine as agents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible import context
from ansible.errors import AnsibleError, AnsibleParserError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import inventory_loader
from ansible.template import Templar
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from ansible_collections.backendai.cluster.plugins.filter.agent_connection import agent_connection
from ansible_collections.backendai.cluster.plugins.inventory import sessions
from ansible_collections.backendai.cluster.plugins.inventory.sessions import InventoryModule
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_link import HostLink
from tests.unit.builders import plan, requested

NAME = InventoryModule.NAME
SOURCE = f"plugin: {NAME}\n"
OTHER_ID = "ffffffff-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
AGENTS = """\
all:
  children:
    agents:
      vars:
        ansible_connection: local
        ansible_become: false
        agent_docker_host: "unix:///{{ inventory_hostname }}.sock"
      hosts:
        agent1:
        agent2:
    others:
      hosts:
        another:
  vars:
    top: TOP
"""


class Place:
    """A folder with two agents, and the queue with a session on both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.agents = folder / "agents.yml"
        self.agents.write_text(AGENTS.replace("TOP", str(folder)))
        self.queue = QueueStore(str(folder / ".queue"))
        self.record(plan())

    def record(self, of: SessionPlan, **changes: Any) -> None:
        """Save the entry of a session that was started from this queue."""
        self.queue.save(requested(**{"id": of.id, "name": of.name, "state": "RUNNING", "plan": of, **changes}))

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def read(self, text: str = SOURCE, *earlier: Path) -> InventoryManager:
        """Read the agents, or other sources, and then a source of this plugin."""
        inventory = InventoryManager(DataLoader(), sources=[str(entry) for entry in earlier or (self.agents,)])
        self.parse(inventory, text)
        inventory.reconcile_inventory()
        return inventory

    def parse(self, inventory: InventoryManager, text: str, name: str = "sessions.yml") -> None:
        plugin = InventoryModule()
        plugin._load_name = NAME
        plugin._redirected_names = [NAME]
        plugin.parse(inventory._inventory, inventory._loader, str(self.write(name, text)))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    inventory_loader._load_config_defs(NAME, sessions, sessions.__file__)
    return Place(tmp_path)


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the warnings of the plugin."""
    observed: list[str] = []
    monkeypatch.setattr(
        "ansible.utils.display.Display.warning", lambda _self, text, *_args, **_more: observed.append(text)
    )
    return observed


def members(inventory: InventoryManager, group: str) -> set[str]:
    return {host.name for host in inventory.groups[group].get_hosts()}


def variables(inventory: InventoryManager, name: str) -> dict[str, Any]:
    """Return the templated variables of a container's connection."""
    manager = VariableManager(loader=inventory._loader, inventory=inventory)
    HostVars(inventory, manager, inventory._loader)
    host_variables = manager.get_vars(host=inventory.hosts[name])
    templar = Templar(loader=inventory._loader, variables=host_variables)
    templar.environment.filters[f"{NAME.rpartition('.')[0]}.agent_connection"] = agent_connection
    expected = {
        entry
        for entry in host_variables
        if entry.startswith(("backendai_", "ansible_remote", "ansible_conn", "ansible_user"))
    }
    return {entry: templar.template(host_variables[entry]) for entry in expected | {"ansible_shell_executable"}}


# ---- hosts and groups


def test_containers_are_hosts_of_their_session_role_and_agent(place: Place, warned: list[str]) -> None:
    inventory = place.read()
    subs = {"sub1.train-llm", "sub2.train-llm", "sub3.train-llm"}
    assert members(inventory, "sessions") == members(inventory, "session_train_llm") == {"main1.train-llm", *subs}
    assert members(inventory, "role_main") == {"main1.train-llm"}
    assert members(inventory, "role_sub") == subs
    assert members(inventory, "agent_agent2") == {"sub2.train-llm", "sub3.train-llm"}
    assert members(inventory, "agents") == {"agent1", "agent2"}
    assert warned == []


def test_container_has_its_connection_variables(place: Place) -> None:
    assert variables(place.read(), "sub2.train-llm") == {
        "ansible_connection": "backendai.cluster.container",
        "ansible_remote_tmp": "/tmp",
        "ansible_shell_executable": "/opt/backendai/shell/sh",
        "ansible_user": "work",
        "backendai_address": plan().kernels[2].address,
        "backendai_agent": "agent2",
        "backendai_agent_connection": {"ansible_connection": "local", "ansible_become": False},
        "backendai_container": "backendai-train-llm-sub2",
        "backendai_docker_host": "unix:///agent2.sock",
        "backendai_index": 2,
        "backendai_rank": 2,
        "backendai_role": "sub",
        "backendai_session_id": plan().id,
        "backendai_session_name": "train-llm",
    }


def test_secrets_of_agents_are_not_copied_to_containers(place: Place) -> None:
    place.write("group_vars/agents.yml", 'ansible_password: "{{ word }}"\nword: secret-word\n')
    inventory = place.read()
    host = inventory.hosts["main1.train-llm"]
    assert "secret-word" not in str(host.get_vars())
    assert variables(inventory, host.name)["backendai_agent_connection"].get("ansible_password") is None
    place.agents.write_text(
        place.agents.read_text().replace("ansible_become: false", "ansible_become_password: '{{ word }}'")
    )
    inventory = place.read()
    host = inventory.hosts["main1.train-llm"]
    assert "secret-word" not in str(host.get_vars())
    assert variables(inventory, host.name)["backendai_agent_connection"]["ansible_become_password"] == "secret-word"


def test_values_of_the_record_are_not_templated(place: Place) -> None:
    of = plan()
    kernels = tuple(replace(entry, role="{{ 40 + 2 }}") for entry in of.kernels)
    place.record(replace(of, kernels=kernels))
    assert variables(place.read(), "main1.train-llm")["backendai_role"] == "{{ 40 + 2 }}"


def test_only_sessions_that_were_started_from_the_queue_have_hosts(place: Place, warned: list[str]) -> None:
    place.queue.remove(plan().id)
    assert (members(place.read(), "sessions"), warned) == (set(), [])
    for state in ({"state": "CREATING"}, {"state": "TERMINATED", "spec": None}):
        place.record(plan(), **state)
        assert members(place.read(), "sessions") == set()


def test_the_queue_is_an_option_or_beside_the_first_inventory(place: Place) -> None:
    (place.folder / ".queue").rename(place.folder / "another")
    assert members(place.read(), "sessions") == set()
    assert len(members(place.read(f"{SOURCE}queue_path: another\n"), "sessions")) == 4
    (place.folder / "another").rename(place.folder / ".queue")
    assert len(members(place.read(), "sessions")) == 4


def test_the_queue_is_that_of_the_variable_of_playbooks(place: Place) -> None:
    (place.folder / ".queue").rename(place.folder / "another")
    text = place.agents.read_text()
    place.agents.write_text(f'{text}    session_queue_path: "{{{{ top }}}}/another"\n')
    assert len(members(place.read(), "sessions")) == 4


@pytest.mark.parametrize("where", ["{{ inventory_dir }}", "{{ inventory_file | dirname }}"])
def test_the_queue_may_be_beside_the_first_inventory_by_its_variables(place: Place, where: str) -> None:
    (place.folder / ".queue").rename(place.folder / "another")
    text = place.agents.read_text()
    place.agents.write_text(f'{text}    session_queue_path: "{where}/another"\n')
    assert len(members(place.read(), "sessions")) == 4
    later = place.write("later/others.yml", "all: {}\n")
    assert len(members(place.read(SOURCE, place.agents, later), "sessions")) == 4


def test_a_queue_path_that_cannot_be_resolved_is_named(place: Place) -> None:
    place.agents.write_text(f'{place.agents.read_text()}    session_queue_path: "{{{{ nothing }}}}/.queue"\n')
    with pytest.raises(AnsibleParserError, match=r"^session_queue_path: .*'nothing' is undefined"):
        place.read()


@pytest.mark.parametrize("option", ["", "queue_path: nowhere\n"])
def test_a_queue_that_does_not_exist_is_warned_of(place: Place, warned: list[str], option: str) -> None:
    (place.folder / ".queue").rename(place.folder / "another")
    assert members(place.read(f"{SOURCE}{option}"), "sessions") == set()
    folder = place.folder / ("nowhere" if option else ".queue")
    assert warned == [
        f"queue_path: no session is known, since {folder} does not exist; name the folder that playbooks use."
    ]


def test_the_queue_is_that_of_the_sources_on_the_command_line(
    place: Place, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nested = place.folder / "hosts" / "agents.yml"
    nested.parent.mkdir()
    place.agents.rename(nested)
    # Ansible reads the files of a folder as sources of their own; the queue of playbooks is in the folder.
    monkeypatch.setattr(context, "CLIARGS", {"inventory": (str(place.folder),)})
    assert len(members(place.read(SOURCE, nested), "sessions")) == 4
    monkeypatch.setattr(context, "CLIARGS", {"inventory": (str(nested), "a,b")})
    assert members(place.read(SOURCE, nested), "sessions") == set()
    assert [str(nested.parent / ".queue") in line for line in warned] == [True]


@pytest.mark.parametrize(("line", "shielded"), [("ansible_become: true", True), ("other: 1", False)])
def test_containers_do_not_inherit_how_agents_become_root(place: Place, line: str, shielded: bool) -> None:
    place.agents.write_text(place.agents.read_text().replace("    top:", f"    {line}\n    top:"))
    assert ("ansible_become" in place.read().hosts["main1.train-llm"].get_vars()) is shielded


def test_sessions_with_the_same_name_get_a_suffix_and_a_warning(place: Place, warned: list[str]) -> None:
    place.record(replace(plan({"agent2": 1}), id=OTHER_ID))
    first = {f"{hostname}.train-llm.5f0c6a52" for hostname in ("main1", "sub1", "sub2", "sub3")}
    assert members(place.read(), "session_train_llm") == {*first, "main1.train-llm.ffffffff"}
    assert warned == ["2 sessions are called train-llm: the names of their hosts end with the beginnings of their ids."]


def test_constructed_groups_and_variables_are_added(place: Place) -> None:
    inventory = place.read(
        f"{SOURCE}compose: {{twice: backendai_rank * 2}}\ngroups: {{workers: backendai_rank > 0}}\n"
        "keyed_groups: [{key: backendai_session_name, prefix: job}]\n"
    )
    assert inventory.hosts["sub2.train-llm"].get_vars()["twice"] in (4, "4")
    assert members(inventory, "workers") == members(inventory, "role_sub")
    assert members(inventory, "job_train_llm") == members(inventory, "sessions")


def test_strict_composition_errors_fail(place: Place) -> None:
    text = f"{SOURCE}compose: {{twice: nothing * 2}}\n"
    assert "twice" not in place.read(text).hosts["main1.train-llm"].get_vars()
    with pytest.raises(AnsibleError, match=r"Could not set twice for host main1\.train-llm"):
        place.read(f"{text}strict: true\n")


# ---- agents


def test_an_agent_that_is_not_in_the_inventory_is_left_out_with_a_warning(place: Place, warned: list[str]) -> None:
    place.record(plan({"agent1": 1, "agent9\033[2J": 1}))
    assert members(place.read(), "sessions") == {"main1.train-llm"}
    assert warned == ["agent9\\x1b[2J is left out: the group agents has no such host."]


def test_no_agent_is_asked(place: Place, monkeypatch: pytest.MonkeyPatch, warned: list[str]) -> None:
    monkeypatch.setattr(HostLink, "run", None)
    text = place.agents.read_text()
    place.agents.write_text(text.replace("ansible_connection: local", "ansible_connection: no.such.plugin"))
    assert len(members(place.read(), "sessions")) == 4
    assert warned == []


def test_the_group_of_the_agents_is_an_option(place: Place) -> None:
    assert members(place.read(f"{SOURCE}agent_group: others\n"), "sessions") == set()


def test_missing_agents_are_an_error(place: Place) -> None:
    with pytest.raises(AnsibleParserError) as failed:
        place.read(f"{SOURCE}agent_group: nobody\n")
    assert failed.value.message == (
        "agent_group: the group 'nobody' has no hosts; add the inventory of the agents before this one, or set"
        " agents_inventory."
    )


# ---- one file alone


def test_agents_inventory_is_merged_with_groups_and_variables(place: Place) -> None:
    place.agents.rename(place.write("elsewhere/agents.yml", ""))
    place.write("elsewhere/group_vars/agents.yml", "ansible_become_user: operator\n")
    place.write("elsewhere/host_vars/agent1.yml", "own: 1\n")
    empty = place.write("empty.yml", "all: {hosts: {unrelated: }}\n")
    (place.folder / ".queue").rename(place.folder / "elsewhere" / ".queue")
    inventory = place.read(f"{SOURCE}agents_inventory: [elsewhere/agents.yml]\n", empty)
    assert len(members(inventory, "sessions")) == 4
    assert members(inventory, "agents") == {"agent1", "agent2"}
    assert members(inventory, "all") >= {"unrelated", "another", "agent1", "main1.train-llm"}
    assert inventory.hosts["agent1"].get_vars()["own"] == 1
    how = variables(inventory, "main1.train-llm")["backendai_agent_connection"]
    assert how == {"ansible_connection": "local", "ansible_become": False, "ansible_become_user": "operator"}


def test_missing_agents_inventory_is_rejected(place: Place) -> None:
    with pytest.raises(AnsibleParserError) as failed:
        place.read(f"{SOURCE}agents_inventory: [nowhere.yml]\n")
    path = place.folder / "sessions.yml"
    assert failed.value.message == (
        f"agents_inventory: {place.folder}/nowhere.yml does not exist; paths are relative to {path}."
    )


@pytest.mark.parametrize("itself", ["sessions.yml", "."])
def test_agents_inventory_that_contains_itself_is_rejected(place: Place, itself: str) -> None:
    with pytest.raises(AnsibleParserError, match=r"contains .*/sessions.yml itself; list only inventories of agents\."):
        place.read(f"{SOURCE}agents_inventory: ['{itself}']\n")


# ---- which files are inventories of this plugin


@pytest.mark.parametrize(
    ("name", "text", "ours"),
    [
        ("sessions.yml", "", True),
        ("my.sessions.yaml", "", True),
        ("other.yml", SOURCE, True),
        ("other.yml", f"# mine\nplugin: '{NAME}'\n", True),
        ("other.yml", "plugin: another\n", False),
        ("sessions.ini", SOURCE, False),
    ],
)
def test_source_is_recognized_by_name_or_plugin(place: Place, name: str, text: str, ours: bool) -> None:
    assert InventoryModule().verify_file(str(place.write(name, text))) is ours


def test_missing_file_is_no_source(place: Place) -> None:
    assert not InventoryModule().verify_file(str(place.folder / "nothing.sessions.yml"))


def test_source_of_another_plugin_is_rejected(place: Place) -> None:
    with pytest.raises(AnsibleParserError, match="Incorrect plugin name in file: another"):
        place.read("plugin: another\n")

"""Containers of sessions as inventory hosts, and the connection plugin that reaches them through their agents."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ansible_settings import ROOT
from tests.integration.laboratory import AGENTS, BUSYBOX, INVENTORY, Kernel, ansible, run_playbook, unwrapped
from tests.integration.sessions import StartedSession, started_session

pytestmark = pytest.mark.requests

SOURCE = ROOT / "inventory" / "sessions.yml"
DOCUMENTED = (ROOT / "docs" / "playbooks.md").read_text().partition("```yaml\n")[2].partition("```")[0]
REQUEST = {
    "cluster_mode": "multi-node",
    "agent_selection": "dispersed",
    "roles": {"main": {}, "worker": {"replicas": 2, "image": BUSYBOX}},
    "env": {"GREETING": "hello world"},
    "resources": {"cpu": 1, "mem": "64m"},
}


@dataclasses.dataclass(frozen=True)
class ThreeContainers:
    """A session of one container on each agent: main1 has Python, the two workers only busybox."""

    session: StartedSession

    @property
    def group(self) -> str:
        return f"session_{self.session.record['name']}".replace("-", "_")

    @property
    def hosts(self) -> dict[str, Kernel]:
        """The record's containers by inventory host name."""
        return {self.host_name(kernel["hostname"]): kernel for kernel in self.session.kernels}

    def host_name(self, hostname: str) -> str:
        return f"{hostname}.{self.session.record['name']}"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeContainers]:
    with started_session(tmp_path_factory.mktemp("three"), **REQUEST) as session:
        assert sorted(kernel["agent"] for kernel in session.kernels) == list(AGENTS)
        yield ThreeContainers(session)


def list_inventory(*sources: object) -> tuple[dict[str, Any], str]:
    """Return the groups of an inventory, with all host variables in ``_meta``, and Ansible's warnings."""
    options = [word for source in sources for word in ("-i", source)]
    process = ansible("ansible-inventory", *options, "--list")
    assert process.returncode == 0, process.stderr
    # Values from agents are marked as unsafe, so that they are not templated.
    plain = json.loads(process.stdout, object_hook=lambda value: value.get("__ansible_unsafe", value))
    return plain, unwrapped(process.stderr)


def run_module(
    folder: Path, pattern: str, module: str, arguments: str = "", *options: str
) -> dict[str, dict[str, Any]]:
    """Run a module ad hoc and return the result of each host."""
    words = ["ansible", "-i", INVENTORY, "-i", SOURCE, pattern, "-m", module, "-t", folder]
    process = ansible(*words, *(["-a", arguments] if arguments else []), *options)
    results = {path.name: json.loads(path.read_text()) for path in folder.iterdir() if path.is_file()}
    assert results, process.stdout + process.stderr
    return results


def test_containers_are_grouped_by_session_role_and_agent(three: ThreeContainers) -> None:
    inventory, _warnings = list_inventory(INVENTORY, SOURCE)
    assert set(inventory[three.group]["hosts"]) == set(three.hosts)
    assert set(three.hosts) <= set(inventory["sessions"]["hosts"])
    for name, kernel in three.hosts.items():
        for group in (f"role_{kernel['role']}", f"agent_{kernel['agent']}"):
            assert name in inventory[group]["hosts"]
        variables = inventory["_meta"]["hostvars"][name]
        same = {
            key: variables[f"backendai_{key}"] for key in ("role", "index", "rank", "agent", "container", "address")
        }
        assert same == {key: kernel[key] for key in same}
        assert variables["backendai_session_id"] == three.session.record["id"]
    assert inventory["agents"]["hosts"] == list(AGENTS)


def test_raw_commands_need_nothing_in_the_image(three: ThreeContainers, tmp_path: Path) -> None:
    look = 'hostname; echo "$BACKENDAI_CLUSTER_ROLE $GREETING"; pwd; id -un; echo careful >&2; exit 7'
    results = run_module(tmp_path, three.group, "raw", look)
    assert set(results) == set(three.hosts)
    for name, kernel in three.hosts.items():
        expected = [kernel["hostname"], f"{kernel['role']} hello world", "/home/work", "work"]
        assert results[name]["stdout_lines"] == expected
        assert (results[name]["rc"], results[name]["stderr_lines"]) == (7, ["careful"])


def test_modules_and_files_work_where_the_image_has_python(three: ThreeContainers, tmp_path: Path) -> None:
    (workdir, fetched), main1 = (tmp_path / "there", tmp_path / "back"), three.host_name("main1")
    workdir.mkdir()
    fetched.mkdir()
    data = tmp_path / "data"
    data.write_bytes(bytes(range(256)) * 5000)
    copied = run_module(workdir, main1, "copy", f"src={data} dest=/home/work/data")[main1]
    assert (copied["size"], copied["owner"]) == (data.stat().st_size, "work")
    assert "size" in run_module(workdir, main1, "copy", "content='' dest=/home/work/empty")[main1]
    run_module(workdir, main1, "fetch", f"src=/home/work/data dest={fetched}/ flat=true")
    assert (fetched / "data").read_bytes() == data.read_bytes()


def test_container_user_is_a_variable_of_its_own(three: ThreeContainers, tmp_path: Path) -> None:
    results = run_module(tmp_path, three.group, "raw", "id -un", "-e", "ansible_container_user=0")
    assert {result["stdout"].strip() for result in results.values()} == {"root"}


def test_agents_inventory_option_replaces_a_second_source(three: ThreeContainers, tmp_path: Path) -> None:
    (tmp_path / "agents.yml").write_text(INVENTORY.read_text())
    alone = tmp_path / "sessions.yml"
    alone.write_text("plugin: backendai.cluster.sessions\nagents_inventory: [agents.yml]\n")
    graph = ansible("ansible-inventory", "-i", alone, "--graph", three.group)
    assert set(graph.stdout.replace("|--", " ").split()) == {f"@{three.group}:", *three.hosts}, graph.stderr
    process = ansible("ansible", "-i", alone, three.group, "-m", "raw", "-a", "hostname", "-t", tmp_path / "results")
    assert process.returncode == 0, process.stdout + process.stderr


def test_missing_container_is_an_unreachable_host(three: ThreeContainers) -> None:
    name = three.host_name("worker2")
    kernel = three.hosts[name]
    missing = f"{kernel['container']}-gone"
    arguments = (
        "-i",
        INVENTORY,
        "-i",
        SOURCE,
        name,
        "-m",
        "raw",
        "-a",
        "hostname",
        "-e",
        f"backendai_container={missing}",
    )
    process = ansible("ansible", *arguments)
    assert process.returncode == 4, process.stdout + process.stderr
    output = unwrapped(f"{process.stdout} {process.stderr}")
    assert "UNREACHABLE!" in output
    assert (
        f"container {missing} on {kernel['agent']} is not running: its session has ended, or needs a repair." in output
    )


def test_the_documented_playbook_works_in_the_containers_of_its_session_and_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yml"
    path.write_text(DOCUMENTED)
    run = ansible("ansible-playbook", "-i", INVENTORY, "-i", SOURCE, path)
    assert run.returncode == 0, run.stdout + run.stderr
    shown = run.stdout.partition("TASK [Show what came of it]")[2].partition("TASK [")[0]
    assert [name for name in ("main1", "sub1", "sub2", "sub3") if name not in shown] == []
    listed = run_playbook("list_sessions", tmp_path, {})
    assert "sweep" not in {record["name"] for record in listed.record}

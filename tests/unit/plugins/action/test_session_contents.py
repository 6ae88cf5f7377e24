"""Files of containers are rendered from the templates of the role or of the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._model.environment import (
    session_environment,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import Start, start_arguments
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import SessionSpec
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.site import Site
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_link import InventoryHosts
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_action import SessionAction, TaskEdge
from tests.unit.builders import NONCE, plan, spec
from tests.unit.plugins.action.asked_hosts import Variables, use_short_names
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.stages import request_of
from tests.unit.rendering import Rendering

MADE = plan({"agent1": 2, "agent2": 1})
ENV = {"TOKEN": "hunter2", "ODD": "{{ 1 + 1 }} '\"$x", "UNICODE": "\u2028é"}
ASKED = spec(cluster_size=3, env=ENV, authorized_keys=["ssh-ed25519 ALICE"], bootstrap_script="export A=1\n")


@pytest.fixture(autouse=True)
def _short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    use_short_names(monkeypatch)


class Sent(Rendering, SessionAction):
    """An action that returns what agent1 is sent for a session."""

    def run(self, _tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        variables, args = task_vars or {}, self._task.args
        site = Site(request_of({"agents": []}), QueueStore(".queue"), variables["hostvars"])
        requests = TaskEdge(self, site, variables).requests({args["start"].id: args["spec"]}, several=False)
        of_agent = InventoryHosts(variables, self._loader).variables("agent1")
        sent: dict[str, Any] = requests.options("agent1", [(args["start"], ["apply"])], *of_agent)["sessions"][0]
        return sent


def contents(
    run: Run,
    session_plan: SessionPlan = MADE,
    request: SessionSpec = ASKED,
    templates: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return the contents sent to agent1 for a session."""
    keys = {"main1": {"user": "U", "host": "H"}}
    start = Start(start_arguments(Decision(session_plan, True, {}, keys), [], nonce=NONCE, never_completed=False))
    own_variables = {f"session_{kind}_template": path for kind, path in (templates or {}).items()}
    hostvars = Variables({"localhost": {}, "agent1": own_variables})
    sent_contents: dict[str, Any] = run(Sent, {"start": start, "spec": request}, {"hostvars": hostvars})["contents"]
    return sent_contents


def test_hosts_file_has_all_containers(run: Run) -> None:
    assert contents(run)["hosts"].splitlines() == [
        "127.0.0.1 localhost",
        *(f"{kernel.address} {kernel.hostname}" for kernel in MADE.kernels),
        *(f"::ffff:{kernel.address} {kernel.hostname}.ipv4-mapped" for kernel in MADE.kernels),
    ]


def test_hosts_file_of_a_single_container_has_itself(run: Run) -> None:
    assert contents(run, plan({"agent1": 1}))["hosts"].splitlines() == ["127.0.0.1 localhost", "127.0.0.1 main1"]


def test_environments_are_rendered_per_container(run: Run) -> None:
    environments = contents(run)["environments"]
    assert list(environments) == ["main1", "sub1"]
    for kernel in MADE.kernels_on("agent1"):
        assert environments[kernel.hostname] == {**ENV, **session_environment(MADE, kernel)}


def test_role_environment_is_limited_to_its_containers(run: Run) -> None:
    roles = {"main": {}, "worker": {"replicas": 2, "env": {"TOKEN": "hunter3", "SHARD": "1"}}}
    session_plan = plan({"agent1": 2, "agent2": 1}, cluster_size=1, roles=roles)
    environments = contents(run, session_plan, spec(env=ENV, roles=roles))["environments"]
    assert {name: (entry["TOKEN"], entry.get("SHARD")) for name, entry in environments.items()} == {
        "main1": ("hunter2", None),
        "worker1": ("hunter3", "1"),
    }


def test_agent_gets_user_keys_and_bootstrap_but_not_the_request(run: Run) -> None:
    result = contents(run)
    assert set(result) == {"hosts", "ssh_config", "environments", "user_keys", "bootstrap"}
    assert (result["user_keys"], result["bootstrap"]) == (["ssh-ed25519 ALICE"], ASKED.bootstrap_script)


def test_ssh_config_is_strict_and_non_interactive(run: Run) -> None:
    lines = [line.strip() for line in contents(run)["ssh_config"].splitlines()]
    hosts = [line.split()[1:] for line in lines if line.startswith("Host ")]
    addresses = [str(kernel.address) for kernel in MADE.kernels]
    assert hosts[:3] == [[name, address] for name, address in zip(["main1", "sub1", "sub2"], addresses, strict=True)]
    assert hosts[3:] == [["main1", "sub1", "sub2", *addresses]]
    assert {"User work", "StrictHostKeyChecking yes"} <= set(lines)
    assert [line for line in lines if line.startswith("Port")] == ["Port 22"] * 3


def test_ssh_config_has_the_ports_of_host_network_containers(run: Run) -> None:
    shared = plan({"agent1": 2, "agent2": 1}, network_driver="host")
    result = contents(run, shared)
    lines = [line.strip() for line in result["ssh_config"].splitlines()]
    assert [line for line in lines if line.startswith("Host ")] == [
        *(f"Host {kernel.hostname}" for kernel in shared.kernels),
        "Host main1 sub1 sub2",
    ]
    assert [line for line in lines if line.startswith("Port")] == [f"Port {each.ssh_port}" for each in shared.kernels]
    assert result["hosts"].splitlines()[1:4] == ["192.0.2.1 main1", "192.0.2.1 sub1", "192.0.2.2 sub2"]


def test_user_template_overrides_the_default(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.j2").write_text("WHO={{ kernel.hostname }} of {{ plan.name }}: {{ environment.TOKEN }}\n")
    environments = contents(run, templates={"environment": str(tmp_path / "mine.j2")})["environments"]
    assert environments == {
        "main1": {"WHO": "main1 of train-llm: hunter2"},
        "sub1": {"WHO": "sub1 of train-llm: hunter2"},
    }


def test_template_in_the_search_path_has_precedence(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hosts.j2").write_text("192.0.2.7 licence-server\n")
    monkeypatch.setattr(Sent, "_find_needle", lambda _action, _folder, name: str(tmp_path / name))
    (tmp_path / "ssh_config.j2").write_text("")
    (tmp_path / "environment.j2").write_text("")
    assert contents(run)["hosts"] == "192.0.2.7 licence-server\n"


@pytest.mark.parametrize("kind", ["hosts", "ssh_config", "environment"])
@pytest.mark.parametrize(
    "content", [None, "{{ nothing_of_that_name }}\n", "{% if %}\n"], ids=["absent", "undefined", "broken"]
)
def test_invalid_template_is_named(run: Run, tmp_path: Path, content: str | None, kind: str) -> None:
    path = tmp_path / "mine.j2"
    if content:
        path.write_text(content)
    with pytest.raises(AnsibleActionFail) as refused:
        contents(run, templates={kind: str(path)})
    assert str(refused.value).startswith(f"the template {str(path)!r} cannot be rendered: ")

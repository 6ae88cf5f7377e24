"""The action session_step: files of containers are rendered from the templates of the role or of the user."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.session_step import ActionModule
from ansible_collections.backendai.cluster.plugins.module_utils._model.environment import (
    session_environment,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import SessionSpec
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import start_arguments
from tests.unit.builders import plan, spec
from tests.unit.plugins.action.conftest import Run
from tests.unit.rendering import OPTIONS_OF_RUN, Rendering

MADE = plan({"agent1": 2, "agent2": 1})
ENV = {"TOKEN": "hunter2", "ODD": "{{ 1 + 1 }} '\"$x", "UNICODE": "\u2028é"}
ASKED = spec(cluster_size=3, env=ENV, authorized_keys=["ssh-ed25519 ALICE"], bootstrap_script="export A=1\n")


class Sent(Rendering, ActionModule):
    """The action without its connection to an agent."""

    def call(self, _phase: str, options: Any, _task_vars: dict[str, Any], _seconds: int) -> dict[str, Any]:
        return {"sent": options, "sessions": {}}


def contents(
    run: Run,
    session_plan: SessionPlan = MADE,
    request: SessionSpec = ASKED,
    waited: SessionSpec | None = None,
    templates: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return the contents sent to agent1 for a requested session, or a pending one in ``waited``."""
    start = start_arguments(
        Decision(session_plan, True, {}, {"main1": {"user": "U", "host": "H"}}),
        [],
        never_completed=False,
    )
    committed = {"sessions": {session_plan.id: {"nonce": start["nonce"], "steps": []}}}
    specs = {session_plan.name: dataclasses.asdict(waited)} if waited else {}
    request_result = {"specs": {session_plan.name: dataclasses.asdict(request)}, "run": OPTIONS_OF_RUN}
    control = {"__session_request": request_result, "__session_queue_plan": {"specs": specs}}
    hostvars = {"localhost": control, **{agent: {"__session_claim": committed} for agent in session_plan.agents}}
    step = "apply" if len(session_plan.agents) > 1 else "claim"
    args = {"step": step, "starts": [start]}
    own_variables = {f"session_{kind}_template": path for kind, path in (templates or {}).items()}
    result = run(Sent, args, {"inventory_hostname": "agent1", "hostvars": hostvars, **own_variables})
    sent_contents: dict[str, Any] = result["sent"]["sessions"][0]["contents"]
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


def test_pending_session_has_its_own_request(run: Run) -> None:
    waited = dataclasses.replace(ASKED, env={"TOKEN": "hunter4"})
    assert waited.name == ASKED.name
    environments = contents(run, waited=waited)["environments"]
    assert environments["main1"]["TOKEN"] == "hunter4"


def test_session_queued_during_the_run_has_its_request(run: Run) -> None:
    waited = dataclasses.replace(ASKED, env={"TOKEN": "hunter4"}, name="later")
    environments = contents(run, dataclasses.replace(MADE, name="later"), ASKED, waited)["environments"]
    assert environments["main1"]["TOKEN"] == "hunter4"


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
    assert refused.value.result["sessions"][MADE.id]["failed"] == str(refused.value)

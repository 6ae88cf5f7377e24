"""The files of a slice are rendered on the control node, from the role's templates or from the user's."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleFileNotFound
from ansible.plugins.loader import lookup_loader

from ansible_collections.backendai.cluster.plugins.action.session_slice import ActionModule
from ansible_collections.backendai.cluster.plugins.module_utils._model.environment import (
    session_environment,
)
from tests.unit.builders import REPOSITORY, plan, spec
from tests.unit.plugins.action.conftest import Run

MADE = plan({"agent1": 2, "agent2": 1})
ENV = {"TOKEN": "hunter2", "ODD": "{{ 1 + 1 }} '\"$x", "UNICODE": "\u2028é"}


class Sent(ActionModule):
    """The action, short of its way to an agent; templates are looked for in the role, as it would in a play."""

    def __init__(self, *made_of: Any) -> None:
        super().__init__(*made_of)
        # Full names need Ansible's own importer, which would take the collection's place among the tests' imports.
        by_short_name = SimpleNamespace(get=lambda name, **settings: lookup_loader.get(name.split(".")[-1], **settings))
        self._shared_loader_obj = SimpleNamespace(lookup_loader=by_short_name)

    def _execute_module(self, module_args: dict[str, Any], **_how: Any) -> dict[str, Any]:
        return {"sent": module_args}

    def _find_needle(self, dirname: str, needle: str) -> str:
        found = REPOSITORY / "roles/session" / dirname / needle
        if not found.exists():
            raise AnsibleFileNotFound(file_name=needle)
        return str(found)


def sent(run: Run, **changes: Any) -> dict[str, Any]:
    """Return the options that reach the module on agent1."""
    asked = dataclasses.asdict(spec(cluster_size=3, env=ENV, authorized_keys=["ssh-ed25519 ALICE"]))
    args = {"plan": MADE.to_dict(), "agent": "agent1", "nonce": "n", "public_keys": {}, "spec": asked, **changes}
    options: dict[str, Any] = run(Sent, args, {})["sent"]
    return options


def test_every_container_is_in_every_hosts_file_under_its_session_address(run: Run) -> None:
    assert sent(run)["hosts"].splitlines() == [
        "127.0.0.1 localhost",
        *(f"{kernel.address} {kernel.hostname}" for kernel in MADE.kernels),
    ]


def test_a_session_of_one_finds_itself(run: Run) -> None:
    alone = plan({"agent1": 1}).to_dict()
    assert sent(run, plan=alone)["hosts"].splitlines() == ["127.0.0.1 localhost", "127.0.0.1 main1"]


def test_each_container_here_gets_its_environment_as_it_is_and_as_a_file(run: Run) -> None:
    options = sent(run)
    environments, files = json.loads(options["environments"]), options["environment_files"]
    assert list(environments) == list(files) == ["main1", "sub1"]
    for kernel in MADE.kernels_on("agent1"):
        environment = {**ENV, **session_environment(MADE, kernel)}
        assert environments[kernel.hostname] == environment
        assert files[kernel.hostname] == "".join(f"{name}={value}\n" for name, value in environment.items())


def test_the_environment_of_a_role_goes_to_its_containers_alone(run: Run) -> None:
    roles = {"main": {}, "worker": {"replicas": 2, "env": {"TOKEN": "hunter3", "SHARD": "1"}}}
    asked = spec(env=ENV, roles=roles)
    made = plan({"agent1": 2, "agent2": 1}, cluster_size=1, roles=roles)
    environments = json.loads(sent(run, plan=made.to_dict(), spec=dataclasses.asdict(asked))["environments"])
    assert {name: (one["TOKEN"], one.get("SHARD")) for name, one in environments.items()} == {
        "main1": ("hunter2", None),
        "worker1": ("hunter3", "1"),
    }


def test_the_request_itself_does_not_reach_the_module_but_the_users_keys_do(run: Run) -> None:
    options = sent(run)
    assert ("spec" in options, options["user_keys"]) == (False, ["ssh-ed25519 ALICE"])


def test_ssh_asks_nothing_and_checks_host_keys(run: Run) -> None:
    lines = [line.strip() for line in sent(run)["ssh_config"].splitlines()]
    assert lines[0] == "Host main1 sub1 sub2"
    assert {"User work", "StrictHostKeyChecking yes"} <= set(lines)
    assert not [line for line in lines if line.startswith("Port")]


def test_ssh_is_told_the_port_of_each_container_that_shares_its_agents_network(run: Run) -> None:
    shared = plan({"agent1": 2, "agent2": 1}, network_driver="host")
    options = sent(run, plan=shared.to_dict())
    lines = [line.strip() for line in options["ssh_config"].splitlines()]
    assert lines[0] == "Host main1 sub1 sub2"
    assert lines[-6:] == [
        line for kernel in shared.kernels for line in (f"Host {kernel.hostname}", f"Port {kernel.ssh_port}")
    ]
    assert options["hosts"].splitlines()[1:] == ["192.0.2.1 main1", "192.0.2.1 sub1", "192.0.2.2 sub2"]


def test_a_users_template_takes_the_place_of_the_roles(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.j2").write_text("{{ kernel.hostname }} of {{ plan.name }}: {{ environment.TOKEN }}\n")
    options = sent(run, environment_template=str(tmp_path / "mine.j2"))
    assert json.loads(options["environments"])["main1"]["TOKEN"] == "hunter2"
    assert options["environment_files"] == {
        "main1": "main1 of train-llm: hunter2\n",
        "sub1": "sub1 of train-llm: hunter2\n",
    }


@pytest.mark.parametrize(
    "content", [None, "{{ nothing_of_that_name }}\n", "{% if %}\n"], ids=["absent", "undefined", "broken"]
)
def test_a_template_that_cannot_be_rendered_is_named(run: Run, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "mine.j2"
    if content:
        path.write_text(content)
    with pytest.raises(AnsibleActionFail) as refused:
        sent(run, hosts_template=str(path))
    assert str(refused.value).startswith(f"the template {str(path)!r} cannot be rendered: ")


def test_an_end_renders_nothing(run: Run) -> None:
    args = {"state": "absent", "session_id": MADE.id}
    assert run(Sent, args, {})["sent"] == args

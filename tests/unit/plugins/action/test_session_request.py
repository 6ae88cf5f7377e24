"""The action session_request: options are validated before any host is contacted."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.session_request import ActionModule
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import Gateway
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import spec_from_dict
from ansible_collections.backendai.cluster.plugins.plugin_utils.public_keys import KEY_TYPES
from ansible_collections.backendai.cluster.plugins.plugin_utils.run_request import RunRequest, read_request
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import user_options, user_run_options
from tests.unit.builders import DEFAULTS, IMAGE, POOLS, SESSION_ID, plan, requested, spec, variables
from tests.unit.plugins.action.conftest import Run


def refusal(run: Run, arguments: dict[str, Any], purpose: str | None = None) -> str:
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {"purpose": purpose} if purpose else {}, arguments)
    return str(refused.value)


def read(queue: QueueStore, purpose: str, arguments: dict[str, Any], *gateways: str, warn: Any = None) -> RunRequest:
    """Return the request of a run with another purpose, which tasks that work on sessions read themselves."""
    return read_request(purpose, arguments, [], gateways, HOSTS, lambda _path: queue, warn)


def test_a_purpose_of_no_playbook_is_refused(run: Run) -> None:
    assert refusal(run, variables(), "schedule") == "purpose: 'schedule' must be create or prune."


def test_request_is_typed_and_not_logged(run: Run) -> None:
    result = run(ActionModule, {}, variables(cluster_size="4", env='{"TOKEN": "hunter2"}'))
    assert result["spec"]["cluster_size"] == 4
    assert result["pools"] == dataclasses.asdict(POOLS) | {"sites": []}
    assert result["changed"] is False
    assert result["_ansible_no_log"] is True


def test_only_the_requests_of_the_run_are_returned(run: Run, queue: QueueStore) -> None:
    queue.save(requested(1, spec(name="session-1", env={"TOKEN": "hunter3"})))
    checked = run(ActionModule, {}, variables(env={"TOKEN": "hunter2"}))
    pruned = run(ActionModule, {"purpose": "prune"}, variables())
    assert (pruned["_ansible_no_log"], "spec" in pruned) == (False, False)
    assert "hunter3" not in f"{checked}{pruned}"


def test_images_and_paths_of_the_request_are_returned(run: Run) -> None:
    roles = {"main": {}, "worker": {"image": "other:1"}, "ps": {}}
    mounts = [{"source": "/mnt/a", "target": "/a"}, {"source": "/mnt/b", "target": "/b"}]
    result = run(ActionModule, {}, variables(roles=roles, mounts=mounts))
    assert (result["images"], result["paths"]) == ([IMAGE, "other:1"], ["/mnt/a", "/mnt/b"])


@pytest.mark.parametrize("purpose", ["create", "terminate", "schedule"])
def test_images_and_paths_of_pending_sessions_are_returned(queue: QueueStore, purpose: str) -> None:
    waits = spec(name="session-1", image="other:1", mounts=[{"source": "/mnt/a", "target": "/a"}])
    queue.save(requested(1, waits))
    queue.save(requested(2, state="TERMINATED", spec=None))
    result = read(queue, purpose, variables())
    assert (result.images, result.paths) == ([IMAGE, "other:1"][purpose != "create" :], ["/mnt/a"])


def test_keys_are_asked_of_the_sessions_that_a_run_may_go_on_with(queue: QueueStore) -> None:
    queue.save(requested(1, spec(name="train-llm"), state="RUNNING", plan=plan()))
    queue.save(requested(2, spec(name="other"), state="RUNNING", plan=plan()))
    queue.save(requested(3, spec(name="killed"), state="CREATING", plan=plan()))
    queue.save(requested(4, spec(name="waits")))
    assert read(queue, "create", variables()).keys_of == [requested(1).id, requested(3).id]
    assert read(queue, "schedule", variables()).keys_of == [requested(3).id]
    assert read(queue, "repair", {**DEFAULTS, "session_name": "other"}).keys_of == [requested(2).id, requested(3).id]


def test_removal_of_images_knows_those_of_all_sessions(run: Run, queue: QueueStore) -> None:
    queue.save(requested(1, spec(name="session-1", image="other:1")))
    queue.save(requested(2, spec(name="session-2", image="running:1"), state="RUNNING"))
    queue.save(requested(3, state="TERMINATED", spec=None))
    args = {"purpose": "prune", "agents": ["agent1"]}
    for check_mode in (True, False):
        images = run(ActionModule, args, variables(), check_mode=check_mode)["images"]
        assert images == ["other:1", "running:1"]


@pytest.mark.parametrize("mode", ["strict", "preferred"])
def test_a_designated_agent_must_be_in_the_inventory(run: Run, mode: str) -> None:
    arguments = variables(designated_agents=["agent1", "agent9"], designated_agents_mode=mode)
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {"agents": ["agent2", "agent1"]}, arguments)
    assert str(refused.value) == (
        "session_designated_agents: 'agent9' is not an agent of the inventory; known are agent1, agent2."
    )
    assert run(ActionModule, {"agents": ["agent1", "agent9"]}, arguments)["agents"] == ["agent1", "agent9"]


def test_run_options_are_returned_with_started_at(run: Run) -> None:
    before = time.time()
    result = run(ActionModule, {"purpose": "prune"}, variables(claim_ttl="60", history="yes"))
    assert (result["run"]["claim_ttl"], result["run"]["history"]) == (60, True)
    assert before <= result["started_at"] <= time.time()
    assert result["agents"] == result["images"] == result["paths"] == []


def test_missing_options_have_the_default_of_the_role(run: Run) -> None:
    arguments = {"session_name": "train-llm", "session_image": IMAGE}
    result, full = run(ActionModule, {}, arguments), run(ActionModule, {}, variables())
    assert {**result, "started_at": 0} == {**full, "started_at": 0}
    assert run(ActionModule, {}, {**arguments, "session_priority": 11})["spec"]["priority"] == 11


def test_result_has_no_password(run: Run) -> None:
    registries = {"registry.example.com": {"username": "ada", "password": "hunter2"}}
    changes = {"id": SESSION_ID, "user": "ada", "kernel": "sub1", "record_path": "r.json", "hosts_template": "mine.j2"}
    result = run(ActionModule, {"agents": ["agent1"]}, variables(**changes, registries=registries))
    assert changes.items() <= result["run"].items()
    assert (result["run"]["name"], result["agents"]) == ("train-llm", ["agent1"])
    assert "hunter2" not in json.dumps(result)


def test_queue_path_option_is_used(run: Run, tmp_path: Path) -> None:
    QueueStore(str(tmp_path / "elsewhere")).save(requested(1, spec(name="session-1")))
    result = run(ActionModule, {"purpose": "prune"}, variables(queue_path=str(tmp_path / "elsewhere")))
    assert result["images"] == [IMAGE]
    assert result["run"]["queue_path"] == str(tmp_path / "elsewhere")


def test_variables_may_be_templates(run: Run) -> None:
    from ansible.template import trust_as_template

    arguments = variables(cluster_size=trust_as_template("{{ workers + 1 }}"))
    assert run(ActionModule, {}, {**arguments, "workers": 3})["spec"]["cluster_size"] == 4


HOSTS = {
    "gateway1": {"ansible_host": "203.0.113.7", "gateway_source_address": "198.51.100.7"},
    "gateway2": {"ansible_host": "198.51.100.8", "gateway_hostname": "Door.example.org", "gateway_domain": "a.b"},
    "gateway3": {"ansible_host": "a..b"},
}
# Where users reach the first two; the third has a name that provisioning would refuse.
SITES = (("203.0.113.7", ""), ("door.example.org", "a.b"))


@pytest.mark.parametrize("purpose", ["create", "schedule", "terminate"])
def test_gateway_addresses_are_returned_without_a_warning(queue: QueueStore, purpose: str) -> None:
    warned: list[str] = []
    pools = read(queue, purpose, variables(), "gateway1", "gateway2", warn=warned.append).pools
    sites = [Gateway(name, domain, 443, 31001, 32000) for name, domain in SITES]
    assert pools == dataclasses.replace(POOLS, gateways=("198.51.100.7", "198.51.100.8"), sites=sites)
    assert warned == []


def test_no_gateways_have_no_addresses(run: Run) -> None:
    assert run(ActionModule, {"gateways": []}, {**variables(), "hostvars": HOSTS})["pools"]["gateways"] == ()


def test_gateway_without_address_fails_with_a_record(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {"gateways": ["gateway3"]}, {**variables(record_path=str(path)), "hostvars": HOSTS})
    sentence = "gateway3: 'a..b' has no address: it is not a host name."
    assert (str(refused.value), json.loads(path.read_text())["error"]) == (sentence, sentence)


@pytest.mark.parametrize("purpose", ["schedule", "terminate"])
def test_gateway_without_address_is_a_warning_where_no_session_is_new(queue: QueueStore, purpose: str) -> None:
    warned: list[str] = []
    result = read(queue, purpose, variables(), "gateway1", "gateway3", warn=warned.append)
    assert (result.pools.network, result.pools.gateways) == (POOLS.network, ())
    assert warned == ["gateway3: 'a..b' has no address: it is not a host name."]


@pytest.mark.parametrize("args", [{}, {"purpose": "create"}], ids=["unsaid", "create"])
def test_a_new_session_needs_the_addresses_of_gateways(run: Run, args: dict[str, str]) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {**args, "gateways": ["gateway1", "gateway3"]}, {**variables(), "hostvars": HOSTS})
    assert str(refused.value) == "gateway3: 'a..b' has no address: it is not a host name."


def test_invalid_request_is_reported(run: Run) -> None:
    assert refusal(run, variables(cluster_size=0)) == ("session_cluster_size: 0 must be a whole number from 1 to 1024.")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"vxlan_port": 0}, "session_vxlan_port: 0 must be a whole number from 1 to 65535."),
        (
            {"published_port_pool": "80-90"},
            "session_published_port_pool: '80-90' must be a range within 1024-65535, such as 30000-31000.",
        ),
        (
            {"authorized_keys": ["x"]},
            f"session_authorized_keys[0]: 'x' is not an OpenSSH public key ({', '.join(KEY_TYPES)}).",
        ),
    ],
    ids=["pools", "published ports", "keys"],
)
def test_run_options_are_validated(run: Run, changes: dict[str, Any], sentence: str) -> None:
    assert refusal(run, variables(**changes)) == sentence


def test_invalid_request_writes_a_record(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    sentence = refusal(run, variables(cluster_size=0, record_path=str(path)))
    record = json.loads(path.read_text())
    assert (record["name"], record["status"], record["error"]) == ("train-llm", "ERROR", sentence)


def test_request_without_name_has_a_record_without_name(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    refusal(run, variables(name=None, record_path=str(path)))
    assert json.loads(path.read_text())["name"] is None


def test_unwritable_record_is_an_error(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "absent" / "record.json")
    assert refusal(run, variables(cluster_size=0, record_path=path)) == (
        f"{path!r} cannot be written: No such file or directory."
    )


@pytest.mark.parametrize(
    ("purpose", "changes", "sentence"),
    [
        ("terminate", {"name": None}, "session_name or session_id is required."),
        ("terminate", {"id": "5f0c"}, f"session_id: '5f0c' must be the id of a session, such as {SESSION_ID}."),
        ("terminate", {"nmae": "x"}, "session_nmae is not an option of a session; did you mean session_name?"),
    ],
)
def test_other_purposes_are_validated(queue: QueueStore, purpose: str, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as refused:
        read(queue, purpose, variables(**changes))
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("purpose", "changes"),
    [("prune", {"name": None}), ("schedule", {"name": None}), ("terminate", {})],
)
def test_other_purposes_need_no_image(queue: QueueStore, purpose: str, changes: dict[str, Any]) -> None:
    assert read(queue, purpose, variables(**changes, image=None)).spec is None


# ---- repair


def started(number: int = 1, **changes: Any) -> QueueEntry:
    """Return the entry of a running session."""
    waits = spec(name=f"session-{number}", env={"TOKEN": "hunter3"}, designated_agents=["agent9"])
    return requested(number, waits, **{"state": "RUNNING", **changes})


@pytest.mark.parametrize("by", ["name", "id"])
def test_repair_needs_only_the_name_or_id(queue: QueueStore, by: str) -> None:
    queue.save(started(1))
    queue.save(started(2))
    selected: dict[str, Any] = {"session_name": "session-1"} if by == "name" else {"session_id": started(1).id}
    result = read(queue, "repair", {**DEFAULTS, **selected})
    assert result.spec == spec_from_dict(started(1).spec or {})
    assert (result.repair, result.images) == (started(1).id, [IMAGE])


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        (
            [],
            "session_name: the queue of this control node has no request of 'session-1'; run repair_session where the",
        ),
        ([requested(1, state="TERMINATED", spec=None)], "session_name: the queue of this control node has no request"),
        ([started(1, spec=None)], "session_name: the queue of this control node has no request of 'session-1'"),
        (
            [started(1), started(2, name="session-1")],
            f"session_name: 2 sessions are called 'session-1': give session_id ({started(1).id}, {started(2).id}).",
        ),
    ],
    ids=["unknown", "ended", "without its request", "several"],
)
def test_repair_without_a_request_is_refused(queue: QueueStore, entries: list[QueueEntry], sentence: str) -> None:
    for entry in entries:
        queue.save(entry)
    with pytest.raises(ValidationError, match=f"^{re.escape(sentence)}"):
        read(queue, "repair", {**DEFAULTS, "session_name": "session-1"})


def test_repair_needs_a_session(queue: QueueStore) -> None:
    with pytest.raises(ValidationError, match=r"^session_name or session_id is required\.$"):
        read(queue, "repair", DEFAULTS)


def test_requests_of_running_sessions_are_not_surveyed(queue: QueueStore) -> None:
    queue.save(started(1))
    queue.save(requested(2, state="CREATING", attended=True))
    result = read(queue, "schedule", variables())
    assert (result.images, result.spec) == ([], None)


def give(path: Path, **given: Any) -> dict[str, str]:
    """Write what a user gives to a file, and return the variable that names it."""
    path.write_text(json.dumps({f"session_{option}": value for option, value in given.items()}))
    return {"session_request_path": str(path)}


def test_what_a_user_gives_is_a_request_like_that_of_variables(run: Run, tmp_path: Path) -> None:
    request = give(tmp_path / "request.json", name="train-llm", image=IMAGE, cluster_size="4", env={"TOKEN": "hunter2"})
    result = run(ActionModule, {}, request)
    assert result["spec"] == run(ActionModule, {}, variables(cluster_size=4, env={"TOKEN": "hunter2"}))["spec"]
    assert result["_ansible_no_log"] is True


def test_what_a_user_gives_selects_an_existing_session(run: Run, tmp_path: Path) -> None:
    request = give(tmp_path / "request.json", id=SESSION_ID, kernel="sub1", logs_lines=7)
    result = run(ActionModule, {"purpose": "prune"}, {**request, "session_history": True})["run"]
    assert [result[name] for name in ("id", "kernel", "logs_lines", "history")] == [SESSION_ID, "sub1", 7, True]


def test_a_bad_file_is_refused_with_a_record(run: Run, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    request = give(tmp_path / "request.json", nmae="train-llm")
    sentence = refusal(run, {**request, "session_record_path": str(record)})
    assert sentence == "session_request_path: 'session_nmae' is not an option of a session; did you mean session_name?"
    assert json.loads(record.read_text())["error"] == sentence


def test_the_record_of_a_refusal_has_the_name_that_the_user_gave(run: Run, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    refusal(run, {**give(tmp_path / "request.json", name="train-llm"), "session_record_path": str(record)})
    assert json.loads(record.read_text())["name"] == "train-llm"


LOOKUP = "{{ lookup('pipe', 'touch PATH') }}"


SHAPES = [LOOKUP, [LOOKUP], {LOOKUP: LOOKUP}, [{LOOKUP: LOOKUP}], {"main": {"env": {LOOKUP: [LOOKUP]}}}]


@pytest.mark.parametrize("value", SHAPES)
def test_no_template_in_any_option_of_a_user_is_run(run: Run, tmp_path: Path, value: Any) -> None:
    ran, request = tmp_path / "ran", tmp_path / "request.json"
    options = (*user_options(), *user_run_options())
    request.write_text(json.dumps(dict.fromkeys(options, value)).replace("PATH", str(ran)))
    sentence = refusal(run, {"session_request_path": str(request)})
    assert "session_cluster_size: " in sentence
    assert not ran.exists()


def test_texts_of_a_user_arrive_as_they_are(run: Run, tmp_path: Path) -> None:
    text = LOOKUP.replace("PATH", str(tmp_path / "ran"))
    app = {"name": "demo", "port": 8000, "command": text}
    roles = {"main": {}, "worker": {"env": {"TEXT": text}}}
    texts = {"command": text, "stop_command": text, "bootstrap_script": text, "env": {"TEXT": text}}
    spec = run(ActionModule, {}, give(tmp_path / "r", name="train-llm", image=IMAGE, roles=roles, apps=[app], **texts))[
        "spec"
    ]
    assert {name: spec[name] for name in texts} == texts
    assert (spec["apps"][0]["command"], spec["roles"][1]["env"]["TEXT"]) == (text, text)
    assert not (tmp_path / "ran").exists()

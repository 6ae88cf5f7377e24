"""The manager's part: what each verb does, for whom, and that nobody gets at another user's session."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from backendai_manager import service
from backendai_manager.manager import create as creation
from backendai_manager.manager.runs import Outcome
from backendai_manager.manager.slots import Slots
from backendai_manager.manager.verbs import VERBS
from backendai_manager.protocol import VERBS as SPOKEN
from backendai_manager.protocol import Result
from tests.unit.roles.manager.manager_host import (
    ALICE,
    BOB,
    CAROL,
    IDS,
    LIMITS,
    MALLORY,
    NOBODYS,
    ManagerHost,
    Run,
    record,
    stranger,
)

SPEC = {"name": "train", "image": "lab/python:1", "env": {"TOKEN": "hunter2"}}
LINKS = {"ssh": {"host": "gateway1", "port": 31000}, "apps": [{"name": "jupyter", "url": "https://g/s/train/jupyter/"}]}
TOKEN = {"token": "eyJ", "links": LINKS, "expires_at": 5, "session": {}}


def test_every_verb_that_is_spoken_is_understood() -> None:
    assert set(VERBS) == set(SPOKEN)


def created(host: ManagerHost, status: str = "RUNNING", number: int = 1, **fields: Any) -> None:
    """Let create_session write a record."""
    written = record(number, ALICE, status=status, **fields)
    host.runs.reports["create_session"] = {"session_record_path": written, "session_access_path": []}


def test_what_a_user_gives_goes_into_the_request_and_who_it_is_into_variables(host: ManagerHost) -> None:
    created(host)
    assert host.ask(ALICE, "create", options=SPEC).status == "done"
    (run,) = host.runs.made
    assert run.request is not None
    assert run.request["session_env"] == {"TOKEN": "hunter2"}
    limits = {"max_sessions": 50, "max_waiting": 100, "max_containers": 1024, "max_waiting_in_all": 2000}
    assert limits == LIMITS["__session_limits"]
    assert run.trusted == {
        "session_user": "alice",
        "session_user_uid": 1001,
        "session_no_new_privileges": True,
        "__session_defaults": {
            "per_gpu": {},
            "apps": [{"name": "terminal", "path": "none"}],
            "refuses_never": True,
        },
        **LIMITS,
    }


@pytest.mark.parametrize(
    ("policy", "apps", "entries"),
    [
        ("links_by_path: true", [], [{"name": "terminal"}]),
        ("default_apps: []", [], []),
        ("max_apps: 1", ["jupyter"], []),
        ("max_apps: 2", ["jupyter"], [{"name": "terminal", "path": "none"}]),
    ],
)
def test_what_a_session_gets_unasked_is_the_policy_s(
    host: ManagerHost, policy: str, apps: list[str], entries: list[Any]
) -> None:
    host.policy.write_text(f"images: ['lab/*']\nper_gpu: {{cpu: 8, mem: 64g}}\n{policy}\n")
    created(host)
    host.ask(ALICE, "create", options={**SPEC, "apps": apps}, wait_for_hosts=True)
    assert host.runs.made[0].trusted["__session_defaults"] == {
        "per_gpu": {"cpu": 8, "mem": "64g"},
        "apps": entries,
        "refuses_never": False,
    }


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_the_run_has_decided_is_said(host: ManagerHost, dry_run: bool) -> None:
    created(host)
    notes = ["/data/session_out gets cuda.device 4.", "No folder in session_mounts can be written."]
    host.runs.events = [{"event": "runner_on_ok", "event_data": {"task": "Create", "res": {"notes": notes}}}]
    host.ask(ALICE, "create", options={**SPEC, "resources": {"cuda.device": 4}}, dry_run=dry_run)
    advice = [event["text"] for event in host.events if event["event"] == "advice"]
    # Users write the words of a session without their prefix.
    assert advice == [notes[0], "No folder in mounts can be written."]


def test_the_groups_that_sessions_get_are_the_operators_choice(host: ManagerHost) -> None:
    host.policy.write_text("images: ['lab/*']\ngroups: [project-a]\n")
    created(host)
    host.ask(ALICE, "create", options=SPEC)
    host.keep(1, ALICE)
    host.runs.reports["repair_session"] = {"session_record_path": record(1, ALICE), "session_access_path": []}
    host.ask(ALICE, "repair", session="train")
    rules = {"allowed": ["project-a"], "closed": ["operators"]}
    assert [run.trusted["__session_groups"] for run in host.runs.made] == [rules, rules]


def test_the_bound_of_a_lifetime_is_the_operators(host: ManagerHost) -> None:
    host.policy.write_text("images: ['lab/*']\nmax_lifetime: 3600\n")
    created(host)
    host.ask(ALICE, "create", options=SPEC)
    assert host.runs.made[0].trusted["session_max_lifetime_limit"] == 3600


def test_runs_that_may_start_what_waits_have_the_limits_of_the_policy(host: ManagerHost) -> None:
    host.policy.write_text("images: ['lab/*']\nmax_sessions: 3\nmax_containers: 7\n")
    created(host)
    host.ask(ALICE, "create", options=SPEC)
    limits = {"max_sessions": 3, "max_waiting": 100, "max_containers": 7, "max_waiting_in_all": 2000}
    assert host.runs.made[0].trusted["__session_limits"] == limits


def test_a_request_beyond_the_policy_runs_nothing(host: ManagerHost) -> None:
    assert host.ask(ALICE, "create", options={**SPEC, "image": "evil/x"}) == Result(
        "refused", "image: evil/x is not allowed by the policy; allowed are lab/*."
    )
    assert host.runs.made == []


def test_a_bad_policy_is_said_with_each_creation(host: ManagerHost) -> None:
    created(host)
    host.ask(ALICE, "create", options=SPEC)
    host.policy.write_text("images: 5")
    assert host.ask(ALICE, "create", options=SPEC).status == "done"
    (warning,) = [event["text"] for event in host.events if event["event"] == "warning"]
    assert warning.endswith("The last valid policy counts until an operator corrects it.")
    host.paths.last_good_policy.unlink()
    assert "Nothing can be started" in host.ask(ALICE, "create", options=SPEC).message


def test_a_dry_run_only_checks(host: ManagerHost) -> None:
    result = host.ask(ALICE, "create", options=SPEC, dry_run=True)
    assert (result.status, host.runs.made[0].check) == ("done", True)


def test_a_session_that_waits_says_why(host: ManagerHost) -> None:
    created(host, "PENDING", pending={"reason": "no agent has 4 cores", "shortfall": {}})
    assert host.ask(ALICE, "create", options=SPEC).message == "train waits: no agent has 4 cores"


@pytest.mark.parametrize(
    ("state", "status", "message"),
    [
        ("RUNNING", "done", "train is RUNNING."),
        ("TERMINATED", "failed", "train has not started: it was cancelled"),
        ("PENDING", "pending", "train still waits: no room"),
    ],
)
def test_waiting_ends_with_the_start_the_end_or_the_time(
    host: ManagerHost, monkeypatch: pytest.MonkeyPatch, state: str, status: str, message: str
) -> None:
    monkeypatch.setattr(creation, "POLL_SECONDS", 0.05)
    created(host, "PENDING", pending={"reason": "no room"})
    latest = record(1, ALICE, status=state, reason="it was cancelled", pending={"reason": "no room"})

    def start() -> None:
        host.keep(1, ALICE, state=state, record=latest)

    host.runs.during["create_session"] = start
    result = host.ask(ALICE, "create", options=SPEC, wait=1)
    assert (result.status, result.message) == (status, message)


def test_the_reasons_of_a_refusal_name_what_the_user_wrote(host: ManagerHost) -> None:
    failed = {"host": "localhost", "res": {"msg": "session_name: 'x' is short.", "refused": True}}
    host.runs.events = [{"event": "runner_on_failed", "event_data": failed}]
    host.runs.failures["create_session"] = Outcome(False, "name: 'x' is short.", {}, refused=True)
    assert host.ask(ALICE, "create", options=SPEC) == Result("refused", "name: 'x' is short.")


def test_a_name_of_somebody_elses_live_session_is_refused_without_detail(host: ManagerHost) -> None:
    host.keep(2, BOB)
    taken = Result("refused", "name: 'train' is taken by another user's session; choose another name.")
    assert host.ask(ALICE, "create", options=SPEC) == taken
    assert host.runs.made == []
    host.keep(2, BOB, state="TERMINATING", agents=["agent2"])
    created(host)
    assert host.ask(ALICE, "create", options=SPEC).status == "done"
    host.keep(2, BOB, state="TERMINATED")
    host.runs.reports["create_session"] = {"session_record_path": record(2, BOB)}
    assert host.ask(ALICE, "create", options=SPEC) == taken


def test_a_cancelled_creation_ends_what_it_has_begun(host: ManagerHost) -> None:
    def die() -> None:
        host.keep(1, ALICE, state="CREATING")
        host.runs.cancelled = lambda: host.runs.playbooks() == ["create_session"]

    host.runs.during["create_session"] = die
    result = host.ask(ALICE, "create", options=SPEC)
    assert result == Result("failed", "cancelled; nothing is left.")
    assert host.runs.made[1:] == [Run("terminate_session", {"session_id": IDS[1], "session_force": True}, LIMITS)]


def test_a_cancelled_wait_ends_the_session_that_waits(host: ManagerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation, "POLL_SECONDS", 10.0)
    created(host, "PENDING", pending={"reason": "no room"})

    def leave() -> None:
        host.keep(1, ALICE, state="PENDING")
        threading.Timer(0.3, host.cancel).start()

    host.runs.during["create_session"] = leave
    host.runs.during["terminate_session"] = lambda: setattr(host.runs, "cancelled", lambda: False)
    assert host.ask(ALICE, "create", options=SPEC, wait=60) == Result("failed", "cancelled; nothing is left.")
    assert host.runs.made[1:] == [Run("terminate_session", {"session_id": IDS[1], "session_force": True}, LIMITS)]


def test_a_cancelled_wait_for_an_older_session_leaves_it(host: ManagerHost) -> None:
    host.keep(1, ALICE, state="PENDING")
    created(host, "PENDING", pending={"reason": "no room"})
    host.runs.during["create_session"] = lambda: threading.Timer(0.3, host.cancel).start()
    assert host.ask(ALICE, "create", options=SPEC, wait=60).message == (
        "cancelled; the session that existed is as it was. End it with backendai end train."
    )
    assert host.runs.playbooks() == ["create_session"]


def test_a_cancelled_creation_ends_neither_an_ended_session_nor_one_that_another_command_made(
    host: ManagerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.keep(1, ALICE, state="TERMINATED")

    def wait_for_slot(_slots: Slots, *_arguments: object) -> contextlib.AbstractContextManager[None]:
        host.keep(2, ALICE)
        return contextlib.nullcontext()

    host.runs.during["create_session"] = lambda: setattr(host.runs, "cancelled", lambda: True)
    assert host.ask(ALICE, "create", options=SPEC).message == "cancelled; nothing is left."
    monkeypatch.setattr(Slots, "hold", wait_for_slot)
    assert "as it was" in host.ask(ALICE, "create", options=SPEC).message
    assert host.runs.playbooks() == ["create_session", "create_session"]


WAITING = {
    "image": "evil/x",
    "roles": [],
    "mounts": [],
    "resource_group": "default",
    "network_driver": "vxlan",
    "uid": NOBODYS,
    "gid": NOBODYS,
    "priority": 10,
}


@pytest.mark.parametrize("policy", ["images: ['lab/*']", "images: 5"])
def test_no_command_starts_what_may_not_start_any_more(host: ManagerHost, policy: str) -> None:
    created(host, number=5)
    answer_all(host, 1, ALICE)
    host.keep(1, ALICE)
    host.keep(2, BOB, "other", state="PENDING", spec=WAITING)
    if "lab" in policy:
        assert host.ask(ALICE, "create", options={**SPEC, "name": "third"}).status == "done"
    host.policy.write_text(policy)
    for verb in ("end", "repair"):
        assert host.ask(ALICE, verb, session="train").status == "done"
    assert [run.trusted.get("__session_held") for run in host.runs.made] == [IDS[2:3]] * len(host.runs.made)
    assert len(host.runs.made) >= 2


def test_a_run_that_waits_for_its_session_starts_no_other_at_its_end(host: ManagerHost) -> None:
    host.policy.write_text("images: ['lab/*']\noptions: [wait]\n")
    created(host)
    host.keep(2, BOB, "other", state="PENDING", spec={**WAITING, "image": "other/x:1"})
    for wait in (True, False):
        host.ask(ALICE, "create", options={**SPEC, "wait": wait})
    # What may not start is not waited for either.
    assert [made.trusted["__session_held"] for made in host.runs.made[:2]] == [IDS[2:3]] * 2
    assert [made.trusted.get("__session_starts_none", False) for made in host.runs.made[:2]] == [True, False]


def test_a_cancelled_repair_by_create_ends_nothing(host: ManagerHost) -> None:
    host.keep(1, ALICE)
    host.keep(2, BOB, "other")
    host.runs.during["create_session"] = lambda: setattr(host.runs, "cancelled", lambda: True)
    assert "as it was" in host.ask(ALICE, "create", options=SPEC).message
    assert host.runs.playbooks() == ["create_session"]


ACTS = ["show", "logs", "access", "token", "end", "repair"]
PLAYBOOKS = {"end": "terminate_session", "repair": "repair_session", "logs": "session_logs", "token": "session_token"}


def answer_all(host: ManagerHost, number: int, owner: Any) -> None:
    host.runs.reports |= {
        "list_sessions": {"session_list_path": [record(number, owner)]},
        "terminate_session": {"session_record_path": record(number, owner, status="TERMINATED")},
        "repair_session": {"session_record_path": record(number, owner)},
        "session_logs": {"session_logs_path": {"kernels": []}},
        "session_token": {"session_token_path": TOKEN},
    }


@pytest.mark.parametrize("word", ["train", IDS[2]])
@pytest.mark.parametrize("verb", ACTS)
def test_nobody_acts_on_the_session_of_somebody_else(host: ManagerHost, verb: str, word: str) -> None:
    answer_all(host, 2, BOB)
    host.keep(2, BOB)
    assert host.ask(ALICE, verb, session=word) == Result(
        "refused", f"there is no session {word} of yours; backendai list shows what there is."
    )
    assert host.runs.playbooks() == []


@pytest.mark.parametrize("account", [BOB, CAROL])
@pytest.mark.parametrize("verb", ACTS)
def test_the_owner_and_operators_act_by_the_id(host: ManagerHost, verb: str, account: Any) -> None:
    answer_all(host, 2, BOB)
    host.keep(2, BOB)
    assert host.ask(account, verb, session="train").status == "done"
    for run in host.runs.made:
        if run.playbook in PLAYBOOKS.values():
            assert run.request is not None
            assert run.request["session_id"] == IDS[2]
            assert "session_name" not in run.request


@pytest.mark.parametrize("status", ["RUNNING", "TERMINATED"])
def test_show_has_agents_measure_what_a_session_that_lives_uses(host: ManagerHost, status: str) -> None:
    host.runs.reports["list_sessions"]["session_list_path"] = [record(2, BOB, status=status)]
    host.keep(2, BOB, state=status)
    assert host.ask(BOB, "show", session="train").status == "done"
    (listed,) = host.runs.made
    assert listed.trusted == {"session_list_use" if status == "RUNNING" else "session_history": True}


@pytest.mark.parametrize("word", ["train", IDS[2]])
@pytest.mark.parametrize("verb", ACTS)
def test_a_session_that_only_agents_know_is_no_users(host: ManagerHost, verb: str, word: str) -> None:
    answer_all(host, 2, ALICE)
    for told in (stranger(2), record(2, ALICE, recorded=False)):
        host.runs.reports["list_sessions"]["session_list_path"] = [told]
        assert host.ask(ALICE, verb, session=word) == Result(
            "refused", f"there is no session {word} of yours; backendai list shows what there is."
        )
    assert host.runs.playbooks() == []


@pytest.mark.parametrize("verb", ACTS)
def test_operators_see_a_session_that_only_agents_know_read_its_logs_and_end_it(host: ManagerHost, verb: str) -> None:
    answer_all(host, 2, ALICE)
    host.runs.reports["list_sessions"]["session_list_path"] = [stranger(2)]
    result = host.ask(CAROL, verb, session=IDS[2])
    assert result.status == ("done" if verb in ("show", "logs", "end") else "refused")
    if verb in ("logs", "end"):
        assert host.runs.made[-1].playbook == PLAYBOOKS[verb]
    assert host.ask(CAROL, verb, session="train").status == "refused"


def test_no_agent_says_whose_a_session_of_the_queue_is(host: ManagerHost) -> None:
    host.keep(2, BOB)
    answer_all(host, 2, ALICE)
    assert host.ask(ALICE, "end", session=IDS[2]).status == "refused"


def test_a_name_that_looks_like_an_id_is_that_of_the_own_session(host: ManagerHost) -> None:
    host.keep(1, ALICE, name=IDS[2])
    host.runs.reports["list_sessions"]["session_list_path"] = [stranger(2)]
    host.ask(ALICE, "end", session=IDS[2])
    assert host.runs.made[-1].request == {"session_id": IDS[1], "session_force": False}


def test_a_session_of_an_uid_that_is_somebody_elses_now_is_nobodys(host: ManagerHost) -> None:
    host.keep(2, BOB)
    host.accounts.accounts = [ALICE, CAROL, type(BOB)("bob", 2002, 100)]
    reborn = host.accounts.accounts[2]
    assert host.ask(reborn, "end", session="train").status == "refused"
    answer_all(host, 2, BOB)
    for verb in ("access", "token", "repair"):
        assert "the owner of train is gone (bob)" in host.ask(CAROL, verb, session="train").message
    assert host.ask(CAROL, "end", session="train").status == "done"


@pytest.mark.parametrize("verb", sorted(SPOKEN))
def test_who_is_no_user_gets_nothing(host: ManagerHost, verb: str) -> None:
    result = host.ask(MALLORY, verb, session="train", options={})
    assert result == Result("refused", "mallory is not in the group users: ask an operator.")
    assert host.ask(None, verb).message == "this program is started by sudo, with the command backendai."
    assert host.runs.made == []


def test_users_see_of_others_neither_ways_in_nor_errors(host: ManagerHost) -> None:
    host.runs.reports["list_sessions"]["session_list_path"] = [record(1, ALICE), record(2, BOB, error="hunter2")]
    assert [entry["id"] for entry in host.ask(ALICE, "list").data["sessions"]] == [IDS[1]]
    mine, other = host.ask(ALICE, "list", all=True).data["sessions"]
    assert (mine["host_keys"] is not None, other["host_keys"], other["error"]) == (True, None, None)
    host.runs.reports["list_sessions"]["session_list_path"].append(stranger(3))
    assert len(host.ask(ALICE, "list", all=True).data["sessions"]) == 2
    *full, unknown = host.ask(CAROL, "list", all=True).data["sessions"]
    assert (unknown["id"], "owner_gone" in unknown) == (IDS[3], False)
    assert [(entry["error"], entry["owner_gone"]) for entry in full] == [(None, False), ("hunter2", False)]


def test_every_list_warns_of_a_timer_that_does_not_run(host: ManagerHost) -> None:
    timer = {"host": "manager1", "ran_at": 1.0, "late_at": 301.0, "problem": ""}
    task = {"task": "List the sessions", "res": {"timer": timer}}
    host.runs.events = [{"event": "runner_on_ok", "event_data": task}]
    host.ask(ALICE, "list")
    assert [event for event in host.events if event["event"] == "warning"] == []
    timer["problem"] = "the timer last ran 3h ago."
    host.ask(ALICE, "list")
    assert [event["text"] for event in host.events if event["event"] == "warning"] == ["the timer last ran 3h ago."]


def test_the_cached_list_says_how_old_it_is(host: ManagerHost) -> None:
    assert host.ask(ALICE, "list", cached=True).status == "failed"
    host.paths.seen_sessions.write_text(json.dumps([record(1, ALICE), record(2, BOB)]))
    os.utime(host.paths.seen_sessions, (1, 1))
    data = host.ask(ALICE, "list", cached=True).data
    assert ([entry["id"] for entry in data["sessions"]], data["age"] > 1000) == ([IDS[1]], True)
    assert host.runs.made == []


def test_the_address_of_a_session_is_that_of_its_gateway_now(host: ManagerHost) -> None:
    host.keep(1, ALICE)
    host.runs.reports["session_token"] = {"session_token_path": TOKEN}
    given = host.ask(ALICE, "access", session="train").data["record"]
    assert (given["id"], given["ssh"], given["host_keys"]) == (IDS[1], LINKS["ssh"], record(1, ALICE)["host_keys"])
    # No token is given for a question about an address.
    assert str(TOKEN["token"]) not in json.dumps(given)
    assert given["own"] is True
    assert host.ask(CAROL, "access", session="train").data["record"]["own"] is False


@pytest.mark.parametrize("state", ["PENDING", "CREATING"])
def test_apps_of_a_session_that_has_not_begun_are_not_asked_for(host: ManagerHost, state: str) -> None:
    host.keep(1, ALICE, state=state)
    result = host.ask(ALICE, "token", session="train")
    assert (result.status, result.message) == ("failed", f"train is {state}; its apps can be opened once it runs.")
    assert host.runs.made == []


def test_without_a_gateway_a_sentence_says_so(host: ManagerHost) -> None:
    host.keep(1, ALICE)
    reason = "gateway_group: 'gateways' has no hosts; a token is signed by a gateway."
    host.runs.failures["session_token"] = Outcome(False, reason, {})
    result = host.ask(ALICE, "access", session="train")
    assert result == Result(
        "failed",
        "this manager has no gateway, so sessions cannot be entered over SSH or with a browser: ask an operator.",
    )


def test_a_session_that_waits_cannot_be_entered_yet(host: ManagerHost) -> None:
    host.keep(1, ALICE, state="PENDING")
    waits = host.ask(ALICE, "access", session="train")
    assert waits.message == "train is PENDING; it can be entered once it runs."
    host.keep(1, ALICE, state="TERMINATED")
    ended = host.ask(ALICE, "access", session=IDS[1])
    assert (ended.message, ended.data["record"]["status"]) == ("train is TERMINATED.", "TERMINATED")
    # It has waited, and so has no keys of hosts.
    host.keep(1, ALICE, state="TERMINATED", record=record(1, ALICE, status="CANCELLED", host_keys={}))
    assert host.ask(ALICE, "access", session=IDS[1]).message == "train is CANCELLED."
    assert host.runs.playbooks() == []


def test_a_repair_keeps_the_owner(host: ManagerHost) -> None:
    answer_all(host, 2, BOB)
    host.keep(2, BOB)
    host.ask(CAROL, "repair", session="train")
    assert host.runs.made[-1].trusted == {"session_user": "bob", "session_user_uid": 1002, **LIMITS}
    assert host.runs.made[-1].request == {"session_id": IDS[2], "session_fresh_home": False}


def test_a_repair_with_a_fresh_home_is_asked_for_by_name(host: ManagerHost) -> None:
    answer_all(host, 1, ALICE)
    host.keep(1, ALICE)
    host.ask(ALICE, "repair", session="train", fresh_home=True)
    assert host.runs.made[-1].request == {"session_id": IDS[1], "session_fresh_home": True}


def test_logs_are_shown_as_far_as_agents_answer(host: ManagerHost) -> None:
    host.keep(1, ALICE)
    host.runs.reports["session_logs"] = {"session_logs_path": {"kernels": []}}
    host.runs.failures["session_logs"] = Outcome(False, "agent2 does not answer.", {})
    assert host.ask(ALICE, "logs", session="train") == Result(
        "failed", "agent2 does not answer.", {"logs": {"kernels": []}}
    )


def test_agents_that_do_not_answer_are_named(host: ManagerHost) -> None:
    away = {"problem": "unreachable", "reason": "timed out"}
    unavailable = {"agent1": away, "agent2": {"problem": "hidden", "reason": "hidden by --limit"}}
    asked = {"task": "List the sessions", "host": "localhost", "res": {"unavailable": unavailable}}
    host.runs.events = [{"event": "runner_on_ok", "event_data": asked}]
    assert host.ask(ALICE, "list").status == "done"
    assert host.events[-1]["text"] == "agent1 does not answer, and its sessions are shown as they are known: timed out"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "No such file or directory"),
        ("{", "it is damaged"),
        ("[]", "it is damaged"),
        ('{"version": 2}', "it is of another release"),
        ('{"version": 1}', "a setting is missing, or has another type"),
    ],
)
def test_settings_that_cannot_be_used_are_a_sentence(host: ManagerHost, content: str | None, sentence: str) -> None:
    host.paths.manager_settings.unlink()
    if content is not None:
        host.paths.manager_settings.write_text(content)
    assert host.ask(ALICE, "list") == Result(
        "failed",
        f"{host.paths.manager_settings} cannot be used: {sentence}; run backendai.cluster.provision_managers.",
    )


def test_a_manager_without_its_runtime_folder_says_so(host: ManagerHost) -> None:
    host.paths.runtime.rmdir()
    assert "does not exist; run backendai.cluster.provision_managers." in host.ask(ALICE, "list").message


def test_an_unexpected_error_is_one_sentence_and_its_place_is_logged(
    host: ManagerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(service.syslog, "syslog", lambda _level, text: logged.append(text))

    def fail() -> None:
        raise ZeroDivisionError("hunter2")

    host.runs.during["list_sessions"] = fail
    result = host.ask(ALICE, "list")
    assert result == Result("failed", service.CAUGHT)
    assert logged[0].startswith("ZeroDivisionError at ")
    assert "hunter2" not in logged[0]


def test_files_of_the_queue_that_are_damaged_are_no_sessions(host: ManagerHost) -> None:
    host.keep(1, ALICE)
    for name, content in ((IDS[3], "{"), (IDS[4], "[]"), (IDS[5], '{"id": "x", "record": {}}'), ("../x", "{}")):
        (host.queue / f"{Path(name).name}.json").write_text(content)
    (host.queue / f"{IDS[6]}.json").mkdir()
    answer_all(host, 1, ALICE)
    assert host.ask(ALICE, "show", session="train").status == "done"


def test_what_the_manager_writes_is_its_own(host: ManagerHost) -> None:
    host.ask(ALICE, "list")
    assert stat.S_IMODE((host.paths.runtime / "slots").stat().st_mode) == 0o700


@pytest.mark.parametrize(("age", "confirmed", "ends"), [(3590, False, True), (3700, False, False), (3700, True, True)])
def test_a_session_older_than_an_hour_ends_once_that_is_confirmed(
    host: ManagerHost, age: int, confirmed: bool, ends: bool
) -> None:
    began = time.time() - age
    host.keep(1, ALICE, enqueued_at=began)
    host.runs.reports["terminate_session"] = {"session_record_path": {"status": "TERMINATED"}}
    result = host.ask(ALICE, "end", session="train", confirmed=confirmed)
    assert (result.status, host.runs.playbooks()) == (("done", ["terminate_session"]) if ends else ("pending", []))
    assert result.data == ({"record": {"status": "TERMINATED"}} if ends else {"since": began, "id": IDS[1]})


GROUP = {"resource_group": "default", "free": {"cpu": 3}, "total": {"cpu": 8}, "largest_sessions": []}


def test_limits_are_those_of_the_policy_with_what_the_user_holds_and_what_is_free(host: ManagerHost) -> None:
    host.policy.write_text(
        "images: ['lab/*']\nmounts: {data: {source: /srv/secret, target: /data, read_only: true}}\nmax_sessions: 3\n"
    )
    taken = {"total": {"cpu": 4, "mem": 8}}
    host.keep(1, ALICE, record=record(1, ALICE, resources=taken, cluster_size=2))
    host.keep(2, ALICE, "second", "CREATING", record=record(2, ALICE, "second", resources=taken))
    host.keep(3, ALICE, "third", "PENDING", record=record(3, ALICE, "third", resources=taken, cluster_size=4))
    host.keep(4, ALICE, "fourth", "TERMINATED")
    host.keep(5, BOB, "other", record=record(5, BOB, "other", resources=taken))
    report = {"agents": [], "groups": [GROUP, {**GROUP, "resource_group": "gpu"}]}
    host.runs.reports["list_agents"] = {"agent_list_path": report}
    data = host.ask(ALICE, "limits").data
    assert data["held"] == {"running": 2, "waiting": 1, "containers": 7, "resources": {"cpu": 8, "mem": 16}}
    # Of other resource groups the user gets nothing.
    assert data["free"] == [{"resource_group": "default", "free": {"cpu": 3}, "total": {"cpu": 8}}]
    assert data["folders"] == [{"name": "data", "target": "/data", "read_only": True}]
    assert (data["images"], data["max_sessions"], data["max_lifetime"]) == (["lab/*"], 3, 0)
    assert "terminal" in data["known_apps"]
    assert "secret" not in json.dumps(data)


def test_limits_are_shown_although_the_agents_cannot_be_listed(host: ManagerHost) -> None:
    host.runs.failures["list_agents"] = Outcome(False, "agent1 does not answer", {})
    result = host.ask(ALICE, "limits")
    assert (result.status, result.data["free"], result.data["images"]) == ("done", None, ["lab/*"])
    assert [event["text"] for event in host.events if event["event"] == "warning"] == ["agent1 does not answer"]

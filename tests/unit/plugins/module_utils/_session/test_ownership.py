"""Which containers of an engine are those of a session."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.networks import NameTakenError
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._session.drift import find_drift
from ansible_collections.backendai.cluster.plugins.module_utils._session.ownership import (
    mounting_ids,
    own_containers,
    record_own,
    require_names,
    sort_containers,
)
from tests.unit.builders import SESSION_ID, held, own_labels, plan
from tests.unit.plugins.module_utils._session.test_apply import apply

MADE = plan({"agent1": 2, "agent2": 1})
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"


def listed(container_id: str, name: str, **changes: str) -> dict[str, Any]:
    """Return a container with all labels of main1, whatever it is."""
    return {"Id": container_id, "Names": [f"/{name}"], "Labels": {**own_labels("main1"), **changes}, "State": "running"}


MAIN1 = "backendai-train-llm-main1"


@pytest.mark.parametrize(
    ("recorded", "there", "own"),
    [
        ({"main1": "a"}, listed("a", MAIN1), True),
        ({"main1": "a"}, listed("a", "renamed"), True),
        ({"main1": "b"}, listed("a", MAIN1), False),
        ({"main1": ""}, listed("a", MAIN1), False),
        ({}, listed("a", MAIN1), True),
        ({"sub1": "b"}, listed("a", MAIN1), True),
        ({}, listed("a", "saved"), False),
        ({}, listed("a", MAIN1, **{labels.NONCE: "another"}), False),
        ({}, listed("a", MAIN1, **{labels.NONCE: ""}), False),
        ({"main1": "a"}, listed("a", MAIN1, **{labels.SESSION_ID: OTHER_ID}), False),
    ],
    ids=[
        *(
            "recorded",
            "recorded and renamed",
            "another was recorded",
            "a record without an id",
            "created by a killed run",
        ),
        *("created by a killed run, others recorded", "another name", "another nonce", "no nonce", "another session"),
    ],
)
def test_a_container_is_a_sessions_by_its_recorded_id_or_else_by_name_and_nonce(
    engine: Any, store: Store, recorded: dict[str, str], there: dict[str, Any], own: bool
) -> None:
    session = held(MADE)
    store.save(session)
    for hostname, container_id in recorded.items():
        store.container_ids(SESSION_ID).record(hostname, container_id)
    engine.made = [there]
    assert own_containers(engine, store, session) == ({"main1": there} if own else {})
    sorted_out = sort_containers(engine, store, [session])
    assert sorted_out.unmanaged == ([] if own else [there])


def test_what_is_recorded_is_the_hostname_whatever_a_label_says(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    store.container_ids(SESSION_ID).record("sub1", "a")
    engine.made = [listed("a", MAIN1)]
    assert [*own_containers(engine, store, held(MADE))] == ["sub1"]


def test_of_a_damaged_session_only_what_was_recorded_is_its_own(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    store.container_ids(SESSION_ID).record("main1", "a")
    (store.folder(SESSION_ID) / "session.json").write_text("{")
    engine.made = [listed("a", MAIN1), listed("b", "backendai-train-llm-sub1")]
    assert [*own_containers(engine, store, SESSION_ID)] == ["main1"]
    sorted_out = sort_containers(engine, store, [])
    assert ([*sorted_out.own[SESSION_ID]], [each["Id"] for each in sorted_out.unmanaged]) == (["main1"], ["b"])


def test_nothing_is_of_a_session_that_is_not_here(engine: Any, store: Store) -> None:
    engine.made = [listed("a", MAIN1)]
    assert own_containers(engine, store, SESSION_ID) == {}
    assert sort_containers(engine, store, []) == ({}, engine.made)


def test_what_a_killed_run_has_left_is_recorded_and_nothing_else(engine: Any, store: Store) -> None:
    session = held(MADE)
    store.save(session)
    store.container_ids(SESSION_ID).record("sub1", "gone")
    engine.made = [listed("a", MAIN1), listed("b", "saved"), listed("c", "backendai-train-llm-sub1")]
    record_own(engine, store, session)
    assert store.container_ids(SESSION_ID).read() == {"main1": "a", "sub1": "gone"}


def test_a_run_that_is_killed_between_creation_and_record_leaves_a_container_of_the_session(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        """What nothing catches."""

    def killed(_ids: object, _hostname: str, _container: str) -> None:
        raise KilledError

    store.save(held(MADE, expires_at=9e12))
    with monkeypatch.context() as patch:
        patch.setattr(type(store.container_ids(SESSION_ID)), "record", killed)
        with pytest.raises(KilledError):
            apply(engine, store)
    created = [entry["Id"] for entry in engine.made]
    assert created
    assert {entry["State"] for entry in engine.made} == {"created"}
    assert store.container_ids(SESSION_ID).read() == {}
    apply(engine, store)
    assert store.container_ids(SESSION_ID).read() == {
        entry["Labels"][labels.HOSTNAME]: entry["Id"] for entry in engine.made
    }
    assert {entry["State"] for entry in engine.made} == {"running"}
    assert not [call for call in engine.calls if call.startswith("remove")]


def test_a_container_under_a_name_of_a_session_is_never_adopted_and_keeps_it_from_being_repaired(
    engine: Any, store: Store
) -> None:
    store.save(held(MADE))
    apply(engine, store)
    # Somebody has removed main1, and runs its image under its name.
    engine.made[0]["Id"] = "strange"
    assert "container backendai-train-llm-main1" in [change.subject for change in find_drift(engine, store, held(MADE))]
    engine.calls.clear()
    with pytest.raises(NameTakenError) as taken:
        apply(engine, store)
    assert str(taken.value) == (
        "container backendai-train-llm-main1 already exists on agent1 and does not belong to this session, which needs"
        " that name: remove it there (docker rm -f backendai-train-llm-main1), or choose another session_name"
    )
    assert engine.calls == []


def test_names_that_nobody_has_may_be_used(engine: Any) -> None:
    engine.made = [{**listed("a", ""), "Names": None}, {**listed("b", ""), "Names": ["/own"]}, listed("c", "x-1")]
    require_names(engine, ["own", "x"], {"main1": {"Id": "b"}}, "agent1")
    require_names(engine, [], {}, "agent1")


def test_sessions_whose_files_are_mounted_are_known_by_the_mounts_of_containers(engine: Any, store: Store) -> None:
    sources = [str(store.kernel_folder(SESSION_ID, "main1")), "/srv/data", ""]
    engine.made = [{"Id": "a", "Mounts": [{"Source": source} for source in sources]}, {"Id": "b", "Mounts": None}]
    engine.made = [{**listed(each["Id"], "x", **{labels.SESSION_ID: OTHER_ID}), **each} for each in engine.made]
    assert mounting_ids(engine) == {SESSION_ID}


def test_the_nonce_of_a_claim_is_on_its_containers(engine: Any, store: Store) -> None:
    store.save(dataclasses.replace(held(MADE, expires_at=9e12), nonce="nonce-1"))
    apply(engine, store)
    assert {entry["Labels"][labels.NONCE] for entry in engine.made} == {"nonce-1"}

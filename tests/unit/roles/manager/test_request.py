"""What a user asks for, bounded by the policy; and what waits, judged again."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from backendai_manager.errors import RefusedError
from backendai_manager.manager.identity import Caller
from backendai_manager.manager.request import build_request, check_waiting
from backendai_manager.policy import NamedFolder, Policy
from tests.unit.roles.manager.manager_host import OPTIONS

SWARM, REMOVED_OPTION = OPTIONS.removed_values["session_network_driver"], OPTIONS.removed["session_facts_max_age"]
ALICE = Caller("alice", 1001, 100)
FOLDERS = {
    "home": NamedFolder("/srv/home/{user}", "/home/work/home"),
    "data": NamedFolder("/mnt/data", "/home/work/data", read_only=True),
}
POLICY = Policy(("lab/*",), mounts=FOLDERS, max_lifetime=3600, max_priority=20)


def build(policy: Policy = POLICY, **given: Any) -> dict[str, Any]:
    return build_request({"name": "train", "image": "lab/python:1", **given}, policy, OPTIONS, ALICE)


def refusal(policy: Policy = POLICY, **given: Any) -> str:
    with pytest.raises(RefusedError) as refused:
        build(policy, **given)
    return str(refused.value)


def test_a_request_is_completed_by_the_policy() -> None:
    assert build(cluster_size=2, session_env={"A": "b"}) == {
        "session_name": "train",
        "session_image": "lab/python:1",
        "session_cluster_size": 2,
        "session_env": {"A": "b"},
        "session_resource_group": "default",
        "session_network_driver": "vxlan",
        "session_priority": 10,
        "session_max_lifetime": 3600,
        "session_uid": 1001,
        "session_gid": 100,
    }


def test_defaults_beyond_the_policy_are_replaced() -> None:
    policy = Policy(("lab/*",), resource_groups=("gpu",), drivers=("host",), uid=None, gid=None, max_priority=3)
    built = build(policy)
    names = ("resource_group", "network_driver", "priority", "uid", "gid")
    assert [built[f"session_{name}"] for name in names] == ["gpu", "host", 3, 1001, 100]


def test_named_folders_become_mounts_of_the_user() -> None:
    assert build(mounts=["home", "data"])["session_mounts"] == [
        {"source": "/srv/home/alice", "target": "/home/work/home", "read_only": False, "strict": True},
        {"source": "/mnt/data", "target": "/home/work/data", "read_only": True, "strict": True},
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"nmae": "x"}, "nmae is not a word of a session; did you mean name?"),
        ({"session_nmae": "x"}, "session_nmae is not a word of a session; did you mean name?"),
        ({"{{ 7 }}": "x"}, "{{ 7 }} is not a word of a session; allowed are name, image"),
        ({"x" * 500: "x"}, f"'{'x' * 40}'… is not a word of a session"),
        ({"session_name": "other"}, "session_name is given twice."),
        ({"uid": 0}, "uid is set by the policy; leave it out."),
        ({"groups": ["disk"]}, "groups is not a word of a session; "),
        ({"session_groups": ["disk"]}, "session_groups is not a word of a session; "),
        ({"__session_groups": {"allowed": "own"}}, "__session_groups is not a word of a session; "),
        ({"session_gid": 0}, "session_gid is set by the policy; leave it out."),
        ({"user": "bob"}, "user is an option of operators; leave it out."),
        ({"queue_path": "/x"}, "queue_path is an option of operators; leave it out."),
        ({"hosts_template": "/etc/shadow"}, "hosts_template is an option of operators; leave it out."),
        ({"record_path": "/x"}, "record_path is an option of operators; leave it out."),
        ({"wait": True}, "wait is an option of operators; leave it out."),
        ({"image": "evil/x"}, "image: evil/x is not allowed by the policy; allowed are lab/*."),
        ({"roles": {"main": {"image": "evil/x"}}}, "image: evil/x is not allowed by the policy"),
        ({"roles": '{"main": {"image": "evil/x"}}'}, "roles must be a mapping of roles."),
        ({"roles": {"main": '{"image": "evil/x"}'}}, "roles: 'main' must be a mapping, and its image a text."),
        ({"roles": {"main": {"image": ["evil/x"]}}}, "roles: 'main' must be a mapping, and its image a text."),
        ({"image": ["evil/x"]}, "image must be a text."),
        ({"mounts": ["etc"]}, "mounts: etc is not allowed by the policy; allowed are home, data."),
        ({"mounts": [{"source": "/etc", "target": "/x"}]}, "is not allowed by the policy; allowed are home, data."),
        ({"mounts": '[{"source": "/etc", "target": "/x"}]'}, "mounts must be a list of names."),
        ({"mounts": {"source": "/etc"}}, "mounts must be a list of names."),
        ({"network_driver": "host"}, "network_driver: host is not allowed by the policy; allowed are vxlan."),
        ({"network_driver": " host "}, "network_driver: host is not allowed by the policy; allowed are vxlan."),
        ({"network_driver": "swarm"}, f"network_driver: swarm was removed: {SWARM['swarm']}."),
        ({"facts_max_age": 5}, f"facts_max_age is not a word of a session; it was removed: {REMOVED_OPTION}."),
        ({"resource_group": "gpu"}, "resource_group: gpu is not allowed by the policy; allowed are default."),
        ({"resource_group": ["gpu"]}, "resource_group must be a text."),
        ({"priority": 21}, "priority: 21 is not allowed; it may be 0 to 20."),
        ({"priority": " 99 "}, "priority: 99 is not allowed; it may be 0 to 20."),
        ({"priority": [99]}, "priority: [99] is not allowed; it may be 0 to 20."),
        ({"apps": [{"name": "x", "path": "strip"}]}, "apps: links by path are off"),
        ({"apps": "jupyter"}, "apps must be a list of apps."),
        ({"authorized_keys": "ssh-ed25519 x"}, "authorized_keys must be a list of public keys."),
    ],
)
def test_what_is_beyond_the_policy_is_refused(given: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(**given)


def test_all_problems_are_said_at_once() -> None:
    assert len(refusal(image="evil/x", priority=99, mounts=["etc"]).splitlines()) == 3


def test_words_left_empty_have_their_defaults() -> None:
    assert build(priority="", roles=None, mounts="") == build()


def test_apps_have_no_links_by_path_unless_the_policy_allows_them() -> None:
    apps = ["jupyter", {"name": "demo", "port": 8000}]
    assert build(apps=apps)["session_apps"] == [
        {"name": "jupyter", "path": "none"},
        {"name": "demo", "port": 8000, "path": "none"},
    ]
    assert build(Policy(("lab/*",), links_by_path=True), apps=apps)["session_apps"] == apps


@pytest.mark.parametrize("given", [{}, {"max_lifetime": 0}, {"max_lifetime": " 0 "}, {"max_lifetime": "0h"}])
def test_who_asks_for_no_end_has_that_of_the_policy_also_while_the_session_waits(given: dict[str, Any]) -> None:
    built = build(**given)
    assert built["session_max_lifetime"] == 3600
    spec = {name.removeprefix("session_"): value for name, value in built.items()}
    assert check_waiting({**SPEC, **spec, "mounts": []}, POLICY, ALICE) == ""
    assert "session_max_lifetime" not in build(Policy(("lab/*",)))
    assert build(max_lifetime=60)["session_max_lifetime"] == 60
    assert build(max_lifetime="12h")["session_max_lifetime"] == "12h"


@pytest.mark.parametrize("bad", ["7 weeks", "-1h", "1.5", "h", "12x", True, [60]])
def test_a_longest_life_that_is_no_time_is_one_sentence(bad: object) -> None:
    with pytest.raises(RefusedError) as refusal:
        build(max_lifetime=bad)
    assert str(refusal.value) == (
        f"max_lifetime: {str(bad)!r} must be whole seconds, or a time such as 30s, 90m, 12h, 7d or 1d12h."
    )


SCRIPTS = ("bootstrap_script", "command", "stop_command")


def test_scripts_have_a_size_together() -> None:
    quarter = "x" * (64 << 10)
    within: dict[str, Any] = dict.fromkeys(SCRIPTS, quarter)
    app = {"name": "a", "port": 8000, "command": quarter}
    assert build(**within, apps=[app])["session_command"] == quarter
    assert refusal(**within, apps=[{**app, "command": f"{quarter}é"}]) == (
        "bootstrap_script, command, stop_command and the commands of apps have 262146 bytes together; they may have"
        " 262144: put them into the image, or into a folder."
    )


def test_the_rest_of_a_request_has_a_size() -> None:
    assert build(env={"A": "x" * 60_000})
    assert refusal(env={"A": "x" * 66_000}).startswith("the request has 66")
    assert refusal(env={"A": "x" * 66_000}).endswith(" bytes without its scripts; it may have 65536.")


def test_what_each_role_repeats_counts_for_each_of_them() -> None:
    roles: dict[str, Any] = {"main": {}, **{f"w{chr(97 + number)}": {} for number in range(20)}}
    assert build(env={"A": "x" * 3000}, roles=roles)
    sentence = "without its scripts, with env and resources for each role; it may have 65536."
    assert refusal(env={"A": "x" * 4000}, roles=roles).endswith(sentence)


def test_a_session_has_as_many_apps_as_the_policy_allows() -> None:
    apps = ["jupyter", "terminal"]
    assert len(build(dataclasses.replace(POLICY, max_apps=2), apps=apps)["session_apps"]) == 2
    sentence = "apps: 2 are not allowed by the policy; a session may have 1."
    assert refusal(dataclasses.replace(POLICY, max_apps=1), apps=apps) == sentence
    assert "apps: 33 are not allowed by the policy; a session may have 32." in refusal(apps=["jupyter"] * 33)


def test_the_policy_may_let_users_give_options_of_a_run() -> None:
    assert build(Policy(("lab/*",), options=("wait",)), wait=True)["session_wait"] is True


SPEC = {
    "image": "lab/python:1",
    "roles": [],
    "mounts": [{"source": "/srv/home/alice", "target": "/home/work/home", "read_only": False, "strict": True}],
    "resource_group": "default",
    "network_driver": "vxlan",
    "uid": 1001,
    "gid": 100,
    "max_lifetime": 60,
    "priority": 10,
}


def test_a_request_that_waits_may_start_while_the_policy_allows_it() -> None:
    assert check_waiting(SPEC, POLICY, ALICE) == ""
    assert check_waiting({**SPEC, "apps": [{"name": "jupyter", "path": "none"}]}, POLICY, ALICE) == ""
    by_path = dataclasses.replace(POLICY, links_by_path=True)
    assert check_waiting({**SPEC, "apps": [{"name": "jupyter", "path": "strip"}]}, by_path, ALICE) == ""


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"image": "evil/x"}, "image"),
        ({"roles": [{"image": "evil/x"}]}, "image"),
        (
            {"mounts": [{"source": "/srv/home/bob", "target": "/home/work/home", "read_only": False, "strict": True}]},
            "mounts",
        ),
        (
            {
                "mounts": [
                    {"source": "/srv/home/alice", "target": "/home/work/home", "read_only": False, "strict": False}
                ]
            },
            "mounts",
        ),
        ({"resource_group": "gpu"}, "resource_group"),
        ({"network_driver": "host"}, "network_driver"),
        ({"uid": 0}, "uid"),
        ({"gid": 5}, "gid"),
        ({"max_lifetime": 7200}, "max_lifetime"),
        ({"max_lifetime": 0}, "max_lifetime"),
        ({"priority": 50}, "priority"),
        ({"apps": [{"name": "a", "path": "none"}, {"name": "jupyter", "path": "strip"}]}, "apps"),
        ({"apps": [{"name": "a", "path": "none"}] * 33}, "apps"),
    ],
)
def test_a_request_that_waits_is_judged_by_the_policy_of_now(changed: dict[str, Any], word: str) -> None:
    assert check_waiting({**SPEC, **changed}, POLICY, ALICE).startswith(f"{word}: ")

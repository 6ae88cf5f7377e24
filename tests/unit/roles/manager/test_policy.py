"""The policy: what it may say, and which one counts when it is bad."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from backendai_manager import policy as module
from backendai_manager.policy import NamedFolder, Policy, PolicyError, load_policy, parse_policy
from tests.unit.builders import REPOSITORY
from tests.unit.roles.manager.manager_host import OPTIONS

EXAMPLE = b"""
images: ["lab/*"]
resource_groups: [default, gpu]
drivers: [vxlan]
mounts:
  data: {source: /mnt/data, target: /home/work/data, read_only: true}
  home: {source: "/srv/home/{user}", target: /home/work/home}
uid: own
gid: 1000
max_lifetime: 1d
max_priority: 5
options: [wait]
links_by_path: true
per_gpu: {cpu: 8, mem: 64g}
default_apps: []
"""
TIME_RULE = "must be whole seconds, or a time such as 30s, 90m, 12h, 7d or 1d12h"

SWARM, REMOVED_OPTION = OPTIONS.removed_values["session_network_driver"], OPTIONS.removed["session_facts_max_age"]
KEPT = "The last valid policy counts until an operator corrects it."


def test_a_policy_bounds_what_users_have() -> None:
    policy = parse_policy(EXAMPLE, OPTIONS)
    folders = {
        "data": NamedFolder("/mnt/data", "/home/work/data", True),
        "home": NamedFolder("/srv/home/{user}", "/home/work/home"),
    }
    assert policy == Policy(
        ("lab/*",),
        ("default", "gpu"),
        ("vxlan",),
        folders,
        None,
        1000,
        None,
        86400,
        5,
        ("wait",),
        links_by_path=True,
        per_gpu={"cpu": 8, "mem": "64g"},
        default_apps=(),
    )
    assert policy.mounts["home"].mount("alice")["source"] == "/srv/home/alice"


def test_only_images_have_to_be_named() -> None:
    policy = parse_policy(b"images: []", OPTIONS)
    assert (policy.drivers, policy.mounts, policy.options, policy.links_by_path) == (("vxlan",), {}, (), False)
    assert not policy.allows_image("lab/python:1")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "it must be a mapping."),
        ("images: [", "it is not YAML, line 1: "),
        ("{}", "images is required"),
        ("imags: []", "'imags' is not a word of a policy; did you mean images?"),
        ("images: lab/*", "images must be a list of patterns"),
        ("images: [1]", "images must be a list of patterns"),
        ("images: []\nresource_groups: default", "resource_groups must be a list of names."),
        ("images: []\ndrivers: [macvlan]", "drivers must be a list of vxlan, host."),
        (f"images: []\ndrivers: {[*SWARM]}", f"drivers: 'swarm' was removed: {SWARM['swarm']}."),
        ("images: []\noptions: [facts_max_age]", f"cannot be a user's; it was removed: {REMOVED_OPTION}."),
        ("images: []\nuid: 0", "uid must be a whole number from 1 to 2147483647, or own for the user's own."),
        ("images: []\ngid: root", "gid must be a whole number"),
        ("images: []\nuid: true", "uid must be a whole number"),
        *(
            (f"images: []\nmax_lifetime: {bad}", f"max_lifetime {TIME_RULE}.")
            for bad in ("7 weeks", "-1h", "1.5", "h", "12x", "true", "[60]", "")
        ),
        (
            "images: []\nmax_lifetime: 30s",
            "max_lifetime must be a whole number from 60 to 2147483648, or 0 for no bound.",
        ),
        (
            "images: []\nmax_lifetime: 5",
            "max_lifetime must be a whole number from 60 to 2147483648, or 0 for no bound.",
        ),
        ("images: []\nmax_priority: 101", "max_priority must be a whole number from 0 to 100."),
        ("images: []\nmax_sessions: 0", "max_sessions must be a whole number from 1 to 10000."),
        ("images: []\nmax_waiting: 2001", "max_waiting must be a whole number from 1 to 2000."),
        ("images: []\nmax_containers: many", "max_containers must be a whole number from 1 to 1000000."),
        (
            "images: []\ngroups: all",
            "groups must be own, or a list of names of groups, such as [project-a, project-b].",
        ),
        ("images: []\ngroups: [1000]", "groups must be own, or a list of names"),
        ("images: []\ngroups: ['1000']", "groups must be own, or a list of names"),
        ("images: []\ngroups: ['{{ x }}']", "groups must be own, or a list of names"),
        ("images: []\ngroups: ['a:b']", "groups must be own, or a list of names"),
        ("images: []\ngroups: ['']", "groups must be own, or a list of names"),
        ("images: []\ngroups: {a: b}", "groups must be own, or a list of names"),
        (f"images: []\ngroups: {['x'] * 65}", "groups has 65 names, and a container has at most 64 groups."),
        ("images: []\nmax_apps: 33", "max_apps must be a whole number from 0 to 32."),
        ("images: []\noptions: [user]", "options: 'user' cannot be a user's; allowed are id, kernel"),
        ("images: []\nlinks_by_path: 1", "links_by_path must be true or false."),
        (
            "images: []\nper_gpu: 8",
            "per_gpu must be a mapping with cpu, a whole number, and mem, such as {cpu: 8, mem: 64g}",
        ),
        ("images: []\nper_gpu: {cpu: 0}", "per_gpu must be a mapping"),
        ("images: []\nper_gpu: {cpu: true}", "per_gpu must be a mapping"),
        ("images: []\nper_gpu: {mem: 64}", "per_gpu must be a mapping"),
        ("images: []\nper_gpu: {gpu: 1}", "per_gpu must be a mapping"),
        ("images: []\ndefault_apps: [jupyter]", "default_apps must be [terminal], or [] for none."),
        ("images: []\ndefault_apps: terminal", "default_apps must be [terminal], or [] for none."),
        ("images: []\nmounts: [data]", "mounts must be a mapping"),
        ("images: []\nmounts: {../x: {source: /a, target: /b}}", "mounts has the name '../x'"),
        ("images: []\nmounts: {x: {source: /a}}", "mounts has 'x', which must have source and target"),
        ("images: []\nmounts: {x: {source: a, target: /b}}", "mounts has 'x' with the source 'a', which is not an"),
        ("images: []\nmounts: {x: {source: /a/../b, target: /b}}", "is not an absolute path without .."),
        ("images: []\nmounts: {x: {source: '/a/{uid}', target: /b}}", "a placeholder that is not {user} in its source"),
        (
            "images: []\nmounts: {x: {source: /a, target: '/b/{user}'}}",
            "a placeholder that is not {user} in its source",
        ),
        ("images: []\nmounts: {x: {source: /a, target: /b, read_only: 1}}", "with read_only, which must be true or"),
    ],
)
def test_a_bad_policy_is_refused_with_its_word(text: str, sentence: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        parse_policy(text.encode(), OPTIONS)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("pattern", "allowed", "refused"),
    [
        ("python:*", ["python", "python:3", "python:3.12-slim"], ["python:5000/evil/rootkit", "python@sha256:aa", "p"]),
        ("python*", ["python", "python3:x"], ["python.evil.example/x", "python:5000/evil/rootkit"]),
        ("python:3", ["python:3"], ["python", "python:3@sha256:aa", "python:30"]),
        ("python", ["python", "python:3", "python@sha256:aa", "python:3@sha256:aa"], ["python/x", "pythons"]),
        ("lab/*", ["lab/python:1", "lab/a/b", "lab/x@sha256:aa"], ["lab:5000/x", "lab.example/x", "other/lab/x"]),
        (
            "registry.example.com/*",
            ["registry.example.com/a", "registry.example.com/a/b:1"],
            ["registry.example.com.evil/a", "registry.example.com:5000/a", "a"],
        ),
        ("registry.example.com:5000/*", ["registry.example.com:5000/a/b"], ["registry.example.com/a"]),
        ("registry.example.com/team/*:stable", ["registry.example.com/team/x:stable"], ["registry.example.com/team/x"]),
        ("*.example.com/*", ["a.example.com/x:1"], ["a.example.com.evil/x", "evil/a.example.com/x"]),
        ("*/team/*", ["registry.example.com/team/x", "team/team/x"], ["registry.example.com/other/team"]),
        ("*", ["python", "registry.example.com:5000/a/b:1", "a@sha256:aa"], []),
        ("python@sha256:*", ["python@sha256:aa", "python:3@sha256:aa"], ["python:3", "python"]),
        ("localhost/*", ["localhost/x"], ["local/x"]),
    ],
)
def test_parts_of_a_pattern_are_compared_with_their_own(pattern: str, allowed: list[str], refused: list[str]) -> None:
    policy = Policy((pattern,))
    assert [image for image in allowed if not policy.allows_image(image)] == []
    assert [image for image in refused if policy.allows_image(image)] == []


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(PolicyError) as refusal:
        parse_policy(b"uid: 0\ngid: 0", OPTIONS)
    assert len(str(refusal.value).splitlines()) == 3


def test_the_last_good_policy_counts_when_it_is_bad(tmp_path: Path) -> None:
    path, kept = tmp_path / "policy.yml", tmp_path / "last-good.yml"
    path.write_bytes(EXAMPLE)
    good, warning = load_policy(path, kept, OPTIONS)
    assert warning == ""
    path.write_text("images: 5\n")
    assert load_policy(path, kept, OPTIONS) == (
        good,
        f"{path}: images must be a list of patterns, such as [registry.example.com/*, 'python:*'].\n{KEPT}",
    )
    path.unlink()
    assert load_policy(path, kept, OPTIONS)[1].startswith(f"{path}: No such file")


def test_what_was_removed_since_the_policy_was_valid_locks_no_user_out(tmp_path: Path) -> None:
    path, kept = tmp_path / "policy.yml", tmp_path / "last-good.yml"
    for drivers, counted in (("[vxlan, swarm]", ("vxlan",)), ("[swarm]", ())):
        for file in (path, kept):
            file.write_text(f"images: [lab/*]\ndrivers: {drivers}\n")
        policy, warning = load_policy(path, kept, OPTIONS)
        assert policy == Policy(("lab/*",), drivers=counted)
        assert warning == f"{path}: drivers: 'swarm' was removed: {SWARM['swarm']}.\n{KEPT}"


@pytest.mark.parametrize("damage", ["missing", "fifo", "binary", "huge"])
def test_without_any_good_policy_nothing_starts(tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policy.yml"
    if damage == "fifo":
        os.mkfifo(path)
    elif damage == "binary":
        path.write_bytes(bytes(range(256)))
    elif damage == "huge":
        monkeypatch.setattr(module, "MAX_POLICY", 10)
        path.write_bytes(EXAMPLE)
    with pytest.raises(PolicyError, match="Nothing can be started before an operator corrects it"):
        load_policy(path, tmp_path / "last-good.yml", OPTIONS)


def test_a_copy_that_cannot_be_kept_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "policy.yml"
    path.write_bytes(EXAMPLE)
    assert load_policy(path, tmp_path / "absent" / "last-good.yml", OPTIONS)[1] == ""


def check(path: Path, monkeypatch: pytest.MonkeyPatch, *flags: str) -> int:
    monkeypatch.setattr(sys, "argv", ["policy", *flags, str(path)])
    specification = REPOSITORY / "roles/session/meta/argument_specs.yml"
    paths = {"specification": specification, "collections": path.parent}
    monkeypatch.setattr(module, "Paths", type("P", (), paths))
    return module.main()


def test_the_role_checks_a_policy_before_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.yml"
    path.write_bytes(EXAMPLE)
    assert check(path, monkeypatch) == 0
    path.write_text("uid: 0\n")
    assert check(path, monkeypatch) == 2
    assert check(tmp_path, monkeypatch) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert all(line.startswith(str(tmp_path)) for line in errors)


def test_the_folders_of_a_policy_are_printed_for_the_check_on_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.yml"
    path.write_bytes(EXAMPLE)
    assert check(path, monkeypatch, "--folders") == 0
    assert json.loads(capsys.readouterr().out) == [
        {"source": "/mnt/data", "read_only": True},
        {"source": "/srv/home/{user}", "read_only": False},
    ]
    assert check(path, monkeypatch, "--other") == 2


def test_slashes_at_the_end_of_a_folder_mean_nothing() -> None:
    policy = parse_policy(b"images: []\nmounts: {x: {source: '/a/{user}/', target: /b/}}", OPTIONS)
    assert policy.mounts["x"] == NamedFolder("/a/{user}", "/b")


def test_sessions_are_their_users_unless_the_policy_says_otherwise() -> None:
    policy = parse_policy(b"images: []", OPTIONS)
    assert (policy.uid, policy.gid) == (None, None)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", "own"),
        ("groups: own", "own"),
        ("groups: []", []),
        (
            "groups: [project-a, _x, 1st, 'EXAMPLE\\domain users', é@example.org]",
            ["project-a", "_x", "1st", "EXAMPLE\\domain users", "é@example.org"],
        ),
    ],
)
def test_a_policy_names_the_groups_that_sessions_get_and_never_that_of_operators(text: str, allowed: object) -> None:
    policy = parse_policy(f"images: []\n{text}".encode(), OPTIONS)
    assert policy.group_rules("operators") == {"allowed": allowed, "closed": ["operators"]}


def test_a_fixed_uid_that_is_an_account_of_the_manager_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as refusal:
        parse_policy(b"images: []\nuid: 1", OPTIONS)
    name = pwd.getpwuid(1).pw_name
    assert str(refusal.value).startswith(f"uid must not be 1, the account {name!r} of this host: who starts a setuid ")
    assert parse_policy(b"images: []\nuid: 1999999999", OPTIONS).uid == 1999999999
    # Nor does the copy of a policy count that was valid before somebody had got that account.
    path, kept = tmp_path / "policy.yml", tmp_path / "last-good.yml"
    for file in (path, kept):
        file.write_text("images: []\nuid: 1\n")
    with pytest.raises(PolicyError, match="Nothing can be started before an operator corrects it"):
        load_policy(path, kept, OPTIONS)


def test_the_check_is_a_program() -> None:
    command = [sys.executable, "-m", "backendai_manager.policy"]
    completed = subprocess.run(
        command, capture_output=True, text=True, cwd=REPOSITORY / "roles/manager/files", check=False
    )
    assert (completed.returncode, completed.stderr) == (
        2,
        "usage: python -m backendai_manager.policy [--folders] FILE\n",
    )

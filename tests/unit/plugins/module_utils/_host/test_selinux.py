"""Which commands open a folder to containers where SELinux closes it, by its label and by switches of the policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.selinux import (
    find_opening,
    has_switch,
    is_enforced,
    is_off,
)

FILES = "system_u:object_r:container_file_t"
BEHIND = " (if semanage says to try another path, add that one)"
RELABEL = f"semanage fcontext -a -t container_file_t '/mnt/data(/.*)?' && restorecon -RF /mnt/data{BEHIND}"


def kernel(folder: Path, enforce: str = "1", **switches: str) -> Path:
    """Return a folder as that of the kernel: a switch has its value, and the one that is not yet in effect."""
    (folder / "booleans").mkdir(parents=True)
    (folder / "enforce").write_text(enforce)
    for name, value in switches.items():
        (folder / "booleans" / name).write_text(value)
    return folder


@pytest.mark.parametrize(("value", "enforced"), [("1", True), ("0", False)])
def test_selinux_is_enforced_or_only_reports(tmp_path: Path, value: str, enforced: bool) -> None:
    assert is_enforced(kernel(tmp_path, value)) is enforced


def test_a_host_without_selinux_enforces_nothing_and_has_no_switch(tmp_path: Path) -> None:
    none = tmp_path / "none"
    assert (is_enforced(none), is_off("haproxy_connect_any", none)) == (False, False)
    assert not has_switch("haproxy_connect_any", none)


@pytest.mark.parametrize("value", ["0 0", "1 1"])
def test_a_policy_has_a_switch_whatever_its_value_is(tmp_path: Path, value: str) -> None:
    assert has_switch("haproxy_connect_any", kernel(tmp_path, haproxy_connect_any=value))
    assert not has_switch("virt_use_nfs", tmp_path)


@pytest.mark.parametrize(
    ("label", "read_only", "commands"),
    [
        (f"{FILES}:s0", False, ""),
        (f"{FILES}:s0", True, ""),
        (FILES, False, ""),
        ("system_u:object_r:fusefs_t:s0", False, ""),
        ("system_u:object_r:container_ro_file_t:s0", True, ""),
        ("system_u:object_r:container_ro_file_t:s0", False, RELABEL),
        (f"{FILES}:s0:c1,c2", False, RELABEL),
        ("unconfined_u:object_r:default_t:s0", False, RELABEL),
        ("unconfined_u:object_r:user_home_t:s0", True, RELABEL),
        ("unlabeled", True, RELABEL),
        ("", False, ""),
    ],
)
def test_a_label_that_containers_may_not_use_needs_another_rule(label: str, read_only: bool, commands: str) -> None:
    assert find_opening("/mnt/data", label, read_only=read_only) == commands


@pytest.mark.parametrize(
    ("type_", "switch"), [("nfs_t", "virt_use_nfs"), ("cifs_t", "virt_use_samba"), ("cephfs_t", "container_use_cephfs")]
)
def test_a_network_file_system_needs_a_switch_and_no_label(tmp_path: Path, type_: str, switch: str) -> None:
    label = f"system_u:object_r:{type_}:s0"
    off, on = kernel(tmp_path / "off", **{switch: "0 0"}), kernel(tmp_path / "on", **{switch: "1 1"})
    assert find_opening("/mnt/data", label, read_only=False, kernel=off) == f"setsebool -P {switch} 1"
    assert find_opening("/mnt/data", label, read_only=False, kernel=on) == ""


def test_the_rule_is_of_exactly_that_folder_and_the_shell_reads_it_as_one_word() -> None:
    commands = find_opening("/mnt/it's 1.5 (old)", "u:object_r:default_t:s0", read_only=True)
    rule, path = "/mnt/it\\'\"'\"'s\\s1\\.5\\s\\(old\\)(/.*)?", "/mnt/it'\"'\"'s 1.5 (old)"
    assert commands == f"semanage fcontext -a -t container_file_t '{rule}' && restorecon -RF '{path}'{BEHIND}"

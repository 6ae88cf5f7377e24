"""The record of what was on a host before it was provisioned."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.host_record import (
    MARKS,
    DamagedRecordError,
    HostRecord,
    Installed,
    begin,
    end,
    find_roles,
    first_record,
    read_record,
    write_record,
)

BARE = Installed(frozenset({"bash"}), frozenset({"root"}), frozenset({"root"}))
DOCKER = Installed(frozenset({"bash", "docker.io", "runc"}), frozenset({"root"}), frozenset({"root", "docker"}))


def begun(
    record: HostRecord, host: Installed = BARE, forward: str = "0", automatic: Collection[str] = ()
) -> HostRecord:
    """Return the record at the beginning of an installation of docker.io."""
    return begin(
        record,
        host,
        Installed(frozenset({"docker.io"})),
        {"net.ipv4.ip_forward": forward},
        {"docker.service": "not-found"},
        automatic,
    )


def test_what_an_installation_adds_includes_dependencies_and_groups() -> None:
    record = end(begun(HostRecord()), DOCKER)
    assert record.added == Installed(frozenset({"docker.io", "runc"}), frozenset(), frozenset({"docker"}))
    assert record.before is None


def test_a_second_provisioning_changes_nothing() -> None:
    record = end(begun(HostRecord()), DOCKER)
    assert end(begun(record, DOCKER, forward="1"), DOCKER) == record


def test_an_installation_that_was_killed_is_continued_with_what_was_there_before_it() -> None:
    killed = begun(HostRecord())
    half = DOCKER - Installed(frozenset({"docker.io"}), groups=frozenset({"docker"}))
    assert end(begun(killed, half, automatic=["runc"]), DOCKER) == end(begun(HostRecord()), DOCKER)


def test_what_others_install_after_a_killed_installation_did_not_come_with_this_collection() -> None:
    killed = begun(HostRecord())
    theirs = Installed(frozenset({"postgresql", "libpq5"}), frozenset({"postgres"}), frozenset({"postgres"}))
    record = begun(killed, DOCKER | theirs, automatic=["runc", "libpq5"])
    assert record.before is None
    assert record.added == Installed(frozenset({"docker.io"}))


def test_a_package_that_was_replaced_is_written_down() -> None:
    busybox = Installed(frozenset({"busybox"}))
    assert end(begun(HostRecord(), BARE | busybox), DOCKER).lost == {"busybox"}


def test_a_host_that_is_provisioned_again_is_not_one_whose_removal_has_begun() -> None:
    assert begun(HostRecord(engine_folder="/var/lib/docker"), DOCKER).engine_folder == ""


def test_what_the_operator_installs_later_did_not_come_with_this_collection() -> None:
    vim, haproxy = Installed(frozenset({"vim"})), Installed(frozenset({"haproxy"}))
    record = end(begun(HostRecord()), DOCKER)
    record = begin(record, DOCKER | vim, haproxy, {}, {})
    record = end(record, DOCKER | vim | haproxy)
    assert record.added.packages == {"docker.io", "runc", "haproxy"}


def test_a_group_that_is_created_without_a_package_is_added() -> None:
    users = Installed(groups=frozenset({"users-of-ours"}))
    record = begin(HostRecord(), BARE, users, {}, {})
    assert end(record, BARE | users).added == users


def test_a_host_that_has_all_packages_has_nothing_added() -> None:
    record = end(begun(HostRecord(), DOCKER), DOCKER | Installed(frozenset({"vim"})))
    assert record.added == Installed()


def test_a_provisioned_host_without_a_record_has_an_incomplete_one(tmp_path: Path) -> None:
    assert first_record(["ip nat"], find_roles(tmp_path)) == HostRecord(tables=("ip nat",))
    (tmp_path / MARKS["manager"]).parent.mkdir(parents=True)
    (tmp_path / MARKS["manager"]).touch()
    assert find_roles(tmp_path) == ["manager"]
    assert first_record([], find_roles(tmp_path)) == HostRecord(complete=False)


def test_a_record_is_read_as_it_was_written_and_only_root_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "state" / "before.json"
    assert read_record(path) is None
    record = begun(first_record(["ip nat"], []))
    write_record(record, path)
    assert read_record(path) == record
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("text", ["{", '{"version": 1, "engine": null}'])
def test_a_record_that_is_damaged_or_of_an_earlier_version_is_refused_and_never_to_be_removed(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "before.json"
    path.write_text(text)
    with pytest.raises(
        DamagedRecordError, match=r"before\.json cannot be read \(.*: give the host back with"
    ) as refused:
        read_record(path)
    assert ("(written before 0.2.0: see the changelog)" in str(refused.value)) is ("version" in text)
    assert "remove it" not in str(refused.value)

"""The maps of a running HAProxy, with a fake admin socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.haproxy import (
    Haproxy,
    HaproxyNotRunningError,
    MapChange,
)
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import GatewayError
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from tests.unit.haproxy import AdminSocket

APPS, SSH = Path("/maps/apps.map"), Path("/maps/ssh.map")


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[AdminSocket]:
    """Return a HAProxy with two maps."""
    running = AdminSocket(
        tmp_path / "socket", {str(APPS): [("one/web", "a@1@::1"), ("two/web", "b@2@::1")], str(SSH): []}
    )
    yield running
    running.close()


@pytest.fixture
def haproxy(tmp_path: Path) -> Haproxy:
    return Haproxy(str(tmp_path / "socket"))


def test_maps_are_read(admin: AdminSocket, haproxy: Haproxy) -> None:
    assert haproxy.read(APPS) == admin.maps[str(APPS)]
    assert haproxy.read(SSH) == []


@pytest.mark.usefixtures("admin")
def test_an_equal_map_has_no_changes(haproxy: Haproxy) -> None:
    assert haproxy.plan(APPS, {"two/web": "b@2@::1", "one/web": "a@1@::1"}) is None


def test_removals_precede_additions(admin: AdminSocket, haproxy: Haproxy) -> None:
    planned = haproxy.plan(APPS, {"one/web": "a@9@::1", "three/web": "c@3@::1"})
    ssh = haproxy.plan(SSH, {"31001": "c@4@::1"})
    assert planned is not None
    assert ssh is not None
    change, shown = planned
    assert change == MapChange(APPS, ("one/web", "two/web"), (("one/web", "a@9@::1"), ("three/web", "c@3@::1")))
    assert shown == Change(
        "HAProxy's apps.map", "one/web a@1@::1; two/web b@2@::1", "one/web a@9@::1; three/web c@3@::1"
    )
    admin.commands.clear()
    haproxy.apply([change, ssh[0]])
    assert [command.split(" ")[0] for command in admin.commands] == ["del", "del", "add", "add", "add"]
    assert admin.maps[str(APPS)] == [("one/web", "a@9@::1"), ("three/web", "c@3@::1")]
    assert admin.maps[str(SSH)] == [("31001", "c@4@::1")]


def test_a_duplicate_key_is_replaced_by_one(admin: AdminSocket, haproxy: Haproxy) -> None:
    admin.maps[str(APPS)] = [("one/web", "a@1@::1"), ("one/web", "b@2@::1")]
    planned = haproxy.plan(APPS, {"one/web": "a@1@::1"})
    assert planned is not None
    haproxy.apply([planned[0]])
    assert admin.maps[str(APPS)] == [("one/web", "a@1@::1")]


@pytest.mark.usefixtures("admin")
def test_an_unknown_map_is_an_error(haproxy: Haproxy) -> None:
    with pytest.raises(
        GatewayError, match=r"^HAProxy rejected the command: Unknown map identifier\. .*\. Run backendai\.cluster\."
    ):
        haproxy.read(Path("/maps/other.map"))


def test_a_rejected_change_is_an_error(admin: AdminSocket, haproxy: Haproxy) -> None:
    admin.answers["add"] = "Permission denied"
    with pytest.raises(GatewayError, match=r"^HAProxy rejected the command: Permission denied\. Run"):
        haproxy.apply([MapChange(SSH, (), (("31001", "x"),))])


def test_without_a_listening_socket_haproxy_is_not_running(tmp_path: Path, haproxy: Haproxy) -> None:
    with pytest.raises(HaproxyNotRunningError):
        haproxy.read(APPS)
    AdminSocket(tmp_path / "socket", {}).close()
    with pytest.raises(HaproxyNotRunningError):
        haproxy.read(APPS)

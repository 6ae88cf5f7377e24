"""Files, HAProxy maps and the table of a gateway follow its routes, from any state."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.template import trust_as_template

from ansible_collections.backendai.cluster.plugins.module_utils._gateway import routing
from ansible_collections.backendai.cluster.plugins.module_utils._gateway import store as storing
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.haproxy import Haproxy
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import GatewayError
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.routes import (
    Vacated,
    parse_routes,
)
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.routing import (
    RoutesRequest,
    RoutesResult,
    apply_routes,
)
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.store import GatewayStore
from tests.unit.builders import REPOSITORY
from tests.unit.gateway import GATEWAY, ONE, OTHER, ROUTE, TWO, Table, haproxy_of, provisioned
from tests.unit.haproxy import AdminSocket
from tests.unit.rendering import templar


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return provisioned(tmp_path / "state")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    return Table(partial(monkeypatch.setattr, routing))


@pytest.fixture
def admin(folder: Path) -> Iterator[AdminSocket]:
    running = haproxy_of(folder)
    yield running
    running.close()


def routed(folder: Path, *routes: dict[str, Any], check_mode: bool = False, **wish: Any) -> RoutesResult:
    request = RoutesRequest(
        parse_routes(list(routes)),
        wish.get("ended", ()),
        wish.get("purge", False),
        vacated=wish.get("vacated", ()),
    )
    return apply_routes(GatewayStore(str(folder)), Haproxy(str(folder / "socket")), request, check_mode=check_mode)


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_settings_that_the_role_writes_are_read(folder: Path) -> None:
    block = yaml.safe_load((REPOSITORY / "roles/gateway/tasks/main.yml").read_text())
    tasks = [task for entry in block for task in entry.get("block", [])]
    (content,) = (
        task["ansible.builtin.copy"]["content"] for task in tasks if task["name"] == "Write the gateway's settings"
    )
    known = {"__gateway": {"gateway": dataclasses.asdict(GATEWAY)}}
    (folder / "gateway.json").write_text(templar(known).template(trust_as_template(content)))
    assert GatewayStore(str(folder)).gateway() == GATEWAY


def test_a_route_is_in_files_maps_and_the_table(folder: Path, table: Table, admin: AdminSocket) -> None:
    outcome = routed(folder, ROUTE)
    port = outcome.links[0]["ssh"]["port"]
    place = f"{ONE}@30001@192.0.2.11@strip"
    assert admin.maps[str(folder / "maps/apps.map")] == [("train-llm/web", place)]
    assert admin.maps[str(folder / "maps/ssh.map")] == [(str(port), f"{ONE}@30002@192.0.2.11")]
    written = files(folder)
    assert written["maps/apps.map"] == f"train-llm/web {place}\n"
    assert written["maps/hosts.map"] == "train-llm--web.apps.example.org train-llm/web\n"
    assert written["maps/ssh.map"] == f"{port} {ONE}@30002@192.0.2.11\n"
    assert json.loads(written[f"routes/{ONE}.json"])["ssh_port"] == port
    assert written["table.nft"] == table.text
    assert f"elements = {{ {port} }}" in table.text
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in written if name != "gateway.json"} == {0o600}
    assert outcome.warnings == []


@pytest.mark.usefixtures("table", "admin")
def test_applying_again_changes_nothing(folder: Path) -> None:
    first = routed(folder, ROUTE)
    again = routed(folder, ROUTE)
    assert (again.changes, again.links) == ([], first.links)
    assert routed(folder).changes == []


def test_an_ended_session_loses_only_its_own_routes(folder: Path, table: Table, admin: AdminSocket) -> None:
    links = routed(folder, ROUTE, OTHER).links
    routed(folder, ended=[ONE])
    assert [name for name in files(folder) if name.startswith("routes/")] == [f"routes/{TWO}.json"]
    assert admin.maps[str(folder / "maps/apps.map")] == admin.maps[str(folder / "maps/hosts.map")] == []
    assert [key for key, _value in admin.maps[str(folder / "maps/ssh.map")]] == [str(links[1]["ssh"]["port"])]
    assert str(links[0]["ssh"]["port"]) not in table.text
    routed(folder, purge=True)
    assert [text for name, text in files(folder).items() if name.startswith(("routes/", "maps/"))] == [""] * 3


def test_another_run_that_does_not_end_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "LOCK_SECONDS", 0.05)
    with storing.GatewayStore(str(folder)).lock(), pytest.raises(GatewayError) as raised:
        routed(folder, ROUTE)
    assert str(raised.value).endswith(f" has held the lock {folder}/lock for more than 0.05 seconds; end it first.")


def test_a_dry_run_returns_the_same_changes_and_writes_none(folder: Path, table: Table, admin: AdminSocket) -> None:
    before = {name: text for name, text in files(folder).items() if name != "lock"}
    would = routed(folder, ROUTE, check_mode=True)
    assert {name: text for name, text in files(folder).items() if name != "lock"} == before
    assert (table.text, [command for command in admin.commands if not command.startswith("show")]) == ("", [])
    assert routed(folder, ROUTE) == would
    subjects = [change.subject for change in would.changes]
    assert subjects[0] == f"file {folder}/routes/{ONE}.json"
    assert subjects[-3:] == ["HAProxy's apps.map", "HAProxy's hosts.map", "HAProxy's ssh.map"]
    assert "firewall table" in subjects


def test_lost_or_changed_state_is_restored(folder: Path, table: Table, admin: AdminSocket) -> None:
    routed(folder, ROUTE)
    whole, text = files(folder), table.text
    (folder / "maps/apps.map").write_text("x y\n")
    (folder / "table.nft").unlink()
    admin.maps[str(folder / "maps/apps.map")] = [("train-llm/web", f"{TWO}@1@::1"), ("stray/web", f"{TWO}@1@::1")]
    table.text = ""
    healed = routed(folder)
    assert [change.subject for change in healed.changes] == [
        f"file {folder}/maps/apps.map",
        f"file {folder}/table.nft",
        "firewall table",
        "HAProxy's apps.map",
    ]
    assert (files(folder), table.text) == (whole, text)
    assert admin.maps[str(folder / "maps/apps.map")] == [("train-llm/web", f"{ONE}@30001@192.0.2.11@strip")]


@pytest.mark.usefixtures("table")
def test_without_haproxy_only_files_are_written(folder: Path) -> None:
    assert routed(folder).warnings == []
    outcome = routed(folder, ROUTE)
    assert outcome.warnings == [routing.NOT_RUNNING]
    assert "train-llm/web" in files(folder)["maps/apps.map"]


@pytest.mark.usefixtures("table", "admin")
def test_a_host_that_is_not_a_gateway_is_an_error(tmp_path: Path, folder: Path) -> None:
    message = r"is not ready \(No such file or directory\): run backendai\.cluster\.provision_gateways on this host\.$"
    with pytest.raises(GatewayError, match=message):
        routed(tmp_path / "nowhere")
    (folder / "gateway.json").unlink()
    with pytest.raises(GatewayError, match=message):
        routed(folder)


UNREADABLE = {
    "text": "x",
    "nothing": "{}",
    "no version": json.dumps({"id": ONE, "name": "train-llm"}),
    "parts": json.dumps({"version": 3, "id": ONE}),
    "a list": "[]",
    "newer": json.dumps({"version": 4, "id": ONE, "name": "train-llm"}),
    "another session": json.dumps({"version": 3, "id": TWO, "name": "train-llm"}),
    "two lines": json.dumps({"version": 3, "id": ONE, "name": "a\nb"}),
    "no address": json.dumps({"version": 3, "id": ONE, "name": "train-llm", "ssh": {"address": "x y", "port": 1}}),
    "no port": json.dumps({"id": ONE, "name": "train-llm", "ssh_port": 0}),
}


@pytest.mark.usefixtures("table", "admin")
@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_damaged_route_is_left_out_and_kept_until_it_is_replaced(folder: Path, content: str) -> None:
    path = folder / "routes" / f"{ONE}.json"
    path.write_text(content)
    (warning,) = routed(folder, OTHER).warnings
    assert warning.startswith(f"{path} is damaged (")
    assert warning.endswith(
        "run backendai.cluster.schedule_sessions, which writes the routes of all sessions that run."
    )
    assert (path.read_text(), "31" in files(folder)["maps/ssh.map"]) == (content, True)
    assert routed(folder, ROUTE).warnings == []
    assert json.loads(path.read_text())["name"] == "train-llm"


@pytest.mark.usefixtures("table", "admin")
@pytest.mark.parametrize(
    "options",
    [{"ended": [ONE]}, {"vacated": [Vacated(ONE, "192.0.2.66")]}, {"purge": True}],
    ids=["ended", "vacated", "purged"],
)
def test_a_damaged_route_of_a_session_that_has_ended_is_removed(folder: Path, options: dict[str, Any]) -> None:
    path = folder / "routes" / f"{ONE}.json"
    path.write_text("x")
    assert routed(folder, **options).warnings == []
    assert not path.exists()


@pytest.mark.usefixtures("table", "admin")
@pytest.mark.parametrize(
    "content",
    [
        *("x", "{}", '{"id": 1}', "[]"),
        json.dumps({"version": 3, **dataclasses.asdict(GATEWAY), "first_ssh_port": 0}),
        json.dumps({"version": 3, **dataclasses.asdict(GATEWAY), "last_ssh_port": 1 << 40}),
        json.dumps({"version": 3, **dataclasses.asdict(GATEWAY), "hostname": "a b"}),
    ],
)
def test_damaged_settings_are_named(folder: Path, content: str) -> None:
    (folder / "gateway.json").write_text(content)
    with pytest.raises(GatewayError, match=r"gateway\.json is damaged \(.*\): remove it, and run"):
        routed(folder)


@pytest.mark.usefixtures("table", "admin")
def test_removed_routes_are_confirmed_except_in_check_mode(folder: Path) -> None:
    routed(folder, ROUTE, OTHER)
    wish: dict[str, Any] = {"ended": [ONE], "vacated": [Vacated(TWO, "192.0.2.12")]}
    assert routed(folder, check_mode=True, **wish).unrouted == [ONE, TWO]
    assert routed(folder, **wish).unrouted == [ONE, TWO]
    assert [name for name in files(folder) if name.startswith("routes/")] == []
    assert routed(folder).unrouted == []


@pytest.mark.usefixtures("table", "admin")
def test_an_agent_cannot_remove_the_route_to_another_one(folder: Path) -> None:
    routed(folder, ROUTE)
    assert routed(folder, vacated=[Vacated(ONE, "192.0.2.66")]).changes == []
    assert routed(folder, vacated=[Vacated(ONE, "192.0.2.11")]).changes


@pytest.mark.usefixtures("table", "admin")
def test_a_run_that_read_its_agents_before_the_end_adds_no_route(folder: Path) -> None:
    routed(folder, ended=[ONE])
    late = routed(folder, ROUTE, OTHER)
    assert [link["id"] for link in late.links] == [TWO]
    assert late.warnings == [f"routes: session train-llm ({ONE}) has ended, so it gets no route."]
    assert [name for name in files(folder) if name.startswith("routes/")] == [f"routes/{TWO}.json"]
    assert [link["id"] for link in routed(folder, ROUTE, purge=True).links] == [ONE]
    assert routed(folder, ROUTE).warnings == []


@pytest.mark.usefixtures("table", "admin")
def test_an_ended_session_is_forgotten_after_a_day(folder: Path) -> None:
    routed(folder, ended=[ONE, "not an id"])
    assert [path.name for path in (folder / "ended").iterdir()] == [ONE]
    os.utime(folder / "ended" / ONE, (1, 1))
    routed(folder, ended=[TWO])
    assert [path.name for path in (folder / "ended").iterdir()] == [TWO]

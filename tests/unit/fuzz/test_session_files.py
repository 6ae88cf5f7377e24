"""Whatever the files of an agent or a gateway contain, the other sessions and routes are used, and no file is lost."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import state as firewall_state
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.connections import (
    ConnectionLimit,
    read_connection_limit,
    save_connection_limit,
)
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.egress import (
    EgressPolicy,
    Service,
    save_egress,
)
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import AllowRule, Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState, Trial
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.sync import render_ruleset
from ansible_collections.backendai.cluster.plugins.module_utils._gateway import routing
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.haproxy import Haproxy
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.routes import parse_routes
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.routing import RoutesRequest, apply_routes
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.store import GatewayStore
from ansible_collections.backendai.cluster.plugins.module_utils._host.mount_table import FolderOnMount
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import CorruptStateError, Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import EXPECTED, ClusterError
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.module_utils._session.container_states import container_states
from ansible_collections.backendai.cluster.plugins.module_utils._session.reconcile import restore
from ansible_collections.backendai.cluster.plugins.module_utils._session.refused_starts import (
    find_refused,
    note_refused,
)
from tests.unit.agent import engine, kernel, store
from tests.unit.builders import SESSION_ID, held, own_labels, plan
from tests.unit.fake_docker import FakeDocker
from tests.unit.fake_network import FakeNetwork
from tests.unit.fuzz.mutations import assert_sentence, damaged, damaged_text, fuzz
from tests.unit.gateway import ONE, OTHER, ROUTE, TWO, Table, provisioned

__all__ = ["engine", "kernel", "store"]

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
PLAN = plan({"agent1": 2, "agent2": 1}, apps=[{"name": "web", "port": 80}], mounts=[{"source": "/a", "target": "/b"}])
OTHERS = dataclasses.replace(plan({"agent1": 1}), id=OTHER_ID, name="other")
files = settings(fuzz, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("expires_at", [None, 9e12], ids=["committed", "claimed"])
def test_any_session_file_is_a_session_or_left_out(
    store: Store, engine: FakeDocker, kernel: FakeNetwork, expires_at: float | None
) -> None:
    store.save(held(PLAN, expires_at=expires_at))
    store.save(held(OTHERS))
    path = store.folder(SESSION_ID) / "session.json"
    client: Any = engine

    @files
    @given(damaged_text(json.loads(path.read_text())))
    def try_all(content: bytes) -> None:
        # A claim that has expired was removed.
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        kernel.links, kernel.table = set(), ""
        readable, errors = store.load_all()
        assert len(readable) + len(errors) == 2
        assert held(OTHERS) in readable
        for error in errors:
            assert_sentence(error)
            assert str(path) in str(error)
        render_ruleset(store, None).encode()
        try:
            store.session(SESSION_ID)
        except ClusterError as error:
            assert_sentence(error)
        _changes, failures = restore(store, lambda: client, start=False)
        for failure in failures:
            assert_sentence(failure)
        assert kernel.table
        for session in readable:
            container_states(client, store, session, {})
            assert session.slots is not None
            assert session.kernels is not None
            store.started_commands(session)
        assert any(session.expired for session in readable) or path.read_bytes() == content

    try_all()


def test_any_other_file_of_an_agent_is_used_or_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firewall_state, "login_ports", set)
    confirmed = Firewall(
        ("192.0.2.0/24", "2001:db8::/64"),
        ("198.51.100.7/32",),
        ("192.0.2.1/32",),
        (22, 2222),
        (AllowRule("tcp", ("9100", "9200-9299"), ("10.0.0.0/8",)), AllowRule("any", (), ("10.0.0.0/8",))),
        ("eth0",),
    )
    FirewallState(store).save(confirmed, Trial(None, "n", 1.0, "boot", "a 1 b 22"))
    save_egress(store, EgressPolicy(("10.0.0.0/8",), (Service("tcp", ("22",), ("10.0.0.0/8",)),)))
    save_connection_limit(store, ConnectionLimit(100))
    services = '[{"kind": "NFS", "address": "192.0.2.7", "mount": "/mnt/a", "tcp": ["111", "635-640"], "udp": []}]'
    store.storage_file.write_text(f'{{"version": 3, "services": {services}, "unknown": [], "asked_at": 5.0}}')
    paths = [store.firewall_file, store.firewall_copy, store.egress_file, store.limits_file, store.storage_file]
    contents = [path.read_text() for path in paths]

    @files
    @given(*(damaged_text(json.loads(content)) for content in contents))
    def try_all(firewall: bytes, copy: bytes, egress: bytes, limits: bytes, storage: bytes) -> None:
        for path, content in zip(paths, (firewall, copy, egress, limits, storage), strict=True):
            path.write_bytes(content)
        state = FirewallState(store)
        # A copy without a firewall says that there was none.
        assert state.active() is not None or not state.damage or b"null" in copy
        assert_sentence(state.damage or "none")
        render_ruleset(store, state.active()).encode()
        try:
            assert read_connection_limit(store).connections >= 0
        except CorruptStateError as error:
            assert_sentence(error)

    try_all()


def test_any_file_of_mounts_is_used_or_reported(store: Store) -> None:
    store.save(held(PLAN))
    store.save_mount_sources(SESSION_ID, {"/a": FolderOnMount("/real/a", "/real", "nfs4", "files:/a")})
    path = store.folder(SESSION_ID) / "mounts.json"

    @files
    @given(damaged_text(json.loads(path.read_text())))
    def try_all(content: bytes) -> None:
        path.write_bytes(content)
        try:
            assert all(folder.description for folder in store.mount_sources(SESSION_ID).values())
        except CorruptStateError as error:
            assert_sentence(error)

    try_all()


def test_any_note_of_refused_starts_is_used_or_none(store: Store) -> None:
    client: Any = FakeDocker()
    store.save(held(PLAN))
    client.made.append({"Id": "1", "Names": ["/main1"], "Labels": own_labels("main1"), "State": "exited"})
    store.container_ids(SESSION_ID).record("main1", "1")
    note_refused(client, store, held(PLAN))
    path = store.folder(SESSION_ID) / "refused.json"
    assert [*find_refused(client, store, held(PLAN))] == ["main1"]

    @files
    @given(damaged_text(json.loads(path.read_text())))
    def try_all(content: bytes) -> None:
        path.write_bytes(content)
        assert {*find_refused(client, store, held(PLAN))} <= {"main1"}

    try_all()


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a gateway without a running HAProxy."""
    Table(lambda name, value: monkeypatch.setattr(routing, name, value))
    folder = provisioned(tmp_path / "gateway")
    apply(folder, [ROUTE, OTHER])
    return folder


def apply(folder: Path, routes: list[Any], ended: tuple[str, ...] = ()) -> routing.RoutesResult:
    request = RoutesRequest(parse_routes(routes), ended, False)
    return apply_routes(GatewayStore(str(folder)), Haproxy(str(folder / "none")), request, check_mode=False)


def test_any_file_of_a_gateway_is_used_or_left_out(gateway: Path) -> None:
    path = gateway / "routes" / f"{ONE}.json"
    settings_file = gateway / "gateway.json"
    whole = settings_file.read_text()

    @files
    @given(damaged_text(json.loads(path.read_text())))
    def try_routes(content: bytes) -> None:
        path.write_bytes(content)
        result = apply(gateway, [OTHER])
        assert [link["id"] for link in result.links] == [TWO]
        for warning in result.warnings:
            assert_sentence(warning)
        lines = [line for name in ("apps", "hosts", "ssh") for line in (gateway / "maps" / f"{name}.map").open()]
        assert all(len(line.split()) == 2 for line in lines), lines
        # A route is only rewritten if it could be read.
        assert path.exists()
        assert path.read_bytes() == content or len(result.warnings) < 2

    @files
    @given(damaged_text(json.loads(whole)))
    def try_settings(content: bytes) -> None:
        settings_file.write_text(whole)
        apply(gateway, [OTHER])
        settings_file.write_bytes(content)
        try:
            apply(gateway, [OTHER])
        except (ClusterError, ValidationError) as error:
            assert_sentence(error)

    try_routes()
    try_settings()


def test_any_requested_routes_are_applied_or_refused(gateway: Path) -> None:
    @files
    @given(damaged([ROUTE, OTHER]))
    def try_all(routes: Any) -> None:
        before = sorted(path.read_text() for path in (gateway / "routes").iterdir())
        try:
            apply(gateway, routes)
        except EXPECTED as error:
            assert_sentence(error)
            assert sorted(path.read_text() for path in (gateway / "routes").iterdir()) == before

    try_all()

"""Registry mirrors in the configuration of an engine, beside what is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import mirrors
from ansible_collections.backendai.cluster.plugins.module_utils._docker.mirrors import (
    MirrorError,
    find_configuration,
    parse_mirrors,
    set_mirrors,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.engine_settings import (
    EngineSettings,
    parse_engine_settings,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.host_record import (
    HostRecord,
    read_record,
    write_record,
)

OURS, THEIRS = "https://mirror.example.com:5000", "http://cache.example.net"


class Engine:
    """An engine that reads the mirrors in its configuration when it is told to, unless it is stubborn."""

    def __init__(self, path: Path) -> None:
        self.path, self.stubborn, self.reloads = path, False, 0
        self.mirrors: list[str] = []

    def reload(self) -> bool:
        self.reloads += 1
        if not self.stubborn:
            there = json.loads(self.path.read_text())
            if "registry-mirrors" in there:
                self.mirrors = [f"{mirror.rstrip('/')}/" for mirror in there["registry-mirrors"]]
        return True

    def info(self) -> dict[str, Any]:
        return {"RegistryConfig": {"Mirrors": self.mirrors}}


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Return the path of the record of a host that is being provisioned."""
    path = tmp_path / "before.json"
    write_record(HostRecord(sysctls={"net.ipv4.ip_forward": "0"}), path)
    return path


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Return an engine with a configuration in a folder that is not there."""
    made = Engine(tmp_path / "docker" / "daemon.json")
    monkeypatch.setattr(mirrors, "RELOAD_SECONDS", 0.05)
    monkeypatch.setattr(mirrors, "_reload", made.reload)
    monkeypatch.setattr(mirrors, "read_engine_settings", lambda: EngineSettings(str(made.path)))
    return made


def configure(engine: Engine, text: str) -> None:
    """Let the operator of the host write the engine's configuration."""
    engine.path.parent.mkdir(exist_ok=True)
    engine.path.write_text(text)


def change(engine: Any, record: Path, *wanted: str, check_mode: bool = False) -> list[str]:
    """Set mirrors, and return the changes as lines."""
    made = set_mirrors(engine, [*wanted], check_mode=check_mode, record_path=record)
    return [f"{each.before} -> {each.after}" for each in made]


def test_mirrors_are_added_without_a_restart_and_taken_away_again(engine: Engine, record: Path) -> None:
    before = read_record(record)
    assert change(engine, record, OURS) == [f"None -> {OURS}"]
    assert json.loads(engine.path.read_text()) == {"registry-mirrors": [OURS]}
    assert engine.path.stat().st_mode & 0o777 == 0o644
    assert change(engine, record, OURS) == []
    assert engine.reloads == 1
    assert change(engine, record) == [f"{OURS} -> None"]
    assert not engine.path.parent.exists()
    assert (engine.mirrors, read_record(record)) == ([], before)
    assert change(engine, record) == []


def test_what_the_operator_has_stays_and_is_then_as_it_was_to_the_letter(engine: Engine, record: Path) -> None:
    text = f'{{"debug":true,\n   "registry-mirrors": ["{THEIRS}/"]}}'
    configure(engine, text)
    engine.path.chmod(0o640)
    assert change(engine, record, OURS) == [f"{THEIRS}/ -> {OURS}, {THEIRS}/"]
    assert json.loads(engine.path.read_text()) == {"debug": True, "registry-mirrors": [OURS, f"{THEIRS}/"]}
    assert engine.path.stat().st_mode & 0o777 == 0o640
    change(engine, record)
    assert engine.path.read_text() == text


def test_what_the_operator_has_changed_since_stays(engine: Engine, record: Path) -> None:
    change(engine, record, OURS)
    configure(engine, json.dumps({"debug": True, "registry-mirrors": [OURS, THEIRS]}))
    change(engine, record)
    assert json.loads(engine.path.read_text()) == {"debug": True, "registry-mirrors": [THEIRS]}


def test_mirror_that_the_operator_had_is_not_taken_away(engine: Engine, record: Path) -> None:
    configure(engine, json.dumps({"registry-mirrors": [THEIRS]}))
    assert change(engine, record, THEIRS) == []
    change(engine, record, OURS, THEIRS)
    change(engine, record)
    assert json.loads(engine.path.read_text()) == {"registry-mirrors": [THEIRS]}


def test_other_mirrors_replace_those_of_before(engine: Engine, record: Path) -> None:
    change(engine, record, OURS)
    change(engine, record, "https://b.example.com", "https://a.example.com")
    assert json.loads(engine.path.read_text()) == {
        "registry-mirrors": ["https://b.example.com", "https://a.example.com"]
    }


def test_check_mode_changes_nothing(engine: Engine, record: Path) -> None:
    before = record.read_text()
    assert change(engine, record, OURS, check_mode=True) == [f"None -> {OURS}"]
    assert (engine.path.exists(), engine.reloads, record.read_text()) == (False, 0, before)


def test_without_mirrors_a_configuration_is_not_even_read(engine: Engine, record: Path) -> None:
    configure(engine, "{")
    assert change(engine, record) == []


@pytest.mark.parametrize("text", [None, '{"debug": true}'])
def test_what_the_engine_does_not_take_is_undone(engine: Engine, record: Path, text: str | None) -> None:
    if text:
        configure(engine, text)
    before = read_record(record)
    engine.stubborn = True
    with pytest.raises(MirrorError) as refused:
        change(engine, record, OURS)
    undone = f"the engine did not take them, so {engine.path} is as it was"
    assert str(refused.value) == f"agent_registry_mirrors: {undone}: journalctl -u docker.service says why"
    assert (engine.path.read_text() if text else engine.path.exists()) == (text or False)
    assert (engine.reloads, read_record(record)) == (2, before)


def test_engine_that_cannot_be_told_is_left_as_it_is(
    engine: Engine, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "_reload", lambda: False)
    with pytest.raises(MirrorError):
        change(engine, record, OURS)
    assert not engine.path.exists()


def test_mirrors_of_an_engine_that_is_gone_are_taken_away(engine: Engine, record: Path) -> None:
    change(engine, record, OURS)
    change(None, record)
    assert not engine.path.exists()


def test_run_that_was_killed_before_it_wrote_is_cleared_up(engine: Engine, record: Path) -> None:
    change(engine, record, OURS)
    engine.path.unlink()
    assert change(engine, record) == []
    recorded = read_record(record)
    assert recorded is not None
    assert recorded.engine is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON ("),
        ("[]", "has no settings in the form of the engine: correct it first"),
        ('{"registry-mirrors": "x"}', "has no settings in the form of the engine: correct it first"),
        ('{"registry-mirrors": [1]}', "has no settings in the form of the engine: correct it first"),
    ],
)
def test_configuration_that_is_none_is_not_touched(engine: Engine, record: Path, text: str, problem: str) -> None:
    configure(engine, text)
    with pytest.raises(MirrorError) as refused:
        change(engine, record, OURS)
    assert str(refused.value).startswith(f"agent_registry_mirrors: {engine.path} {problem}")
    assert engine.path.read_text() == text


def test_configuration_that_cannot_be_read_is_said(engine: Engine, record: Path) -> None:
    engine.path.mkdir(parents=True)
    with pytest.raises(MirrorError, match="cannot be read"):
        change(engine, record, OURS)


def test_empty_configuration_is_filled_and_emptied(engine: Engine, record: Path) -> None:
    configure(engine, "\n")
    change(engine, record, OURS)
    change(engine, record)
    assert engine.path.read_text() == "\n"


@pytest.mark.parametrize(
    "mirror",
    [
        "mirror.example.com",
        "ftp://m",
        "https://m/path",
        "https://user:secret@m",
        "https://m?x=1",
        "https://m:123456",
        "https://",
    ],
)
def test_mirror_with_which_no_engine_starts_is_refused(mirror: str) -> None:
    with pytest.raises(MirrorError) as refused:
        parse_mirrors([OURS, mirror])
    assert str(refused.value).startswith("agent_registry_mirrors: ")


def test_mirrors_are_compared_without_their_slash() -> None:
    assert parse_mirrors([f"{OURS}/", OURS, "http://[2001:db8::1]:80"]) == [OURS, "http://[2001:db8::1]:80"]


def test_engine_with_mirrors_on_its_command_line_gets_no_others() -> None:
    settings = parse_engine_settings(["dockerd", "--registry-mirror", THEIRS, "--config-file=/srv/engine.json"])
    with pytest.raises(MirrorError, match=r"does not start with both: move that to /srv/engine\.json$"):
        find_configuration(settings, [OURS])
    assert find_configuration(settings, []) == "/srv/engine.json"

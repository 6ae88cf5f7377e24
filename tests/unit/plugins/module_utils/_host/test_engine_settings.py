"""The settings of an engine, by its command line and its file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import engine_settings
from ansible_collections.backendai.cluster.plugins.module_utils._host.engine_settings import (
    DATA_ROOT,
    EngineSettings,
    engine_arguments,
    parse_engine_settings,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.processes import PROC


def settings(folder: Path, text: str, *arguments: str) -> EngineSettings:
    """Return the settings of an engine with a file of this text."""
    (folder / "engine.json").write_text(text)
    return parse_engine_settings(
        ["/usr/sbin/dockerd", "-H", "fd://", f"--config-file={folder}/engine.json", *arguments]
    )


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (["--config-file=FILE"], "/srv/named"),
        (["--config-file", "FILE", "--iptables=false"], "/srv/named"),
        (["--debug", "--config-file"], DATA_ROOT),
        (["-H", "fd://"], "/srv/usual"),
        ([], "/srv/usual"),
    ],
)
def test_the_file_is_where_the_engine_has_it(
    arguments: list[str], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("named", "usual"):
        (tmp_path / f"{name}.json").write_text(f'{{"data-root": "/srv/{name}"}}')
    monkeypatch.setattr(engine_settings, "FILE", f"{tmp_path}/usual.json")
    words = [word.replace("FILE", f"{tmp_path}/named.json") for word in arguments]
    assert parse_engine_settings(["dockerd", *words] if words else []).data_root == folder


@pytest.mark.parametrize(
    ("text", "flag", "adds"),
    [
        ("{}", "--iptables=false", False),
        ("{}", "--iptables=0", False),
        ("{}", "--iptables=true", True),
        ("{}", "--iptables", True),
        ("{}", "--ip6tables=false", True),
        ('{"iptables": false}', "--debug", False),
        ('{"iptables": true}', "--debug", True),
    ],
)
def test_whether_the_engine_adds_rules_is_on_its_command_line_or_in_its_file(
    text: str, flag: str, adds: bool, tmp_path: Path
) -> None:
    assert settings(tmp_path, text, flag).adds_rules is adds


@pytest.mark.parametrize(
    ("text", "arguments", "folder"),
    [
        ("{}", [], "/var/lib/docker"),
        ('{"data-root": "/srv/a"}', [], "/srv/a"),
        ('{"graph": "/srv/a"}', [], "/srv/a"),
        ("{}", ["--data-root", "/srv/b"], "/srv/b"),
        ("{}", ["--data-root=/srv/b"], "/srv/b"),
        ("{}", ["-g", "/srv/b"], "/srv/b"),
        ("{}", ["--graph=/srv/b"], "/srv/b"),
    ],
)
def test_data_is_where_the_engine_is_told_to_keep_it(
    text: str, arguments: list[str], folder: str, tmp_path: Path
) -> None:
    assert settings(tmp_path, text, *arguments).data_root == folder


def test_lists_of_the_command_line_and_the_file_add_up(tmp_path: Path) -> None:
    found = settings(tmp_path, '{"dns": ["192.0.2.3"]}', "--dns=192.0.2.1", "--dns", "192.0.2.2")
    assert found.name_servers == ("192.0.2.1", "192.0.2.2", "192.0.2.3")


@pytest.mark.parametrize("text", ["{", "[]", "", '{"dns": 5}', "\x00"])
def test_a_damaged_file_has_no_settings(text: str, tmp_path: Path) -> None:
    assert settings(tmp_path, text) == EngineSettings()


def test_the_command_line_is_that_of_the_running_engine(tmp_path: Path) -> None:
    program, pid_file = tmp_path / "dockerd", tmp_path / "docker.pid"
    program.write_text("#!/bin/sh\necho started\nread line\n")
    program.chmod(0o755)
    command = [str(program), "--iptables=false", "--data-root", "/srv/engine"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        assert engine.stdout.readline() == "started\n"
        pid_file.write_text(f"{engine.pid}\n")
        found = parse_engine_settings(engine_arguments(PROC, pid_file))
        engine.communicate("\n")
    assert (found.adds_rules, found.data_root) == (False, "/srv/engine")


class Processes:
    """The files of processes below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.add("self", "python3")

    def add(self, pid: str, name: str, *arguments: str, namespace: str = "pid:[1]") -> None:
        (self.folder / pid / "ns").mkdir(parents=True)
        (self.folder / pid / "comm").write_text(f"{name}\n")
        (self.folder / pid / "cmdline").write_bytes("".join(f"{word}\0" for word in (name, *arguments)).encode())
        (self.folder / pid / "ns" / "pid").symlink_to(namespace)


def test_engines_in_containers_are_others(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.add("70", "dockerd", "--inner", namespace="pid:[2]")
    processes.add("900", "dockerd", "--outer")
    processes.add("9", "sshd")
    assert engine_arguments(tmp_path, tmp_path / "none") == ["dockerd", "--outer"]


@pytest.mark.parametrize("left", ["9", "12345", "", "x"], ids=["another program", "nobody", "nothing", "no number"])
def test_a_file_that_a_killed_engine_has_left_is_passed_over(left: str, tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.add("9", "sshd")
    assert engine_arguments(tmp_path, tmp_path / "docker.pid") == []
    (tmp_path / "docker.pid").write_text(left)
    processes.add("900", "dockerd", "--outer")
    assert engine_arguments(tmp_path, tmp_path / "docker.pid") == ["dockerd", "--outer"]

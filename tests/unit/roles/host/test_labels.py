"""The script by which SELinux knows our own folders, with stand-ins that answer as semanage and restorecon do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.unit.builders import REPOSITORY

SCRIPT = REPOSITORY / "roles/host/files/label"
#: Rules of the host are lines: the expression, for what kinds of files, and the label.
SEMANAGE = """\
echo "$@" >> "$HOST/asked"
case "$1 $2" in
    "fcontext --list") cat "$HOST/rules" ;;
    "fcontext --add") echo "$5    all files    system_u:object_r:$4:s0" >> "$HOST/rules" ;;
    "fcontext --delete") grep -vF "$3 " "$HOST/rules" > "$HOST/rules.new"; mv "$HOST/rules.new" "$HOST/rules" ;;
esac
"""
#: As the real one with -v, prints only what it changes.
RESTORECON = '[ -e "$HOST/labelled$3" ] || { mkdir -p "$HOST/labelled$3"; echo "Relabeled $3"; }\n'


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "rules").write_text("/srv(/.*)?    all files    system_u:object_r:public_content_t:s0 \n")
    for name, text in (("selinuxenabled", "exit 0\n"), ("semanage", SEMANAGE), ("restorecon", RESTORECON)):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def run(host: Path, type_: str, *folders: str) -> subprocess.CompletedProcess[str]:
    """Run the script as the role does."""
    environment = {"PATH": f"{host / 'bin'}:/usr/bin:/bin", "HOST": str(host), "SWITCHES": str(host / "switches")}
    command = ["sh", "-c", SCRIPT.read_text(), "label", type_, *folders]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def label(host: Path, type_: str, *folders: str) -> str:
    """Run it, and return what it prints."""
    done = run(host, type_, *folders)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rules(host: Path) -> list[str]:
    return [line.split("    ")[0] for line in (host / "rules").read_text().splitlines()]


def test_our_folders_get_a_rule_and_their_labels_once(host: Path) -> None:
    first = label(host, "container_file_t", "/var/lib/backendai/kit", "/data/homes-1.5")
    assert first.splitlines() == [
        "/var/lib/backendai/kit(/.*)?",
        "Relabeled /var/lib/backendai/kit",
        r"/data/homes-1\.5(/.*)?",
        "Relabeled /data/homes-1.5",
    ]
    assert rules(host) == ["/srv(/.*)?", "/var/lib/backendai/kit(/.*)?", r"/data/homes-1\.5(/.*)?"]
    assert label(host, "container_file_t", "/var/lib/backendai/kit", "/data/homes-1.5") == ""


@pytest.mark.parametrize("confines", [True, False])
def test_haproxy_gets_its_folders_where_the_policy_confines_it(host: Path, confines: bool) -> None:
    if confines:
        (host / "switches/haproxy_connect_any").mkdir(parents=True)
    label(host, "haproxy_var_lib_t", "/run/backendai-gateway")
    assert rules(host)[1:] == (["/run/backendai-gateway(/.*)?"] if confines else [])


def test_a_folder_behind_a_link_gets_them_itself(host: Path) -> None:
    (host / "homes").mkdir()
    (host / "link").symlink_to(host / "homes")
    label(host, "container_file_t", str(host / "link"))
    assert rules(host)[1:] == [f"{host}/homes(/.*)?"]


def test_rules_of_our_folders_are_forgotten_and_others_stay(host: Path) -> None:
    label(host, "container_file_t", "/var/lib/backendai/kit")
    assert label(host, "", "/var/lib/backendai/kit", "/var/lib/backendai/sessions") == "/var/lib/backendai/kit(/.*)?\n"
    assert rules(host) == ["/srv(/.*)?"]
    assert label(host, "", "/var/lib/backendai/kit") == ""


@pytest.mark.parametrize("type_", ["container_file_t", ""])
def test_a_host_without_selinux_needs_no_program_of_it(host: Path, type_: str) -> None:
    for name in ("selinuxenabled", "semanage", "restorecon"):
        (host / "bin" / name).unlink()
    assert label(host, type_, "/var/lib/backendai/kit") == ""


@pytest.mark.parametrize(
    ("semanage", "said"),
    [
        (None, "This host has SELinux and no semanage: install policycoreutils-python-utils.\n"),
        ('echo "ValueError: the policy store cannot be read" >&2\nexit 1\n', "the policy store cannot be read"),
        (SEMANAGE.replace('"fcontext --add")', '"fcontext --add") echo "invalid type" >&2; exit 1;'), "invalid type"),
    ],
    ids=["missing", "no store", "refused"],
)
def test_rules_that_cannot_be_made_are_an_error(host: Path, semanage: str | None, said: str) -> None:
    (host / "bin/semanage").unlink()
    if semanage:
        (host / "bin/semanage").write_text(f"#!/bin/sh\n{semanage}")
        (host / "bin/semanage").chmod(0o755)
    failed = run(host, "container_file_t", "/srv/x")
    assert failed.returncode != 0
    assert said in failed.stderr


def test_a_removal_needs_no_semanage(host: Path) -> None:
    (host / "bin/semanage").unlink()
    assert label(host, "", "/var/lib/backendai/kit") == ""


def test_no_folder_of_users_is_labelled() -> None:
    texts = "".join(path.read_text() for path in (REPOSITORY / "roles").rglob("*.yml"))
    assert texts.count("tasks_from: labels") == texts.count("__host_labelled: ")
    assert {line.strip() for line in texts.splitlines() if "__host_labelled: " in line} == {
        '__host_labelled: "{{ __agent_labelled }}"',
        '__host_labelled: "{{ __gateway_labelled }}"',
    }

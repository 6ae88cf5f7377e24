"""The script by which SELinux knows our own folders, with stand-ins that answer as semanage and restorecon do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unit.builders import REPOSITORY

CONTAINER = "container_file_t"
SCRIPT = REPOSITORY / "roles/host/files/label"
#: Rules of the host are lines: the expression, for what kinds of files, and the label. BEHIND is behind /home.
SEMANAGE = """\
case "$1 $2" in
    "fcontext --list") cat "$HOST/rules" ;;
    "fcontext --add")
        case $5 in "${BEHIND:-none}"/*)
            other=/home${5#"$BEHIND"} rule="equivalency rule '$BEHIND /home'"
            echo "ValueError: File spec $5 conflicts with $rule; Try adding '$other' instead" >&2
            exit 1 ;;
        esac
        printf '%-50s %-18s %s \\n' "$5" "all files" "system_u:object_r:$4:s0" >> "$HOST/rules" ;;
    "fcontext --delete")
        grep -qF "$3 " "$HOST/rules" || { echo "ValueError: File context for $3 is not defined" >&2; exit 1; }
        grep -vF "$3 " "$HOST/rules" > "$HOST/rules.new"
        mv "$HOST/rules.new" "$HOST/rules" ;;
esac
"""
#: As the real one with -v: prints only what it changes, and fails for what is not there. -R is for what is in it, too.
RESTORECON = """\
for path; do
    case $path in -R) deep=1; continue ;; -v) continue ;; esac
    [ -e "$path" ] || { echo "restorecon: lstat($path) failed: No such file or directory" >&2; exit 255; }
    [ -n "$deep" ] || depth="-maxdepth 0"
    find "$path" $depth | sort | while read -r found; do
        grep -qsxF "$found" "$HOST/labelled" || { echo "$found" >> "$HOST/labelled"; echo "Relabeled $found"; }
    done
done
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    for name in ("bin", "kit/bin", "homes/sessions/s1/home"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "rules").write_text("/srv(/.*)?    all files    system_u:object_r:public_content_t:s0 \n")
    for name, text in (("selinuxenabled", "exit 0\n"), ("semanage", SEMANAGE), ("restorecon", RESTORECON)):
        write(tmp_path, name, text)
    return tmp_path


def write(host: Path, name: str, text: str) -> None:
    (host / "bin" / name).write_text(f"#!/bin/sh\n{text}")
    (host / "bin" / name).chmod(0o755)


def run(host: Path, type_: str, *folders: object, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the script as the role does."""
    environment = {"PATH": f"{host / 'bin'}:/usr/bin:/bin", "HOST": str(host), "SWITCHES": str(host / "switches")}
    command = ["sh", "-c", SCRIPT.read_text(), "label", str(host / "note"), type_, *map(str, folders)]
    return subprocess.run(command, env={**environment, **settings}, capture_output=True, text=True, check=False)


def label(host: Path, type_: str, *folders: object, **settings: str) -> list[str]:
    """Run it, and return the lines that it prints."""
    done = run(host, type_, *folders, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def rules(host: Path) -> list[str]:
    """Return the rules that were not there before."""
    return [line.split()[0] for line in (host / "rules").read_text().splitlines()][1:]


def rule(folder: object) -> str:
    return f"{str(folder).replace('.', chr(92) + '.')}(/.*)?"


def add_rule(host: Path, folder: object, type_: str, files: str = "all files") -> None:
    """Add a rule of the operator's."""
    with (host / "rules").open("a") as lines:
        lines.write(f"{rule(folder)}    {files}    {type_} \n")


def test_our_folders_get_a_rule_and_their_labels_once(host: Path) -> None:
    homes = host / "homes-1.5"
    homes.mkdir()
    assert label(host, CONTAINER, f"{host}/kit/", homes) == [
        rule(host / "kit"),
        f"Relabeled {host}/kit",
        f"Relabeled {host}/kit/bin",
        rule(homes),
        f"Relabeled {homes}",
    ]
    assert rules(host) == [rule(host / "kit"), rule(homes)]
    assert label(host, CONTAINER, f"{host}/kit/", homes) == []


def test_nothing_below_a_folder_in_which_users_write_is_touched(host: Path) -> None:
    label(host, CONTAINER, host / "homes/sessions")
    label(host, CONTAINER, host / "homes/sessions")
    assert (host / "labelled").read_text().splitlines() == [f"{host}/homes/sessions"]


def test_a_folder_that_is_not_there_yet_has_its_rule(host: Path) -> None:
    assert label(host, CONTAINER, host / "later", f"{host}/kit/")[:2] == [rule(host / "later"), rule(host / "kit")]
    (host / "later").mkdir()
    assert label(host, CONTAINER, host / "later", f"{host}/kit/") == [f"Relabeled {host}/later"]


def test_what_a_run_that_was_interrupted_has_not_labelled_is_labelled(host: Path) -> None:
    write(host, "restorecon", "exit 1\n")
    assert run(host, CONTAINER, f"{host}/kit/").returncode == 1
    write(host, "restorecon", RESTORECON)
    assert label(host, CONTAINER, f"{host}/kit/") == [f"Relabeled {host}/kit", f"Relabeled {host}/kit/bin"]
    assert label(host, "") == [rule(host / "kit")]


@pytest.mark.parametrize("confines", [True, False])
def test_haproxy_gets_its_folders_where_the_policy_confines_it(host: Path, confines: bool) -> None:
    if confines:
        (host / "switches/haproxy_connect_any").mkdir(parents=True)
    label(host, "haproxy_var_lib_t", host / "kit")
    assert rules(host) == ([rule(host / "kit")] if confines else [])


def test_a_gateway_labels_what_is_there_before_haproxy_runs() -> None:
    variables = yaml.safe_load((REPOSITORY / "roles/gateway/vars/main.yml").read_text())
    made = yaml.safe_load((REPOSITORY / "roles/gateway/tasks/folders.yml").read_text())
    folders = {entry["path"] for entry in made[0]["backendai.cluster.host_files"]["folders"]}
    known = {"__gateway_maps": variables["__gateway_maps"]}
    labelled = [
        path.replace("{{ __gateway_maps }}", known["__gateway_maps"]) for path in variables["__gateway_labelled"]
    ]
    assert {path.rstrip("/") for path in labelled} <= folders


def test_a_folder_behind_a_link_gets_them_itself(host: Path) -> None:
    (host / "link").symlink_to(host / "homes")
    label(host, CONTAINER, host / "link/sessions")
    assert rules(host) == [rule(host / "homes/sessions")]


def test_a_folder_behind_another_one_gets_the_rule_that_semanage_names(host: Path) -> None:
    of_other = "/home/homes/sessions(/.*)?"
    assert label(host, CONTAINER, host / "homes/sessions", BEHIND=str(host)) == [
        of_other,
        f"Relabeled {host}/homes/sessions",
    ]
    assert label(host, CONTAINER, host / "homes/sessions", BEHIND=str(host)) == []
    assert label(host, "", BEHIND=str(host)) == [of_other]
    assert rules(host) == []


def test_rules_of_our_folders_are_forgotten_and_others_stay(host: Path) -> None:
    add_rule(host, host / "homes/sessions", f"system_u:object_r:{CONTAINER}:s0")
    label(host, CONTAINER, f"{host}/kit/", host / "homes/sessions")
    assert label(host, "") == [rule(host / "kit")]
    assert rules(host) == [rule(host / "homes/sessions")]
    assert label(host, "") == []


def test_a_rule_of_a_longer_path_is_another_one(host: Path) -> None:
    add_rule(host, f"/srv{host}/kit", "system_u:object_r:default_t:s0")
    label(host, CONTAINER, f"{host}/kit/")
    assert rules(host) == [rule(f"/srv{host}/kit"), rule(host / "kit")]


def test_the_rule_of_a_folder_that_is_ours_no_more_is_forgotten(host: Path) -> None:
    label(host, CONTAINER, f"{host}/kit/", host / "homes/sessions")
    (host / "other").mkdir()
    assert label(host, CONTAINER, f"{host}/kit/", host / "other") == [
        rule(host / "other"),
        f"Relabeled {host}/other",
        rule(host / "homes/sessions"),
    ]
    assert rules(host) == [rule(host / "kit"), rule(host / "other")]


@pytest.mark.parametrize(
    ("context", "type_"),
    [
        ("system_u:object_r:public_content_t:s0", "public_content_t"),
        ("u:object_r:x_t", "x_t"),
        ("<<None>>", "<<None>>"),
    ],
)
def test_a_rule_of_the_operator_with_another_type_stays_and_is_named(host: Path, context: str, type_: str) -> None:
    add_rule(host, host / "kit", context)
    done = run(host, CONTAINER, f"{host}/kit/", host / "homes/sessions")
    assert done.stderr == (
        f"A rule of this host gives {host}/kit the type {type_}, and it needs {CONTAINER}:"
        f" semanage fcontext -m -t {CONTAINER} '{rule(host / 'kit')}' && restorecon -v '{host}/kit'.\n"
    )
    assert done.stdout.splitlines() == [rule(host / "homes/sessions"), f"Relabeled {host}/homes/sessions"]
    assert label(host, "") == [rule(host / "homes/sessions")]
    assert rules(host) == [rule(host / "kit")]


def test_our_rule_that_the_operator_has_given_another_type_stays(host: Path) -> None:
    label(host, CONTAINER, f"{host}/kit/")
    (host / "rules").write_text((host / "rules").read_text().replace(CONTAINER, "container_ro_file_t"))
    assert label(host, "") == []
    assert rules(host) == [rule(host / "kit")]


def test_a_rule_for_folders_alone_is_another_one(host: Path) -> None:
    add_rule(host, host / "kit", "system_u:object_r:default_t:s0", "directory")
    assert label(host, CONTAINER, f"{host}/kit/")[0] == rule(host / "kit")


@pytest.mark.parametrize("type_", [CONTAINER, ""])
def test_a_host_without_selinux_needs_no_program_of_it(host: Path, type_: str) -> None:
    for name in ("selinuxenabled", "semanage", "restorecon"):
        (host / "bin" / name).unlink()
    assert label(host, type_, host / "kit") == []


@pytest.mark.parametrize(
    ("semanage", "said"),
    [
        (None, "This host has SELinux and no semanage: install policycoreutils-python-utils.\n"),
        ('echo "ValueError: the policy store cannot be read" >&2\nexit 1\n', "the policy store cannot be read"),
        (SEMANAGE.replace('"fcontext --add")', '"fcontext --add") echo "invalid type" >&2; exit 1;'), "invalid type"),
        (SEMANAGE.replace("other=/home", "other=$BEHIND/x"), "conflicts with equivalency rule"),
    ],
    ids=["missing", "no store", "refused", "behind two"],
)
def test_rules_that_cannot_be_made_are_an_error(host: Path, semanage: str | None, said: str) -> None:
    (host / "bin/semanage").unlink()
    if semanage:
        write(host, "semanage", semanage)
    failed = run(host, CONTAINER, host / "kit", BEHIND=str(host))
    assert failed.returncode != 0
    assert said in failed.stderr


def test_a_rule_that_is_not_forgotten_is_an_error_and_stays_noted(host: Path) -> None:
    label(host, CONTAINER, f"{host}/kit/")
    write(host, "semanage", SEMANAGE.replace('"fcontext --delete")', '"fcontext --delete") echo busy >&2; exit 1;'))
    failed = run(host, "")
    assert (failed.returncode != 0, failed.stderr) == (True, "busy\n")
    write(host, "semanage", SEMANAGE)
    assert label(host, "") == [rule(host / "kit")]


def test_a_removal_needs_no_semanage(host: Path) -> None:
    label(host, CONTAINER, f"{host}/kit/")
    (host / "bin/semanage").unlink()
    assert label(host, "") == []


def test_no_folder_of_users_is_labelled() -> None:
    texts = "".join(path.read_text() for path in (REPOSITORY / "roles").rglob("*.yml"))
    assert texts.count("tasks_from: labels") == texts.count("__host_labelled: ")
    assert {line.strip() for line in texts.splitlines() if "__host_labelled: " in line} == {
        '__host_labelled: "{{ __agent_labelled }}"',
        '__host_labelled: "{{ __gateway_labelled }}"',
        "__host_labelled: []",
    }
    agent = yaml.safe_load((REPOSITORY / "roles/agent/vars/main.yml").read_text())["__agent_labelled"]
    assert [path.removeprefix("{{ agent_state_path }}/") for path in agent] == ["kit/", "sessions", "homes/sessions"]

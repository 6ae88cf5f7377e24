"""The files of users and groups in a container."""

from __future__ import annotations

import grp
import pwd
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.accounts import (
    group_text,
    has_numeric_names,
    passwd_text,
)

SHELL = "/opt/backendai/shell/sh"
DEBIAN = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"


def passwd(text: str, uid: int = 1000, gid: int = 1000) -> list[str]:
    return passwd_text(text, uid, gid, SHELL).splitlines()


def groups(text: str, gid: int = 1000, **named: int) -> dict[str, int]:
    lines = group_text(text, gid, {number: name for name, number in named.items()}).splitlines()
    return {line.split(":")[0]: int(line.split(":")[2]) for line in lines}


@pytest.mark.parametrize("text", ["", DEBIAN, DEBIAN.replace("\n", "\r\n"), f"{DEBIAN}+::::::\n\n#comment\n"])
def test_work_is_the_only_user_with_its_number(text: str) -> None:
    lines = passwd(text)
    assert lines[-1] == "work:x:1000:1000::/home/work:/opt/backendai/shell/sh"
    assert lines[0].startswith("root:x:0:0:")
    assert all("\r" not in line and line.count(":") == 6 for line in lines)


@pytest.mark.parametrize(
    "line",
    [
        "work:x:0:0::/:/bin/sh",
        "ubuntu:x:1000:1000::/home/ubuntu:/bin/bash",
        "1000:x:0:0::/:/bin/sh",
        "work2:x:01000:5::/:/bin/sh",
        "x" * 70_000 + ":x:7:7::/:/bin/sh",
        "short:x:7",
    ],
)
def test_what_would_be_taken_for_work_or_fail_is_left_out(line: str) -> None:
    assert passwd(f"{DEBIAN}{line}\n") == passwd(DEBIAN)


def test_no_group_of_an_image_has_a_name_that_reads_as_a_number() -> None:
    assert groups("root:x:0:\n1000:x:0:\n+60001:x:0:\nvideo:x:44:\n") == {
        "root": 0,
        "video": 44,
        "tty": 5,
        "work": 1000,
    }


@pytest.mark.parametrize(
    "text",
    ["1000:x:0:\n", "video:x:44:\n-5:x:1:\n", f"{DEBIAN} 1500:x:0:\n", "\t\u00a01500:x:0:", "1500\n", "\r+7\r\n"],
)
def test_a_group_that_the_engine_reads_with_a_number_as_its_name_is_seen(text: str) -> None:
    assert has_numeric_names(text)


@pytest.mark.parametrize("text", [DEBIAN, "", "\n", "video:x:44:\r1500:x:0:\n", "a:x:1:\u20285:x:0:\n", "5 :x:0:\n"])
def test_a_group_file_whose_names_are_no_numbers_to_the_engine_is_not_refused(text: str) -> None:
    assert not has_numeric_names(text)


@pytest.mark.parametrize("end", ["\r", "\v", "\f", "\x1c", "\x85", "\u2028"])
def test_lines_that_programs_end_in_different_places_are_left_out(end: str) -> None:
    assert passwd(f"{DEBIAN}a:x:7:7::/:/bin/sh{end}b:x:8:8::/:/bin/sh\nc:x:9:9:{end}:/:/bin/sh\n") == passwd(DEBIAN)
    assert groups(f"a:x:7:{end}b:x:8:\nc:x:9:d{end}e\n") == groups("")


def test_space_around_a_line_does_not_count() -> None:
    assert passwd(f"{DEBIAN} \tbob:x:7:7::/:/bin/sh \r\n")[-2] == "bob:x:7:7::/:/bin/sh"
    assert groups("  video:x:44:  \n")["video"] == 44
    assert passwd(f"{DEBIAN}bob :x:7:7::/:/bin/sh\nbob:x: 7:7::/:/bin/sh\n") == passwd(DEBIAN)


@pytest.mark.parametrize("number", [1 << 32, (1 << 32) + 1000, (1 << 32) - 1])
def test_numbers_that_some_programs_take_for_others_are_left_out(number: int) -> None:
    assert passwd(f"{DEBIAN}a:x:{number}:7::/:/bin/sh\nb:x:7:{number}::/:/bin/sh\n") == passwd(DEBIAN)
    assert groups(f"a:x:{number}:\n") == groups("")


def test_the_group_of_terminals_is_that_of_docker() -> None:
    assert groups("tty:x:7:\nstaff:x:5:\n") == {"staff": 5, "tty": 5, "root": 0, "work": 1000}


def test_each_group_of_work_has_one_name_with_letters() -> None:
    named = groups("staff:x:1000:\nproject:x:7:\n", team=2000, project=2001)
    assert named == {"root": 0, "staff": 1000, "project": 7, "tty": 5, "team": 2000, "group2001": 2001}


TEXTS = st.text(st.sampled_from("work:x0123456789\nroot+-ty\r \x0b\u2028"), max_size=80)


@given(TEXTS)
def test_any_files_of_an_image_give_work_its_numbers_and_no_other(text: str) -> None:
    users = [line.split(":") for line in passwd(text)]
    assert [user[0] for user in users if user[2] == "1000"] == ["work"]
    assert [user[2] for user in users if user[0] == "work"] == ["1000"]
    named = groups(text)
    assert not [name for name in named if name.lstrip("+-").isdecimal()]
    assert named["tty"] == 5
    assert 1000 in named.values()


def test_programs_read_them(tmp_path: Path) -> None:
    """The lines have the shape of this machine's own files, which its C library has read."""
    own = Path("/etc/passwd").read_text()
    (tmp_path / "passwd").write_text(passwd_text(own, 64_000, 64_000, SHELL))
    read = subprocess.run(
        ["awk", "-F:", "NF != 7 || $3 !~ /^[0-9]+$/", tmp_path / "passwd"], capture_output=True, check=True
    )
    assert read.stdout == b""
    assert len((tmp_path / "passwd").read_text().splitlines()) == len(pwd.getpwall()) + 1
    assert len(group_text(Path("/etc/group").read_text(), 64_000, {}).splitlines()) == len(grp.getgrall()) + 1

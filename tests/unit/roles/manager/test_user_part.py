"""The user's part: words and files that a user gives, keys, and how ssh is called."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from backendai_manager.errors import CommandError, RefusedError
from backendai_manager.protocol import MAX_SECONDS
from backendai_manager.user import keys, spec_file, ssh_config
from backendai_manager.user.arguments import build_parser, parse_arguments, session_options
from backendai_manager.user.ssh_config import parse_access
from backendai_manager.user.text import age, duration, part, printable, remaining, slot_name, slots
from tests.unit.builders import REPOSITORY

ID = "5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
FOUND = {
    "id": ID,
    "name": "train",
    "ssh": {"host": "gw.example.com", "port": 31000},
    "host_keys": {"main1": KEY, "sub1": KEY},
}
TIME_RULE = "must be whole seconds, or a time such as 30s, 90m, 12h, 7d or 1d12h"


def test_flags_are_words_of_a_spec() -> None:
    words = "create --name train --image lab/x --size 2 --cpu 4 --mem 8g --gpu 1 --slot shmem=1g --env A=b --env C=d=e"
    options, _command = parse_arguments(
        [*words.split(), "--mount", "data", "--app", "jupyter", "--set", "stop_grace=5"]
    )
    assert session_options(options) == {
        "name": "train",
        "image": "lab/x",
        "cluster_size": 2,
        "resources": {"cpu": "4", "mem": "8g", "cuda.device": 1, "shmem": "1g"},
        "env": {"A": "b", "C": "d=e"},
        "mounts": ["data"],
        "apps": ["jupyter"],
        "stop_grace": "5",
    }
    assert session_options(parse_arguments(["create"])[0]) == {}


def test_flags_take_times_with_units() -> None:
    waits = [parse_arguments(["create", *words])[0].wait for words in ([], ["--wait"], ["--wait", "10m"])]
    assert waits == [0, MAX_SECONDS, 600]
    seconds = [parse_arguments(["open", "t", *words])[0].seconds for words in ([], ["--seconds", "12h"])]
    assert seconds == [3600, 43200]
    lifetime = parse_arguments(["create", "--set", "max_lifetime=12h"])[0]
    assert session_options(lifetime) == {"max_lifetime": "12h"}


def test_no_gpus_can_be_asked_for_in_place_of_those_of_a_spec() -> None:
    flags = session_options(parse_arguments(["create", "--gpu", "0"])[0])
    assert spec_file.merge({"resources": {"cuda.device": 4}}, flags) == {"resources": {"cuda.device": 0}}


@pytest.mark.parametrize(
    ("word", "value", "flag"),
    [
        ("resource_group", "others", "--group"),
        ("cluster_mode", "multi-node", "--multi-node"),
        ("cluster_size", "2", "--size"),
        ("image", "lab/x", "--image"),
        ("command", "true", "--command"),
    ],
)
def test_a_word_that_has_a_flag_can_be_set_too_and_is_given_once(word: str, value: str, flag: str) -> None:
    words = ["create", "--set", f"{word}={value}"]
    assert session_options(parse_arguments(words)[0]) == {word: value}
    twice = parse_arguments([*words, flag, *([] if word == "cluster_mode" else ["3"])])[0]
    with pytest.raises(RefusedError, match=f"^{word} is given twice: by --set and by an option of its own"):
        session_options(twice)


def test_what_is_behind_two_dashes_is_the_command() -> None:
    options, command = parse_arguments(["ssh", "train", "sub1", "--", "ls", "--all", "--"])
    assert (options.session, options.host, command) == ("train", "sub1", ["ls", "--all", "--"])


@pytest.mark.parametrize("words", [["-v", "list"], ["list", "-v"]])
def test_verbose_is_taken_on_both_sides_of_the_verb(words: list[str]) -> None:
    assert parse_arguments(words)[0].verbose is True
    assert parse_arguments(["list"])[0].verbose is False


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lst"], "'lst' is not a verb; did you mean list?"),
        (["xyzzy"], "'xyzzy' is not a verb; there are create, list"),
        (["list", "--al"], "'--al' is not a word of list; did you mean --all?"),
        (["create", "--nmae=x"], "'--nmae=x' is not a word of create; did you mean --name?"),
        (["end"], "the following arguments are required: NAME; see backendai end --help."),
        (["end", "a", "--now"], "'--now' is not a word of end"),
        (["create", "--size", "two"], "argument --size: invalid int value: 'two'; see backendai create --help."),
        *(
            (["create", "--gpu", gpus], f"argument --gpu: {gpus!r} must be a whole number, zero or more; {more} ")
            for gpus, more in (("-1", "see"), ("1.5", "see"), ("", "see"), ("many", "a model"), ("RTX 4090", "a model"))
        ),
        *(
            (
                ["create", "--gpu", gpus],
                f"argument --gpu: {gpus!r} must be a whole number, zero or more; with a model it is {flags}; see ",
            )
            for gpus, flags in (
                ("H100:4:80g", """--gpu 4 --set gpu='{"model": "H100", "memory": "80g"}'"""),
                ("4 A100-SXM4-80GB 80GB", """--gpu 4 --set gpu='{"model": "A100-SXM4-80GB", "memory": "80g"}'"""),
                ("B200", """--gpu 1 --set gpu='{"model": "B200"}'"""),
            )
        ),
        *(
            ([*words, time], f"argument {words[-1]}: {time!r} {TIME_RULE}; see backendai {words[0]} --help.")
            for words in (["create", "--wait"], ["open", "train", "--seconds"])
            for time in ("7 weeks", "-1h", "-1", "1.5", "h", "12x", "true")
        ),
        (["--json"], "the following arguments are required: VERB; see backendai --help."),
        (["list", "--", "x"], "list takes no command behind --."),
    ],
)
def test_a_wrong_word_is_one_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        parse_arguments(words)
    assert str(refusal.value).startswith(sentence)


def test_flags_with_pairs_refuse_others() -> None:
    with pytest.raises(RefusedError, match="--env takes NAME=VALUE, not 'A'"):
        session_options(parse_arguments(["create", "--env", "A"])[0])


@given(
    st.lists(
        st.sampled_from(["create", "ssh", "list", "-v", "--", "--json", "--name", "x", "", "-", "\udcff", "--help="])
    )
)
def test_any_words_are_options_or_a_sentence(words: list[str]) -> None:
    with contextlib.suppress(RefusedError):
        assert parse_arguments(words)[0].verb


def test_help_names_every_verb() -> None:
    text = build_parser().format_help()
    for verb in (
        "create",
        "list",
        "show",
        "why",
        "logs",
        "ssh",
        "ssh-config",
        "code",
        "connect",
        "open",
        "end",
        "repair",
        "agents",
        "schema",
    ):
        assert f"\n    {verb} " in text


def spec(tmp_path: Path, text: str | bytes) -> dict[str, Any]:
    path = tmp_path / "spec.yml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return spec_file.read_spec(str(path))


def test_a_spec_may_have_its_words_with_their_prefix(tmp_path: Path) -> None:
    assert spec(tmp_path, "session_name: train\nimage: lab/x\n") == {"name": "train", "image": "lab/x"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "must be a mapping of a session's words; backendai template prints one."),
        ("[name]", "must be a mapping"),
        ("name: [", "is not YAML in line 1: "),
        (bytes(range(256)), "is not YAML in UTF-8."),
        ("name: !!python/object/apply:os.system ['id']", "is not YAML in line 1: could not determine a constructor"),
        ("env: {DAY: 2026-11-24}", "has the value '2026-11-24', which is no text or number: put it in quotes."),
        ("env: {[a, b]: c}", "is not YAML in line 1"),
        ("[" * 1000, "is not YAML in UTF-8."),
        ("x" * ((1 << 20) + 1), "cannot be read: it is larger than 1048576 bytes."),
        (
            "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))]),
            "has more than",
        ),
    ],
)
def test_a_spec_that_is_none_is_one_sentence(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        spec(tmp_path, text)
    assert sentence in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


def test_a_spec_that_never_ends_or_is_huge_is_not_read(tmp_path: Path) -> None:
    fifo, huge = tmp_path / "fifo", tmp_path / "huge"
    os.mkfifo(fifo)
    with huge.open("wb") as stream:
        stream.truncate(1 << 30)
    for path, sentence in (
        (fifo, "it is not a regular file"),
        (huge, "it is larger than 1048576 bytes"),
        (Path("/dev/zero"), "it is not a regular file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "absent", "No such file or directory"),
    ):
        with pytest.raises(RefusedError) as refusal:
            spec_file.read_spec(str(path))
        assert str(refusal.value) == f"{path} cannot be read: {sentence}."


def test_flags_complete_mappings_of_a_spec_and_replace_all_else() -> None:
    merged = spec_file.merge({"env": {"A": "1", "B": "2"}, "name": "x"}, {"env": {"B": "3"}, "name": "y"})
    assert merged == {"env": {"A": "1", "B": "3"}, "name": "y"}


def test_a_key_is_made_once_and_given_beside_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    folder = tmp_path / ".ssh"
    private = keys.ensure_key(folder)
    content = private.read_text()
    assert keys.ensure_key(folder).read_text() == content
    assert (stat.S_IMODE(private.stat().st_mode), stat.S_IMODE(folder.stat().st_mode)) == (0o600, 0o700)
    own = " ".join((folder / "backendai_ed25519.pub").read_text().split()[:2])
    (folder / "laptop.pub").write_text(f"{KEY} alice@laptop\n")
    (folder / "bad.pub").write_text('command="id" ssh-ed25519 AAAA\n-----BEGIN OPENSSH PRIVATE KEY-----\n')
    os.mkfifo(folder / "fifo.pub")
    assert keys.public_keys(folder) == [own, KEY]
    (folder / "backendai_ed25519.pub").unlink()
    keys.ensure_key(folder)
    assert keys.public_keys(folder) == [own, KEY]


def test_keys_of_an_agent_are_given_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    agent = tools / "ssh-add"
    agent.write_text(f"#!/bin/sh\necho '{KEY} agent'\n")
    agent.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/x")
    assert keys.public_keys(tmp_path) == [KEY]
    monkeypatch.setattr(keys, "_AGENT_SECONDS", 0.2)
    agent.write_text("#!/bin/sh\nexec sleep 5\n")
    assert keys.public_keys(tmp_path) == []


def test_a_named_key_must_be_a_public_one(tmp_path: Path) -> None:
    private = tmp_path / "id"
    private.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    with pytest.raises(RefusedError, match=r"is a private key; name its public half"):
        keys.public_keys(tmp_path, [str(private)])
    with pytest.raises(RefusedError, match="has no SSH public key"):
        keys.public_keys(tmp_path, [str(tmp_path / "absent")])


def test_a_folder_that_cannot_have_a_key_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="cannot be made: look at the folder and its permissions"):
        keys.ensure_key(tmp_path / "file" / ".ssh")


ACCESS = parse_access(FOUND)


@pytest.mark.parametrize(
    ("host", "words", "terminal", "end"),
    [
        ("", [], False, ["--", "train"]),
        ("", [], True, ["-t", "--", "train"]),
        ("main1", ["ls", "-l"], True, ["--", "train", "ls -l"]),
        ("sub1", [], True, ["-t", "--", "train", "exec ssh -t sub1"]),
        ("sub1", ["echo", "'a b'"], False, ["--", "train", "exec ssh sub1 'echo '\"'\"'a b'\"'\"''"]),
    ],
)
def test_a_login_is_by_the_configuration_and_others_are_reached_from_main1(
    host: str, words: list[str], terminal: bool, end: list[str]
) -> None:
    command = ssh_config.ssh_command(ACCESS, Path("/x"), host, words, terminal=terminal)
    assert command == ["ssh", "-F", "/x/backendai_config", *end]


def test_a_container_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(CommandError, match="train has no container sub9; it has main1, sub1"):
        ssh_config.ssh_command(ACCESS, Path("/x"), "sub9", [], terminal=False)


EVIL = "x\n  ProxyCommand touch /evil"


@pytest.mark.parametrize(
    "changed",
    [
        {"name": EVIL},
        {"name": "-oProxyCommand=x"},
        {"id": f"{ID}\n"},
        {"id": "../x"},
        {"ssh": {"host": EVIL, "port": 1}},
        {"ssh": {"host": "-oProxyCommand=x", "port": 1}},
        {"ssh": {"host": "gw", "port": "22\n"}},
        {"ssh": {"host": "gw", "port": 0}},
        {"ssh": {"host": "$(id)", "port": 1}},
        {"ssh": {"host": "", "port": 0}},
        {"ssh": EVIL},
        {"ssh": ["gw", 1]},
        {"host_keys": EVIL},
        {"host_keys": {"main1": f"{KEY}\n@cert-authority * {KEY}"}},
        {"host_keys": {"main1": KEY, EVIL: KEY}},
        {"host_keys": {"main1": KEY, "sub1": f"{KEY}; touch /evil"}},
    ],
)
def test_what_a_host_sends_becomes_no_other_line_of_a_configuration(changed: dict[str, Any]) -> None:
    with pytest.raises(CommandError):
        parse_access({**FOUND, **changed})


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"ssh": None}, "train is not reachable through a gateway: there is none, or it came after the session."),
        ({"host_keys": {}}, "train has no known host key; backendai repair train may find it."),
    ],
)
def test_a_session_that_cannot_be_entered_says_why(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CommandError) as error:
        parse_access({**FOUND, **changed})
    assert str(error.value) == sentence


def effective(path: Path, host: str) -> dict[str, str]:
    """Return what ssh itself reads in a configuration for a host."""
    text = subprocess.run(["ssh", "-G", "-F", str(path), host], check=True, capture_output=True, text=True).stdout
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)


@pytest.mark.parametrize("name", ["my ssh", "o'brien", "a#b", "a=b, c;$(d)"])
def test_ssh_reads_the_configuration_that_is_written(tmp_path: Path, name: str) -> None:
    path, folder = tmp_path / "config", tmp_path / name
    path.write_text(ssh_config.render_config([ACCESS], folder))
    main, sub = effective(path, "train"), effective(path, "sub1.train")
    assert {name: main[name] for name in ("user", "hostkeyalias", "stricthostkeychecking", "proxyusefdpass")} == {
        "user": "work",
        "hostkeyalias": f"backendai-{ID}",
        "stricthostkeychecking": "true",
        "proxyusefdpass": "yes",
    }
    assert main["proxycommand"] == f"/usr/local/bin/backendai connect {ID}"
    assert main["userknownhostsfile"].strip('"') == str(folder / "backendai_known_hosts")
    assert main["globalknownhostsfile"] == "none"
    assert (sub["hostname"], sub["proxyjump"], sub["hostkeyalias"]) == ("sub1", "train", f"backendai-{ID}-sub1")


def test_the_command_that_ssh_starts_is_where_the_role_installs_it() -> None:
    installed = yaml.safe_load((REPOSITORY / "roles/manager/vars/main.yml").read_text())["__manager_command"]
    assert installed == ssh_config.COMMAND


def test_the_configuration_of_a_laptop_is_one_file_with_its_own_keys(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(ssh_config.render_laptop_config([ACCESS], ["~/.ssh/id_ed25519"]))
    main = effective(path, "train")
    assert main["identityfile"] == "~/.ssh/id_ed25519"
    assert main["knownhostscommand"] == f"/bin/echo backendai-{ID} {KEY}"


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\b", "${HOME}"])
def test_a_path_that_would_change_the_configuration_is_refused(name: str) -> None:
    with pytest.raises(CommandError, match="cannot be used in a configuration of ssh"):
        ssh_config.render_laptop_config([ACCESS], [name])


def test_text_of_others_does_not_control_a_terminal() -> None:
    assert printable("a\x1b[2Jb\n\udcff") == "a\\x1b[2Jb\\n\\udcff"


def test_times_and_amounts_are_short() -> None:
    assert [duration(seconds) for seconds in (5, 65, 7500, 90_000, -1)] == ["5s", "1m", "2h05m", "1d01h", "0s"]
    assert (age(10.0, 15.0), remaining(15.0, 10.0), age(None), remaining(None)) == ("5s", "5s", "-", "-")
    several = {"cpu": 2, "mem": 6 << 28, "shmem": 16 << 20, "cuda.device": 2, "cuda.mig-1g.10gb": 1}
    assert slots(several) == "cpu 2, mem 1.5 GiB, shmem 16 MiB, 2 GPUs, cuda.mig-1g.10gb 1"
    assert slots({"cuda.device": 1, "mem": 0, "shmem": 204_800 << 30}) == "1 GPU, mem 0 GiB, shmem 204800 GiB"
    assert slots({"mem": (1 << 30) - 1, "shmem": 1023 << 20}) == "mem 1 GiB, shmem 1023 MiB"
    assert [part("mem", some << 20, "/", 64 << 30) for some in (0, 512, 1024)] == [
        "0/64 GiB",
        "0.5/64 GiB",
        "1/64 GiB",
    ]
    assert (part("cpu", 1, " of ", 8), slot_name("cuda.device"), slot_name("mem")) == ("1 of 8", "gpu", "mem")


def test_a_fifo_as_a_key_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.pub")
    thread = threading.Thread(target=keys.public_keys, args=(tmp_path,), daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()


def test_a_repair_keeps_the_home_unless_it_is_to_be_fresh() -> None:
    asked = [parse_arguments(["repair", "train", *words])[0].fresh_home for words in ([], ["--fresh-home"])]
    assert asked == [False, True]

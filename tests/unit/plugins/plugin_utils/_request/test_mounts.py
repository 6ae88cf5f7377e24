"""Mounts of agents' folders: valid ones, and those that would hide folders of the session."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.session import Mount
from tests.unit.builders import refusal, spec

PLAIN_PATH = "must be an absolute path without //, ., .. or :"


def mount(**changes: Any) -> dict[str, Any]:
    return {"source": "/mnt/data", "target": "/data", **changes}


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ([], ()),
        ([mount()], (Mount("/mnt/data", "/data", False),)),
        ([mount(read_only="True")], (Mount("/mnt/data", "/data", True),)),
        ([mount(read_only="no")], (Mount("/mnt/data", "/data", False),)),
        ('[{"source": "/a/", "target": "/b/"}]', (Mount("/a", "/b"),)),
        ([mount(target="/home/work/data")], (Mount("/mnt/data", "/home/work/data"),)),
        ([mount(target="/home/worker")], (Mount("/mnt/data", "/home/worker"),)),
        ([mount(target="/opt/backendais")], (Mount("/mnt/data", "/opt/backendais"),)),
        ([mount(source="/")], (Mount("/", "/data"),)),
        ([mount(), mount(target="/more")], (Mount("/mnt/data", "/data"), Mount("/mnt/data", "/more"))),
    ],
)
def test_valid_mounts_are_parsed(value: Any, taken: tuple[Mount, ...]) -> None:
    assert spec(mounts=value).mounts == taken


@pytest.mark.parametrize(
    ("mounts", "sentence"),
    [
        (None, "session_mounts is required."),
        ("/mnt:/data", "session_mounts: '/mnt:/data' must be a list of mappings."),
        ({"source": "/mnt"}, "session_mounts: {'source': '/mnt'} must be a list of mappings."),
        (["/mnt"], "session_mounts[0] must be a mapping of source, target, read_only, strict."),
        (
            [mount(readonly=True)],
            "session_mounts[0].readonly is not known; allowed are source, target, read_only, strict.",
        ),
        ([{"target": "/data"}], "session_mounts[0]: missing required arguments: source."),
        ([mount(), {"source": "/mnt"}], "session_mounts[1]: missing required arguments: target."),
        ([mount(source="data")], f"session_mounts[0].source: 'data' {PLAIN_PATH}."),
        ([mount(target="~/data")], f"session_mounts[0].target: '~/data' {PLAIN_PATH}."),
        ([mount(target="/home/../home/work")], f"session_mounts[0].target: '/home/../home/work' {PLAIN_PATH}."),
        ([mount(target="//home/work")], f"session_mounts[0].target: '//home/work' {PLAIN_PATH}."),
        ([mount(target="/data:ro")], f"session_mounts[0].target: '/data:ro' {PLAIN_PATH}."),
        ([mount(source="/mnt:/etc")], f"session_mounts[0].source: '/mnt:/etc' {PLAIN_PATH}."),
        ([mount(read_only="maybe")], "session_mounts[0].read_only: 'maybe' must be true or false."),
        ([mount(read_only=None)], "session_mounts[0].read_only is required."),
        ([mount(), mount(source="/other")], "session_mounts: '/data' is the target of more than one mount."),
        ([mount(target="/")], "session_mounts[0].target: '/' would hide /home/work."),
        (
            [mount(target="/run/backendai/data")],
            (
                "session_mounts[0].target: '/run/backendai/data' must not be in a reserved folder: /opt/backendai,"
                " /run/backendai, /var/lib/backendai, /var/log/backendai, /home/work/.ssh."
            ),
        ),
        ([mount(target="/home/work/.ssh")], "session_mounts[0].target: '/home/work/.ssh' would hide /home/work/.ssh."),
        ([mount(target="/var/lib")], "session_mounts[0].target: '/var/lib' would hide /var/lib/backendai."),
        (
            [mount(target="/etc/profile.d")],
            "session_mounts[0].target: '/etc/profile.d' would hide /etc/profile.d/backendai.sh.",
        ),
        ([mount(target="/etc/group")], "session_mounts[0].target: '/etc/group' would hide /etc/group."),
        ([mount(target="/usr")], "session_mounts[0].target: '/usr' would hide /usr/bin."),
        ([mount(target="/home")], "session_mounts[0].target: '/home' would hide /home/work."),
        ([mount(target="/home/work")], "session_mounts[0].target: '/home/work' would hide /home/work."),
        ([mount(target="/home/work/")], "session_mounts[0].target: '/home/work' would hide /home/work."),
        ([mount(target="/opt")], "session_mounts[0].target: '/opt' would hide /opt/backendai."),
        ([mount(target="/run/backendai")], "session_mounts[0].target: '/run/backendai' would hide /run/backendai."),
        ([mount(target="/etc")], "session_mounts[0].target: '/etc' would hide /etc/hosts."),
        ([mount(target="/etc/hosts")], "session_mounts[0].target: '/etc/hosts' would hide /etc/hosts."),
    ],
)
def test_each_invalid_mount_has_one_message(mounts: Any, sentence: str) -> None:
    assert refusal(mounts=mounts) == sentence


def test_mounts_without_a_target_are_not_duplicates() -> None:
    assert refusal(mounts=[{"source": "/a"}, {"source": "/b"}]) == (
        "session_mounts[0]: missing required arguments: target.\nsession_mounts[1]: missing required arguments: target."
    )

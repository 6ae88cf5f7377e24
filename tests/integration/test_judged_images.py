"""Images that would put something of their own in the place of something of the session, on both engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.laboratory import AGENTS, BUSYBOX, run_in, run_on
from tests.integration.sessions import Sessions

pytestmark = [pytest.mark.containers, pytest.mark.images]

IMAGE = "test/judged:1"
FOLDER = "/srv/test-judged"
MOUNT = {"source": FOLDER, "target": "/data"}

#: What is done in the image, what its configuration gets, and how it is refused.
REFUSED = {
    "pipe": ("rm -f /etc/passwd; mkfifo /etc/passwd", "LABEL a=b", "has a FIFO at /etc/passwd"),
    "link": (
        "rm -rf /var/log; mkdir -p /var; ln -s /data /var/log",
        "LABEL a=b",
        "would have /var/log/backendai (in the image /data/backendai) in the mount at /data",
    ),
    "circle": ("rm -rf /opt; ln -s opt /opt", "LABEL a=b", "/opt"),
    "home": (
        "mkdir -p /home/work && dd if=/dev/zero of=/home/work/model bs=1M count=300",
        "LABEL a=b",
        "has more than 2,000 files or 256 MiB in /home/work",
    ),
}


@pytest.fixture(params=[AGENTS[0], AGENTS[2]])
def agent(request: pytest.FixtureRequest, sessions: Sessions) -> Iterator[str]:
    """Return an agent of each engine, with a folder to mount; image and folder are removed at the end."""
    name = str(request.param)
    sessions.limit_to(name)
    run_on(name, f"mkdir -p -m 777 {FOLDER}")
    yield name
    sessions.terminate_all()
    run_on(name, f"docker rmi --force {IMAGE}; rm -r {FOLDER}")


def make_image(agent: str, script: str, change: str) -> None:
    """Make an image of a busybox in which a script ran, with a change of its configuration."""
    run_on(agent, f"docker run --name test-judged {BUSYBOX} sh -c '{script}'")
    run_on(agent, f"docker commit --change '{change}' test-judged {IMAGE} && docker rm test-judged")


@pytest.mark.parametrize(("script", "change", "problem"), REFUSED.values(), ids=REFUSED)
def test_an_image_that_replaces_what_is_the_sessions_is_refused_by_name_and_leaves_nothing(
    sessions: Sessions, agent: str, script: str, change: str, problem: str
) -> None:
    make_image(agent, script, change)
    run = sessions.create(image=IMAGE, mounts=[MOUNT])
    assert run.code != 0
    assert f"session_image: '{IMAGE}'" in run.output
    assert problem in run.output
    # The second time nobody looks at it.
    assert problem in sessions.create(image=IMAGE, mounts=[MOUNT]).output
    assert run_on(agent, "docker ps --all --quiet --filter name=backendai-look-") == ""
    assert run_on(agent, f"ls {FOLDER}") == ""


def test_an_image_with_a_long_file_of_accounts_in_the_format_of_another_system_runs(
    sessions: Sessions, agent: str
) -> None:
    accounts = "unix2dos /etc/passwd /etc/group; yes nobody:x:7777:7777::/:/bin/false | head -n 320000 >> /etc/passwd"
    make_image(agent, accounts, "LABEL a=b")
    main1 = sessions.start(image=IMAGE).container_on(agent)
    assert run_in(main1, "ssh", "main1", "id -un; id -gn; echo $HOME").split() == ["work", "work", "/home/work"]


def test_an_image_with_links_and_volumes_around_folders_of_the_session_runs(sessions: Sessions, agent: str) -> None:
    script = "rm -rf /home /root; ln -s var/home /home; ln -s var/roothome /root"
    make_image(agent, script, "VOLUME /opt /run/backendai /var")
    main1 = sessions.start(image=IMAGE, mounts=[MOUNT]).container_on(agent)
    assert run_in(
        main1, "sh", "-c", "cd && pwd -P && echo text > /home/work/file && cat /var/home/work/file"
    ).split() == [
        "/var/home/work",
        "text",
    ]
    assert run_in(main1, "ssh", "main1", "id -un").strip() == "work"
    assert run_on(agent, f"ls {FOLDER}") == ""

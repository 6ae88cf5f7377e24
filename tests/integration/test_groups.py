"""Sessions of a manager's users have the groups of these users."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.laboratory import run_on, run_on_all
from tests.integration.managers import MANAGER
from tests.integration.sessions import Sessions
from tests.integration.test_backendai_command import POLICY
from tests.integration.user_command import SMALL, backendai, create

pytestmark = pytest.mark.managers

GROUP, NUMBER = "lab-project", 42001
FOLDER = "/srv/lab-project"
WRITE = "touch /project/$(hostname)-of-$(id -u) && id -Gn"


@pytest.fixture
def project() -> Iterator[None]:
    """Have a folder on each agent that a group of the manager may use, in which alice is and bob is not."""
    mounts = f"  project: {{source: {FOLDER}, target: /project}}"
    run_on_all(f"install -d -m 0770 -g {NUMBER} {FOLDER}")
    run_on(MANAGER, f"groupadd --gid {NUMBER} {GROUP} && gpasswd --add alice {GROUP}")
    run_on(MANAGER, f"cp -p {POLICY} {POLICY}.test && sed -i 's|^mounts:.*|&\\n{mounts}|' {POLICY}")
    yield
    run_on(MANAGER, f"mv {POLICY}.test {POLICY}; groupdel {GROUP}")
    run_on_all(f"rm -rf {FOLDER}")


@pytest.mark.usefixtures("project")
def test_a_user_writes_to_the_folder_of_a_group_and_nobody_else_does(sessions: Sessions) -> None:
    of_alice, of_bob = f"{sessions.name}-a", f"{sessions.name}-b"
    create("alice", of_alice, "--size", "2", "--mount", "project")
    create("bob", of_bob, "--mount", "project")
    for host in ("main1", "sub1"):
        written = backendai("alice", "ssh", of_alice, host, "--", WRITE)
        assert (written.code, GROUP in written.output.split()) == (0, True), written
    refused = backendai("bob", "ssh", of_bob, "--", WRITE)
    assert refused.code != 0
    assert "Permission denied" in refused.output + refused.errors
    owners = [line for text in run_on_all(f"find {FOLDER} -type f -printf '%U\\n'") for line in text.split()]
    assert owners == [run_on(MANAGER, "id -u alice").strip()] * 2
    # Who leaves a group has it in no session that starts from then on.
    run_on(MANAGER, f"gpasswd --delete alice {GROUP}")
    create("alice", f"{sessions.name}-c", "--mount", "project")
    assert backendai("alice", "ssh", f"{sessions.name}-c", "--", WRITE).code != 0
    for user, name in (("alice", of_alice), ("bob", of_bob), ("alice", f"{sessions.name}-c")):
        assert backendai(user, "end", name).code == 0


@pytest.mark.usefixtures("project")
def test_a_group_that_owns_a_device_of_an_agent_is_refused_and_nothing_is_created(sessions: Sessions) -> None:
    run_on_all(f"mknod -m 0660 /dev/lab-project c 1 3 && chgrp {NUMBER} /dev/lab-project")
    try:
        refused = backendai("alice", "create", "--name", sessions.name, *SMALL)
    finally:
        run_on_all("rm /dev/lab-project")
    assert refused.code != 0
    assert f"the group {NUMBER} ({GROUP}) owns the device /dev/lab-project" in refused.output + refused.errors

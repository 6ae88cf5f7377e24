"""A container that dies in the middle of a training: the framework ends the others, and the session ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.frameworks.conftest import printed, request_of
from tests.integration.containers import transferred_bytes, wait_for_exit
from tests.integration.laboratory import queue_entries, run_on
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

#: More than starts and tests of a session, in bytes: gradients of thousands of steps.
TRAINS = 10 << 20


@pytest.mark.usefixtures("examples")
def test_a_training_ends_with_one_of_its_containers(tmp_path: Path) -> None:
    with Sessions(tmp_path) as sessions:
        main, sub, _other = sessions.start(**request_of("failure.yml")).kernels
        wait_until(lambda: transferred_bytes(main, "cluster0") > TRAINS, 600, 2)
        run_on(sub["agent"], f"docker kill {sub['container']}")
        assert wait_for_exit(main) == 1
        assert sessions.run("schedule_sessions").code == 0
        record = queue_entries()[main["id"]]["record"]
        text = printed(main["agent"], main["id"])
    assert (record["status"], record["reason"]) == ("TERMINATED", "the command ended with exit code 1")
    assert re.search("RuntimeError: .*Connection (reset|closed) by peer", text), text

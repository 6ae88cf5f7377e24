"""Starts that fail, runs that are killed and requests that are wrong: one sentence each, and nothing is left."""

from __future__ import annotations

import json
from pathlib import Path

from tests.acceptance.hosts import containers, network_state
from tests.integration.internals import TASK_APPLY, session_link
from tests.integration.interruptions import kill_at_task
from tests.integration.laboratory import PYTHON, agent_state, command, run_in, run_on, run_on_all
from tests.integration.session_requests import SMALL, THREE
from tests.integration.sessions import Sessions


def test_a_failure_on_one_agent_is_rolled_back_on_all(sessions: Sessions) -> None:
    """Containers of somebody else have all names that the session's could get on agent2."""
    names = [f"backendai-{sessions.name}-{hostname}" for hostname in ("main1", "sub1", "sub2")]
    run_on("agent2", "; ".join(f"docker create --name {name} lab/busybox:1 true" for name in names))
    try:
        before, networks = agent_state(), network_state()
        failed = sessions.create(**THREE)
        assert (failed.code != 0, failed.record["status"]) == (True, "ERROR"), failed.output
        assert "already exists on agent2 and does not belong to this session" in failed.text
        assert {container["agent"] for container in containers(sessions.name).values()} == {"agent2"}
        assert network_state() == networks
        assert agent_state() == before
    finally:
        run_on("agent2", f"docker rm {' '.join(names)}")
    # What was claimed is free: the same request under the same name runs.
    assert sessions.create(**THREE).record["status"] == "RUNNING"
    assert len(containers(sessions.name)) == 3


def test_an_image_that_nobody_has_is_one_sentence(sessions: Sessions) -> None:
    before = agent_state()
    failed = sessions.create(image="lab/nothing:1", **SMALL)
    assert failed.code != 0
    assert "lab/nothing:1" in failed.record["error"]
    assert "Traceback" not in failed.output
    assert containers(sessions.name) == {}
    assert agent_state() == before


def test_a_run_that_is_killed_is_finished_by_the_next(sessions: Sessions, tmp_path: Path) -> None:
    variables = {"name": sessions.name, "image": PYTHON, **THREE}
    line = command("create_session", tmp_path, {f"session_{key}": value for key, value in variables.items()})
    kill_at_task(TASK_APPLY, line)
    again = sessions.create(**THREE)
    assert (again.code, again.record["status"]) == (0, "RUNNING"), again.output
    assert len(containers(sessions.name)) == 3
    main = again.record["kernels"][0]
    assert run_in(main, "ssh", "-o", "BatchMode=yes", "sub2", "hostname") == "sub2\n"
    assert sessions.terminate().code == 0
    assert containers(sessions.name) == {}
    assert run_on_all(f"ip -oneline link show | grep {session_link(main['id'])}", check=False) == [""] * 3


WRONG = {
    "cluster_size": (0, "session_cluster_size"),
    "resources": ({"mem": "8 GB of it"}, "session_resources"),
    "cluster_mode": ("everywhere", "session_cluster_mode"),
    "mounts": ([{"source": "relative", "target": "/data"}], "session_mounts"),
    "sise": (3, "session_sise"),
}


def test_all_mistakes_of_a_request_are_named_at_once_before_a_host_is_contacted(sessions: Sessions) -> None:
    refused = sessions.create(**{option: value for option, (value, _named) in WRONG.items()})
    assert refused.code != 0
    for _value, named in WRONG.values():
        assert named in refused.text, (named, refused.output)
    assert "Traceback" not in refused.output
    assert refused.hosts == {"localhost"}


#: A folder that operators offer, and one beside it whose name begins like that.
OFFERED, BESIDE = "/srv/offered", "/srv/offered-to-others"


def test_folders_that_control_an_agent_are_never_mounted(sessions: Sessions) -> None:
    roots = ("-e", json.dumps({"agent_mount_roots": [OFFERED]}))
    run_on_all(f"mkdir -p {OFFERED} {BESIDE}")
    try:
        for source, options in (
            ("/", ()),
            ("/var/run", ()),
            ("/var/lib/backendai/sessions", ()),
            ("/var/lib/docker", ()),
            (BESIDE, roots),
        ):
            refused = sessions.create(*options, **SMALL, mounts=[{"source": source, "target": "/data"}])
            assert refused.code != 0
            assert f"session_mounts: {source} may not be mounted" in refused.text
        assert f"allowed are folders in {OFFERED}, except" in refused.text
    finally:
        run_on_all(f"rmdir {OFFERED} {BESIDE}")
    assert containers(sessions.name) == {}

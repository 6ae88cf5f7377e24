"""Sessions on other engines and image stores than those of the lab, together with one of the lab's kind."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.hosts.variants import VARIANTS, Agents, Variant, agent_name, agents
from tests.integration.laboratory import PYTHON, Run
from tests.integration.session_requests import SMALL
from tests.integration.waiting import wait_until
from tests.unit.engine_api.judge import described_versions, problems_of

FIRST, *OTHERS = VARIANTS
EACH = pytest.mark.parametrize("variant", VARIANTS, ids=[variant.name for variant in VARIANTS])
EACH_OTHER = pytest.mark.parametrize("variant", OTHERS, ids=[variant.name for variant in OTHERS])
RESTORE_SECONDS = 90


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    with agents(tmp_path_factory.mktemp("engines")) as provisioned:
        yield provisioned


def started(made: Agents, name: str, **request: object) -> Run:
    """Start a session of two containers, and check that it runs."""
    run = made.session("create_session", name=name, image=PYTHON, cluster_size=2, **SMALL, **request)
    assert run.code == 0, run.output
    assert run.record["status"] == "RUNNING", run.output
    return run


def ended(made: Agents, name: str) -> None:
    """End a session, and check that nothing is left of it."""
    run = made.session("terminate_session", name=name)
    assert run.code == 0, run.output


@EACH
def test_an_agent_has_the_engine_and_the_store_of_its_variant(made: Agents, variant: Variant) -> None:
    info = json.loads(made.of(variant).run("docker info --format '{{json .}}'"))
    print(f"{variant.name}: engine {info['ServerVersion']}, images by {info['Driver']}")
    assert info["ServerVersion"].startswith(variant.version)
    status = ["driver-type", "io.containerd.snapshotter.v1"]
    assert (status in info["DriverStatus"]) == variant.containerd


@EACH_OTHER
def test_a_session_of_several_containers_on_one_agent_comes_back_after_a_restart_of_the_engine(
    made: Agents, variant: Variant
) -> None:
    host, name = made.of(variant), f"alone-{variant.name}"
    started(made, name, designated_agents=[host.name])
    containers = "docker ps --quiet --no-trunc --filter label=ai.backend.session-id | sort"
    before = host.run(containers)
    assert len(before.split()) == 2
    host.run("systemctl restart docker.service")
    wait_until(lambda: host.run(containers) == before, RESTORE_SECONDS)
    again = made.session("verify_session", name=name)
    assert again.code == 0, again.output
    ended(made, name)


@EACH_OTHER
def test_a_loaded_image_is_the_same_in_all_stores_of_a_session_on_two_agents(made: Agents, variant: Variant) -> None:
    name, both = f"two-{variant.name}", [agent_name(FIRST), agent_name(variant)]
    request = {"cluster_mode": "multi-node", "agent_selection": "dispersed", "designated_agents": both}
    run = started(made, name, **request)
    assert {kernel["agent"] for kernel in run.record["kernels"]} == {*both}
    ended(made, name)


def test_the_disk_of_images_is_that_of_their_store(made: Agents) -> None:
    run = made.play("prune_images", agent_image_free_space="1m")
    assert run.code == 0, run.output
    for variant in VARIANTS:
        folder = "/var/lib/containerd" if variant.containerd else "/var/lib/docker"
        assert f"{agent_name(variant)}: no images removed" in run.text
        line = run.text.partition(f"{agent_name(variant)}: no images removed")[2]
        assert line.partition(" free in ")[2].startswith(f"{folder}.")


@EACH
def test_every_request_names_its_version_and_has_only_what_that_describes(made: Agents, variant: Variant) -> None:
    asked = made.requests(variant)
    problems = {text for each in asked for text in problems_of(each["method"], each["target"], each["body"])}
    assert problems == set()
    versions = {each["target"].split("/")[1][1:] for each in asked if each["target"] != "/_ping"}
    assert len(versions) == 1
    assert versions <= {*described_versions()}
    assert len(asked) > 50

"""The order in which the lab's hosts are provisioned, and what a failure shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lab import provision
from tests.lab.command import LabError
from tests.lab.identity import Host, Lab
from tests.lab.provision import ensure_provisioned, failed_task

LOG = """\
TASK [Install the packages] ****
fatal: [agent2]: FAILED! => {"msg": "no such package"}

PLAY RECAP ****
"""


@pytest.fixture(name="lab")
def a_lab(tmp_path: Path) -> Lab:
    """A lab whose hosts are up."""
    lab = Lab(tmp_path)
    lab.folder.mkdir()
    lab.inventory.touch()
    lab.manager_inventory.touch()
    return lab


@pytest.fixture(name="runs")
def runs_of_ansible(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The playbooks that were run, with their options."""
    runs: list[tuple[str, ...]] = []

    def run(_log: Path, *argv: str, **_options: Any) -> None:
        place = next(place for place, word in enumerate(argv) if word.startswith("backendai.cluster."))
        runs.append((argv[place].removeprefix("backendai.cluster.provision_"), *argv[place + 1 :]))

    monkeypatch.setattr(provision, "run_logged", run)
    monkeypatch.setattr(provision, "ensure_wheels", lambda _lab: None)
    return runs


def test_hosts_let_managers_in_when_the_managers_have_keys(lab: Lab, runs: list[tuple[str, ...]]) -> None:
    ensure_provisioned(lab)
    skipped, only = ("--skip-tags", "access"), ("--tags", "access")
    assert sorted(runs[:3]) == [("agents", *skipped), ("gateways", *skipped), ("managers",)]
    assert sorted(runs[3:]) == [("agents", *only), ("gateways", *only)]


def test_the_kit_is_made_once_before_an_agent_that_needs_it_is_provisioned(
    lab: Lab, runs: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_provisioned(lab)
    assert "backendai.cluster.build_kit" not in {run[0] for run in runs}
    monkeypatch.setattr(provision, "HOSTS", (Host("agent3", "agents", "bullseye", 13),))
    lab.provisioned.unlink()
    runs.clear()
    ensure_provisioned(lab)
    assert runs[0] == ("backendai.cluster.build_kit", "-e", f"agent_kit_path={lab.kit}")
    lab.kit.touch()
    lab.provisioned.unlink()
    runs.clear()
    ensure_provisioned(lab)
    assert "backendai.cluster.build_kit" not in {run[0] for run in runs}


def test_images_are_loaded_when_the_agents_have_engines(lab: Lab, runs: list[tuple[str, ...]]) -> None:
    runs_before_loading: list[int] = []
    ensure_provisioned(lab, lambda: runs_before_loading.append(len(runs)))
    assert runs_before_loading[0] >= 3


def test_hosts_are_not_provisioned_twice_but_images_are_loaded(lab: Lab, runs: list[tuple[str, ...]]) -> None:
    ensure_provisioned(lab)
    runs.clear()
    loaded: list[str] = []
    ensure_provisioned(lab, lambda: loaded.append("images"))
    assert (runs, loaded) == ([], ["images"])


def test_a_changed_role_of_gateways_leaves_agents_alone(
    lab: Lab, runs: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(provision, "ROOT", tmp_path)
    task = tmp_path / "roles/gateway/tasks/main.yml"
    task.parent.mkdir(parents=True)
    task.write_text("[]")
    (tmp_path / "tests/lab").mkdir(parents=True)
    monkeypatch.setattr(provision, "PARTS", {**provision.PARTS, "managers": ("playbooks",)})
    ensure_provisioned(lab)
    runs.clear()
    task.write_text("[{}]")
    ensure_provisioned(lab)
    assert {run[0] for run in runs} == {"gateways"}


def test_hosts_are_provisioned_again_after_a_failure_which_shows_the_task(
    lab: Lab, runs: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(log: Path, *_argv: str, **_options: Any) -> None:
        log.parent.mkdir(exist_ok=True)
        log.write_text(LOG)
        raise LabError("a command failed")

    with monkeypatch.context() as patch:
        patch.setattr(provision, "run_logged", fail)
        with pytest.raises(LabError, match=r"provision_managers failed, its log is [\s\S]*no such package"):
            ensure_provisioned(lab)
    ensure_provisioned(lab)
    assert ("managers",) in runs


def test_hosts_that_are_not_there_are_not_provisioned(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"^the lab is not up: run `python3 -m tests\.lab up` first$"):
        ensure_provisioned(Lab(tmp_path))


def test_a_failure_is_shown_with_its_task() -> None:
    assert failed_task("TASK [Gathering] ***\nok: [agent1]\n\n" + LOG).startswith("TASK [Install the packages]")
    assert failed_task("TASK [Gathering] ***\nok: [agent1]\n") == ""

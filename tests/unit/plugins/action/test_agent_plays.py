"""The playbooks about agents, run by ansible-playbook; a program stands in for ssh and the agents behind it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.builders import agent_facts
from tests.unit.plugins.action.play_site import SURVEYED, TEAMS, PlaySite

# Agents keep whether they are in service.
ACT = f"""
if phase == "survey":
    {SURVEYED}
else:
    cordon, wanted = folder / f"cordon-{{host}}", options["state"] == "present"
    before = cordon.exists()
    if wanted and not check:
        cordon.write_text(options["reason"])
    elif not wanted and not check:
        cordon.unlink(missing_ok=True)
    description = f"cordoned by {{options['by']}} ({{options['reason']}})" if wanted else ""
    result = {{"changed": wanted != before, "cordoned_before": before, "description": description, "sessions": []}}
"""
ON_TWO = ("-e", "agent_names=agent1,agent2", "-e", "agent_cordon_reason=disk")


class Site(PlaySite):
    """A site with three agents."""

    def __init__(self, folder: Path) -> None:
        names = ("agent1", "agent2", "agent3")
        super().__init__(folder, ACT, {"agents": names})
        for name in names:
            self.hold(name, agent_facts(name))

    @property
    def cordoned(self) -> dict[str, str]:
        """The reasons of the agents that are out of service."""
        return {path.name.removeprefix("cordon-"): path.read_text() for path in sorted(self.folder.glob("cordon-*"))}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@TEAMS
def test_agents_are_taken_out_of_service_and_back_with_the_settings_that_a_team_has(
    site: Site, settings: dict[str, str]
) -> None:
    code, output = site.play("backendai.cluster.cordon_agents", *ON_TWO, **settings)
    assert code == 0, output
    assert site.cordoned == {"agent1": "disk", "agent2": "disk"}
    assert "agent1 takes no new sessions: cordoned by " in output
    code, output = site.play("backendai.cluster.resume_agents", *ON_TWO, **settings)
    assert (code, site.cordoned) == (0, {}), output
    assert "agent1 takes new sessions." in output
    # What waits is started: all agents are asked what is free.
    assert [asked for asked in site.asked if asked.endswith(":survey")] == [f"agent{n}:survey" for n in (1, 2, 3)]


def test_a_drain_goes_on_without_an_agent_that_is_away_and_fails_in_the_end(site: Site) -> None:
    (site.folder / "away-agent2").touch()
    code, output = site.play("backendai.cluster.drain_agents", *ON_TWO)
    assert code == 2
    assert "agent2 was not drained: " in output
    assert "no route to host" in output
    assert site.cordoned == {"agent1": "disk"}
    assert site.asked == ["agent1:cordon", "agent1:survey", "agent3:survey"]


def test_a_drain_of_agents_that_are_none_asks_nobody(site: Site) -> None:
    code, output = site.play("backendai.cluster.drain_agents", "-e", "agent_names=agnt1")
    assert code == 2
    assert "agent_names: 'agnt1' is not an agent of the inventory; did you mean agent1?" in output
    assert site.asked == []


def test_check_mode_says_what_would_be_and_leaves_agents_in_service(site: Site) -> None:
    code, output = site.play("backendai.cluster.cordon_agents", *ON_TWO, "--check")
    assert (code, site.cordoned) == (0, {}), output
    assert "agent2 takes no new sessions: cordoned by " in output
    assert "changed=1" in output


def test_a_limit_hides_agents_and_says_so(site: Site) -> None:
    code, output = site.play("backendai.cluster.cordon_agents", *ON_TWO, "--limit", "localhost,agent1")
    assert (code, site.cordoned) == (0, {"agent1": "disk"}), output
    assert "agent2 is left out: hidden by --limit." in output


def test_each_host_of_a_play_may_be_taken_out_while_it_is_worked_on(site: Site) -> None:
    task = {"agents": "{{ inventory_hostname }}", "reason": "update", "all_confirmed": True}
    out = {"backendai.cluster.agent_state": {**task, "state": "cordoned"}, "register": "service"}
    shown = {
        "ansible.builtin.debug": {"msg": "{{ inventory_hostname }} was out: {{ service.agents[0].cordoned_before }}"}
    }
    play = {"hosts": "agents", "gather_facts": False, "serial": 2, "tasks": [out, shown]}
    code, output = site.play([play])
    assert (code, [*site.cordoned]) == (0, ["agent1", "agent2", "agent3"]), output
    assert "agent3 was out: False" in output
    assert site.asked == ["agent1:cordon", "agent2:cordon", "agent3:cordon"]


def test_no_further_agents_are_rebooted_after_one_that_fails(site: Site) -> None:
    (site.folder / "away-agent1").touch()
    every = ("-e", "agent_names=agent1,agent2,agent3", "-e", "serial=2")
    code, output = site.play("backendai.cluster.reboot_agents", *every, "--check")
    assert code != 0, output
    assert "no route to host" in output
    assert [asked for asked in site.asked if not asked.startswith("agent2:cordon")] == []


@TEAMS
def test_agents_are_listed_with_the_settings_that_a_team_has(site: Site, settings: dict[str, str]) -> None:
    (site.folder / "away-agent2").touch()
    path = site.folder / "agents.json"
    code, output = site.play("backendai.cluster.list_agents", "-e", f"agent_list_path={path}", **settings)
    assert code == 0, output
    report = json.loads(path.read_text())
    assert [row["status"] for row in report["agents"]] == ["ready", "unreachable", "ready"]
    assert "no route to host" in next(line for line in output.splitlines() if line.startswith("agent2"))
    assert site.asked == ["agent1:survey", "agent3:survey"]


def test_a_task_returns_the_agents_that_are_not_in_service(site: Site) -> None:
    read = {"backendai.cluster.agent_info": {}, "register": "cluster"}
    names = "{{ cluster.agents | rejectattr('status', 'eq', 'ready') | map(attribute='name') | join(', ') }}"
    (site.folder / "away-agent2").touch()
    play = {"hosts": "agents", "gather_facts": False, "run_once": True}
    code, output = site.play([{**play, "tasks": [read, {"ansible.builtin.debug": {"msg": f"away: {names}"}}]}])
    assert code == 0, output
    assert "away: agent2" in output

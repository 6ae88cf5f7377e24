"""Options of managers, on a new manager on which nearly all have another value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.integration.internals import UNIT_SCHEDULER
from tests.integration.managers import LIBRARY, QUEUE
from tests.integration.options.hosts import TEN_YEARS, OwnHost, own_host
from tests.integration.removals import LOST_ID
from tests.lab.identity import SUITES, Host
from tests.lab.inventory import POLICY

pytestmark = [pytest.mark.managers, pytest.mark.provisioning]

ACCOUNT, USERS, OPERATORS = "clusterer", "cluster-users", "cluster-operators"
#: A play for the host itself, without SSH: rules are not tried over a new connection.
PLAY = """\
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: backendai.cluster.firewall}
"""
VARIABLES: Mapping[str, Any] = {
    "manager_account": ACCOUNT,
    "manager_users_group": USERS,
    "manager_operators_group": OPERATORS,
    "manager_runs_per_user": 1,
    "manager_runs": 2,
    "manager_orphan_after": 86400,
    "manager_timer": True,
    "manager_interval": "52w",
    "manager_timeout": "7min",
    "manager_python": "/usr/bin/python3.11",
    "manager_packages": ["openssh-client", "python3-venv", "sudo", "ethtool"],
    "manager_apt_cache_valid_time": TEN_YEARS,
}


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnHost]:
    """A new manager; inventory, policy and packages of Python are those of the lab."""
    wanted = Host("spare7", "managers", SUITES[0], 67)
    with own_host(tmp_path_factory.mktemp("manager"), wanted, "provision_managers", VARIABLES) as made:
        yield made


def test_its_account_and_groups_are_those_that_were_asked_for(manager: OwnHost) -> None:
    manager.run(f"useradd --groups {USERS} dora && useradd --groups {OPERATORS} ed && useradd frank")
    for user, may in (("dora", True), ("ed", True), ("frank", False)):
        listed = manager.run(f"sudo -l -U {user} || true")
        assert (f"({ACCOUNT})" in listed, f"{LIBRARY}/serve" in listed) == (may, may), listed
    assert manager.run("stat --format %U /var/lib/backendai-manager/.ssh/id_ed25519") == f"{ACCOUNT}\n"
    assert manager.run("getent passwd backendai || true") == ""


def test_its_limits_inventory_and_policy_are_those_that_were_asked_for(manager: OwnHost) -> None:
    settings = json.loads(manager.run("cat /etc/backendai/manager.json"))
    asked = {"runs_per_user": 1, "runs": 2, "orphan_after": 86400, "users_group": USERS, "operators_group": OPERATORS}
    assert {name: settings[name] for name in asked} == asked
    assert manager.run("cat /etc/backendai/policy.yml") == POLICY.read_text()
    assert "agent1" in manager.run("cat /etc/backendai/inventory.yml")


def test_packages_are_those_that_were_asked_for(manager: OwnHost) -> None:
    """No index of packages was updated, and none of Python was reached: nobody could have."""
    assert manager.run("dpkg-query --show --showformat '${Package}' ethtool") == "ethtool"
    assert manager.run(f"{LIBRARY}/venv/bin/python -I -c 'import ansible, rich'") == ""
    # By the name of the system's, python3, this would lead there.
    assert manager.run(f"readlink {LIBRARY}/venv/bin/python3.11") == "/usr/bin/python3.11\n"


def test_its_timer_runs_as_often_and_as_long_as_was_asked_for(manager: OwnHost) -> None:
    timer, service = f"{UNIT_SCHEDULER}.timer", f"{UNIT_SCHEDULER}.service"
    assert "OnUnitInactiveUSec=11month" in manager.shown(timer, "TimersMonotonic")[0]
    assert manager.shown(service, "TimeoutStartUSec", "User") == ["7min", ACCOUNT]


def test_rules_are_confirmed_without_ssh_if_that_is_asked_for(manager: OwnHost) -> None:
    """A manager has no firewall of this collection otherwise."""
    manager.run(f"cat > /root/play.yml << 'END'\n{PLAY}END")
    # A connection without SSH comes from no address.
    values = {
        "mode": "report",
        "ssh_sources": ["198.51.100.1"],
        "confirm_force": True,
        "apt_cache_valid_time": TEN_YEARS,
    }
    firewall = {f"firewall_{name}": value for name, value in values.items()}
    given = json.dumps({**firewall, "ansible_python_interpreter": "/usr/bin/python3"})
    settings = f"ANSIBLE_COLLECTIONS_PATH={LIBRARY}/collections"
    manager.run(f"{settings} {LIBRARY}/venv/bin/ansible-playbook -i localhost, /root/play.yml -e '{given}'")
    state = json.loads(manager.run("cat /var/lib/backendai/firewall.json"))
    assert state["confirmed"]["mode"] == "report"
    assert "table inet backendai" in manager.run("nft list tables")


def test_what_is_to_be_absent_is_removed_and_the_account_stays(manager: OwnHost) -> None:
    removed = manager.play("provision_managers", manager_state="absent")
    assert removed.code == 0, removed.output
    assert manager.run("ls -d /usr/local/bin/backendai /etc/sudoers.d/backendai 2> /dev/null || true") == ""
    assert manager.run(f"getent passwd {ACCOUNT} | cut -d : -f 1") == f"{ACCOUNT}\n"


def test_sessions_are_ended_before_a_removal_if_that_is_asked_for(manager: OwnHost) -> None:
    """A script stands in for ansible-playbook, which is gone already: it is told of one session, and ends it."""
    program, entry = f"{LIBRARY}/venv/bin/ansible-playbook", f"{QUEUE}/{LOST_ID}.json"
    stand_in = f'#!/bin/sh\necho "$*" > /tmp/ended\nsed -i s/RUNNING/TERMINATED/ {entry}\n'
    manager.run(f"mkdir -p {LIBRARY}/venv/bin && cat > {program} << 'END'\n{stand_in}END\nchmod 755 {program}")
    text = json.dumps({"id": LOST_ID, "name": "train", "state": "RUNNING"})
    manager.run(f"echo '{text}' > {entry} && chown {ACCOUNT} {entry}")
    refused = manager.play("remove_managers")
    assert "sessions of this manager have not ended: train" in refused.text
    removed = manager.play("remove_managers", remove_sessions=True)
    assert removed.code == 0, removed.output
    told = manager.run("cat /tmp/ended")
    assert ("backendai.cluster.terminate_session" in told, LOST_ID in told) == (True, True)
    assert manager.run(f"ls {QUEUE} 2> /dev/null || true") == ""

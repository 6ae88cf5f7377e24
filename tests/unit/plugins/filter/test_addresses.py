"""The filter addresses."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.backendai.cluster.plugins.filter.addresses import FilterModule, addresses

HOSTVARS = {
    "agent1": {"ansible_host": "203.0.113.1", "agent_underlay_address": "192.0.2.1"},
    "agent2": {"ansible_host": "203.0.113.2"},
    "agent3": {"ansible_host": "a..b"},
}


def test_hosts_become_their_addresses() -> None:
    hosts = ["agent2", "agent1"]
    assert addresses(hosts, HOSTVARS) == ["203.0.113.2", "203.0.113.1"]
    assert addresses(hosts, HOSTVARS, "agent_underlay_address") == ["203.0.113.2", "192.0.2.1"]


def test_host_without_address_fails() -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        addresses(["agent3"], HOSTVARS)
    assert str(refused.value) == "agent3: 'a..b' has no address: it is not a host name."


def test_filter_is_registered_by_name() -> None:
    assert FilterModule().filters() == {"addresses": addresses}

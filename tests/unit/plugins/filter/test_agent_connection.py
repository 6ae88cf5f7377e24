# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter with the connection variables of an agent."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.backendai.cluster.plugins.filter.agent_connection import agent_connection


def test_of_the_variables_of_an_agent_those_of_its_connection_are_returned() -> None:
    given = {"ansible_connection": "ssh", "ansible_host": "192.0.2.1", "ansible_become": True, "agent_labels": ["fast"]}
    assert agent_connection(given) == {name: value for name, value in given.items() if name != "agent_labels"}


def test_an_unknown_connection_plugin_is_named() -> None:
    with pytest.raises(AnsibleFilterError, match=r"there is no connection plugin 'no\.such\.plugin'"):
        agent_connection({"ansible_connection": "no.such.plugin"})

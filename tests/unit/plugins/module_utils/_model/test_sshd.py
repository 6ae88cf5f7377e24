# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.sshd import sshd_config
from tests.unit.builders import plan

KERNEL = plan({"agent1": 2}).kernels[1]


@pytest.mark.parametrize(("memory", "unfinished"), [(6 << 20, (10, 15)), (300 << 20, (50, 75)), (1 << 40, (200, 300))])
def test_unfinished_logins_fit_into_the_memory_of_the_container(memory: int, unfinished: tuple[int, int]) -> None:
    text = sshd_config(dataclasses.replace(KERNEL, resources={"cpu": 1, "mem": memory}))
    assert text.splitlines() == [
        f"PerSourceMaxStartups {unfinished[0]}",
        f"MaxStartups {unfinished[1]}",
        "Include /opt/backendai/etc/sshd_config",
    ]


def test_on_the_network_of_its_agent_it_listens_at_a_port_of_its_own() -> None:
    text = sshd_config(dataclasses.replace(KERNEL, address="192.0.2.1", ssh_port=30001))
    assert text.splitlines()[-1] == "ListenAddress 192.0.2.1:30001"

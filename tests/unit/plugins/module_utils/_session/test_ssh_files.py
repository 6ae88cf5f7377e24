"""The rendered ``known_hosts`` and ``authorized_keys``."""

from __future__ import annotations

from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import authorized_keys, known_hosts
from tests.unit.builders import plan, public_keys

MADE = plan({"agent1": 1, "agent2": 1})
MAIN, SUB = MADE.kernels
KEYS = public_keys(MADE)
USERS = ["ssh-ed25519 ALICE alice@laptop"]


def test_every_container_is_known_by_name_and_address() -> None:
    assert known_hosts(MADE.kernels, KEYS) == (
        f"main1,{MAIN.address} ssh-ed25519 HOST-main1\nsub1,{SUB.address} ssh-ed25519 HOST-sub1\n"
    )


def test_a_container_without_an_address_is_known_by_name() -> None:
    alone = plan({"agent1": 1})
    assert known_hosts(alone.kernels, public_keys(alone)) == "main1 ssh-ed25519 HOST-main1\n"


def test_every_container_and_the_user_may_log_in_to_every_container() -> None:
    assert authorized_keys(MADE.kernels, KEYS, USERS).splitlines() == [
        "ssh-ed25519 USER-main1 work@main1",
        "ssh-ed25519 USER-sub1 work@sub1",
        "ssh-ed25519 ALICE alice@laptop",
    ]

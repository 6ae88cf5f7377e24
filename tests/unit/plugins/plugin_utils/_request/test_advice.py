"""What is said about a request for a new session."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import Gateway
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.advice import NO_FOLDER, NO_KEYS, advise
from tests.unit.builders import POOLS, spec

FOLDER = {"source": "/mnt/data", "target": "/data"}
KEY = "ssh-ed25519 AAAA"
QUIET: dict[str, Any] = {"mounts": [FOLDER], "authorized_keys": [KEY]}
ALIKE = "Resources are of one container: 4 × (cpu 2, mem 8g) = cpu 8, mem 32g in all."
ROLES = (
    "Resources are of one container: 1 × (cpu 2, mem 4g) + 3 × (cpu 8, mem 4g, cuda.device 1) = cpu 26, mem 16g,"
    " cuda.device 3 in all."
)
NO_GATEWAY = (
    "Nobody can log in: this manager has no gateway. Operators add a host to the group gateways, and provision all."
)
SITE = Gateway("gateway.example.org", "", 443, 31001, 32000)
WITH_DOMAIN = dataclasses.replace(SITE, domain="apps.example.org")


def advice_at(*sites: Gateway, by_manager: bool = True, **changes: Any) -> list[str]:
    """Return what is said where the inventory has these gateways."""
    addresses = tuple(f"192.0.2.{number}" for number, _site in enumerate(sites, 1))
    return advise(spec(**changes), dataclasses.replace(POOLS, gateways=addresses, sites=sites), by_manager=by_manager)


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({}, []),
        ({"mounts": []}, [NO_FOLDER]),
        ({"mounts": [{**FOLDER, "read_only": True}]}, [NO_FOLDER]),
        ({"cluster_size": 4, "resources": {"cpu": 2, "mem": "8g"}}, [ALIKE]),
        (
            {
                "resources": {"cpu": 2, "mem": "4g"},
                "roles": {"main": {}, "worker": {"replicas": 3, "resources": {"cpu": 8, "cuda.device": 1}}},
                "mounts": [],
            },
            [ROLES, NO_FOLDER],
        ),
        ({"authorized_keys": []}, [NO_KEYS]),
        ({"authorized_keys": [], "command": "true"}, []),
    ],
)
def test_user_learns_what_a_session_takes_and_keeps_and_who_gets_in(changes: dict[str, Any], advice: list[str]) -> None:
    assert advice_at(SITE, **{**QUIET, **changes}) == advice


def test_without_a_gateway_nobody_can_log_in_and_links_are_not_spoken_of() -> None:
    assert advice_at(**{**QUIET, "authorized_keys": [], "apps": [{"name": "jupyter"}]}) == [NO_GATEWAY]


@pytest.mark.parametrize(
    ("site", "app", "linked"),
    [
        (SITE, {"name": "terminal"}, True),
        (SITE, {"name": "terminal", "path": "none"}, False),
        (WITH_DOMAIN, {"name": "terminal", "path": "none"}, True),
        (WITH_DOMAIN, {"name": "a--b", "port": 7681, "path": "none"}, False),
        (dataclasses.replace(WITH_DOMAIN, path_links=False), {"name": "a--b", "port": 7681}, False),
        (SITE, {"name": "db", "port": 7681, "protocol": "tcp"}, True),
    ],
    ids=["by path", "no domain", "domain", "its name is none of a host", "no links by path", "no link by nature"],
)
def test_user_learns_that_an_app_has_no_link_and_what_reaches_it(
    site: Gateway, app: dict[str, Any], linked: bool
) -> None:
    name, reached = app["name"], "ssh -L 7681:localhost:7681 train-llm reaches it"
    of_inventory = (
        f"{name} has no link: none by path (links_by_path of a policy, path of an app), and none by host name,"
        f" because gateway_domain is not set or the names are too long. {reached}."
    )
    of_manager = (
        f"{name} has no link: operators set gateway_domain, or links_by_path of the policy; or a name is too long for"
        f" one. On your own computer, {reached}, with what backendai ssh-config prints for it"
        " (--for-laptop --key FILE)."
    )
    for by_manager, sentence in ((False, of_inventory), (True, of_manager)):
        asked = {**QUIET, "apps": [app]}
        assert advice_at(site, by_manager=by_manager, **asked) == ([] if linked else [sentence])


def test_one_gateway_with_links_is_enough() -> None:
    assert advice_at(SITE, WITH_DOMAIN, **QUIET, apps=[{"name": "terminal", "path": "none"}]) == []

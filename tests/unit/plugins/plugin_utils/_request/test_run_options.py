"""Options of one run, and the pools of networks."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.policy import DEFAULT_MAX_SKIPS
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import (
    NetworkPools,
    RunOptions,
    parse_pools,
    parse_run,
)
from tests.unit.builders import options, refusal

VNI_RULE = "must be a range within 1-16777215, such as 4096-16777215"
PORT_RULE = "must be a range within 1024-65535, such as 30000-32767"
PUBLISHED_RULE = "must be a range within 1024-65535, such as 30000-31000"
TTL_RULE = "must be a time from 60 to 2592000 seconds, such as 90m, 12h, 7d"
TIME_RULE = "must be whole seconds, or a time such as 30s, 90m, 12h, 7d or 1d12h"
POOL_RULE = "must be an IPv4 network such as 10.128.0.0/9"


def parsed(**changes: Any) -> tuple[RunOptions, str]:
    """Return the options of a run with these changes, and the problems."""
    problems, values = options(**changes)
    return parse_run(problems, values), str(problems)


def test_the_defaults_of_the_role_are_taken() -> None:
    assert parsed() == (
        RunOptions(
            name="train-llm",
            id="",
            user="",
            user_uid=-1,
            queue_path="",
            record_path="",
            list_path="",
            page_path="",
            report_path="",
            logs_path="",
            access_path="",
            hosts_template="hosts.j2",
            ssh_config_template="ssh_config.j2",
            environment_template="environment.j2",
            claim_ttl=600,
            claim_attempts=5,
            queue_policy="fifo",
            queue_patience=DEFAULT_MAX_SKIPS,
            history_days=30,
            force=False,
            fresh_home=False,
            wait=False,
            history=False,
            list_format="table",
            list_use=False,
            agent_lost_after=600,
            kernel="",
            logs_lines=100,
            logs_follow=False,
            token_path="",
            token_ttl=3600,
        ),
        "",
    )


@pytest.mark.parametrize(
    ("option", "value", "taken"),
    [
        ("claim_ttl", "86400", 86400),
        ("claim_ttl", "20m", 1200),
        ("agent_lost_after", "10m", 600),
        ("token_ttl", "12h", 43200),
        ("claim_attempts", "100", 100),
        ("queue_policy", "drf", "drf"),
        ("queue_patience", "0", 0),
        ("history_days", "0", 0),
        ("force", "true", True),
        ("wait", "Yes", True),
        ("history", 1, True),
        ("kernel", "sub1", "sub1"),
        ("logs_lines", "100000", 100000),
    ],
)
def test_text_is_coerced_to_the_type_of_the_option(option: str, value: Any, taken: Any) -> None:
    taken_options, problems = parsed(**{option: value})
    assert (getattr(taken_options, option), problems) == (taken, "")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"claim_ttl": 0}, "session_claim_ttl: 0 must be a time from 1 to 86400 seconds, such as 30s, 90m, 12h."),
        ({"claim_ttl": "soon"}, f"session_claim_ttl: 'soon' {TIME_RULE}."),
        ({"claim_attempts": 0}, "session_claim_attempts: 0 must be a whole number from 1 to 100."),
        ({"queue_policy": "fair"}, "value of session_queue_policy must be one of: fifo, lifo, drf, got: fair."),
        ({"queue_policy": None}, "session_queue_policy is required."),
        ({"queue_patience": -1}, "session_queue_patience: -1 must be a whole number from 0 to 10000."),
        ({"history_days": 1.5}, "session_history_days: 1.5 must be a whole number."),
        ({"force": "maybe"}, "session_force: 'maybe' must be true or false."),
        ({"wait": "2"}, "session_wait: '2' must be true or false."),
        ({"history": None}, "session_history is required."),
        ({"kernel": ["sub1"]}, "session_kernel: ['sub1'] must be a line of text."),
        ({"logs_lines": 0}, "session_logs_lines: 0 must be a whole number from 1 to 100000."),
        ({"logs_lines": "all"}, "session_logs_lines: 'all' must be a whole number."),
        ({"token_ttl": "59s"}, f"session_token_ttl: 59 {TTL_RULE}."),
        ({"agent_lost_after": 1.5}, f"session_agent_lost_after: 1.5 {TIME_RULE}."),
        ({"token_ttl": 59}, f"session_token_ttl: 59 {TTL_RULE}."),
        ({"token_ttl": 2592001}, f"session_token_ttl: 2592001 {TTL_RULE}."),
    ],
)
def test_each_invalid_option_has_one_message(changes: dict[str, Any], sentence: str) -> None:
    assert parsed(**changes)[1] == sentence


def test_pools_are_read_from_their_defaults() -> None:
    assert parse_pools(*options()) == NetworkPools("10.128.0.0/9", 4096, 16777215, 4789, 30000, 32767, 30000, 31000, ())


def test_each_pool_has_its_own_ports() -> None:
    parsed_value = parse_pools(*options(host_port_pool="2000-2001", published_port_pool="3000-3001"))
    assert (parsed_value.first_host_port, parsed_value.last_host_port) == (2000, 2001)
    assert (parsed_value.first_published_port, parsed_value.last_published_port) == (3000, 3001)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"network_pool": "ten"}, f"session_network_pool: 'ten' {POOL_RULE}."),
        ({"network_pool": "10.0.0.1/8"}, f"session_network_pool: '10.0.0.1/8' {POOL_RULE}."),
        ({"network_pool": "fd00::/64"}, f"session_network_pool: 'fd00::/64' {POOL_RULE}."),
        ({"network_pool": "10.0.0.0/30"}, "session_network_pool: '10.0.0.0/30' must be a /29 or larger."),
        ({"network_pool": None}, "session_network_pool is required."),
        ({"vni_pool": None}, "session_vni_pool is required."),
        ({"vni_pool": "1"}, f"session_vni_pool: '1' {VNI_RULE}."),
        ({"vni_pool": "0-5"}, f"session_vni_pool: '0-5' {VNI_RULE}."),
        ({"vni_pool": "9-5"}, f"session_vni_pool: '9-5' {VNI_RULE}."),
        ({"vni_pool": "1-16777216"}, f"session_vni_pool: '1-16777216' {VNI_RULE}."),
        ({"vni_pool": "a-b"}, f"session_vni_pool: 'a-b' {VNI_RULE}."),
        ({"host_port_pool": None}, "session_host_port_pool is required."),
        ({"host_port_pool": "30000"}, f"session_host_port_pool: '30000' {PORT_RULE}."),
        ({"host_port_pool": "1023-1024"}, f"session_host_port_pool: '1023-1024' {PORT_RULE}."),
        ({"host_port_pool": "2000-65536"}, f"session_host_port_pool: '2000-65536' {PORT_RULE}."),
        ({"host_port_pool": "2000-1999"}, f"session_host_port_pool: '2000-1999' {PORT_RULE}."),
        ({"published_port_pool": None}, "session_published_port_pool is required."),
        ({"published_port_pool": "30000"}, f"session_published_port_pool: '30000' {PUBLISHED_RULE}."),
        ({"published_port_pool": "1023-1024"}, f"session_published_port_pool: '1023-1024' {PUBLISHED_RULE}."),
        ({"published_port_pool": "2000-65536"}, f"session_published_port_pool: '2000-65536' {PUBLISHED_RULE}."),
        ({"published_port_pool": "2000-1999"}, f"session_published_port_pool: '2000-1999' {PUBLISHED_RULE}."),
        ({"vxlan_port": 0}, "session_vxlan_port: 0 must be a whole number from 1 to 65535."),
        ({"vxlan_port": 65536}, "session_vxlan_port: 65536 must be a whole number from 1 to 65535."),
    ],
)
def test_each_invalid_pool_has_one_message(changes: dict[str, Any], sentence: str) -> None:
    assert refusal(**changes) == sentence


def test_registries_are_checked_with_every_run_and_no_password_is_kept() -> None:
    assert parsed(registries={"localhost": "hunter2"})[1] == (
        "session_registries.localhost must be a mapping of username and password."
    )
    run_options, invalid = parsed(registries={"localhost": {"username": "reader", "password": "hunter2"}})
    assert (invalid, "hunter2" in repr(run_options)) == ("", False)

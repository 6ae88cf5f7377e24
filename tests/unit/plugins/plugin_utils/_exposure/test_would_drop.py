"""The report of firewalls in report mode, as lines and as data."""

from __future__ import annotations

import json
from typing import Any

import yaml

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import parse_firewall
from ansible_collections.backendai.cluster.plugins.module_utils._model.reported_traffic import ReportedTraffic
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.would_drop import (
    HostTraffic,
    build_traffic_report,
    render_traffic,
)

SSH = ReportedTraffic("192.0.2.50", "tcp", 22, None, 40, "sshd")
NFS = ReportedTraffic("192.0.2.50", "tcp", 2049, None, 9, "the kernel")
V6 = ReportedTraffic("1:2:3:4:5:6:7:8", "udp", 161, None, 3, "snmpd")
PING = ReportedTraffic("192.0.2.60", "icmp", None, None, 2)
NOISE = ReportedTraffic("::", "ipv6-icmp", None, None, 1)
SCAN = tuple(ReportedTraffic("203.0.113.9", "tcp", port, None, 1) for port in (80, 81, 82, 443))
ROUTED = ReportedTraffic("192.0.2.50", "tcp", 5432, "10.1.0.2", 6)


def host(*traffic: ReportedTraffic, name: str = "agent1", **more: Any) -> HostTraffic:
    return HostTraffic(name, "report", traffic, **more)


def lines(*hosts: HostTraffic) -> list[str]:
    return render_traffic(build_traffic_report(hosts))


def test_the_table_has_source_port_protocol_program_and_packets() -> None:
    assert lines(host(SSH, PING, ROUTED, *SCAN, unlisted=7))[:5] == [
        "HOST    SOURCE       PORT       PROTOCOL  PROGRAM             PACKETS",
        "agent1  192.0.2.50   22         tcp       sshd                40",
        "agent1  192.0.2.60   -          icmp      -                   2",
        "agent1  192.0.2.50   5432       tcp       routed to 10.1.0.2  6",
        "agent1  203.0.113.9  80-82,443  tcp       nothing listens     4",
    ]


def test_many_ports_at_which_nothing_listens_are_counted() -> None:
    many = [ReportedTraffic("203.0.113.9", "tcp", port, None, 1) for port in range(0, 200, 2)]
    assert "100 ports" in lines(host(*many))[1]


def test_the_lines_of_inventory_allow_programs_that_listen_and_nothing_else() -> None:
    shown = lines(host(SSH, NFS, V6, PING, NOISE, ROUTED, *SCAN))
    first = shown.index("What would allow it, in the inventory at agent1:") + 1
    assert shown[first:-1] == [
        "firewall_allow:",
        "  - {protocol: tcp, ports: [22, 2049], sources: [192.0.2.50]}  # sshd, the kernel",
        "  - {protocol: udp, ports: [161], sources: ['1:2:3:4:5:6:7:8']}  # snmpd",
        "  # - {protocol: any, sources: [192.0.2.60]}  # icmp, and everything else",
    ]
    firewall = parse_firewall(
        {"ssh_sources": ["192.0.2.1"], "allow": yaml.safe_load("\n".join(shown[first:-1]))["firewall_allow"]}, (), ()
    )
    assert [(rule.protocol, rule.ports, rule.sources) for rule in firewall.allow] == [
        ("tcp", ("22", "2049"), ("192.0.2.50/32",)),
        ("udp", ("161",), ("1:2:3:4:5:6:7:8/128",)),
    ]


def test_ports_of_different_sources_have_rules_of_their_own() -> None:
    other = ReportedTraffic("192.0.2.51", "tcp", 22, None, 1, "sshd")
    (reported,) = build_traffic_report([host(SSH, NFS, other)])["hosts"]
    assert [(rule["ports"], rule["sources"]) for rule in reported["allow"]] == [
        (["22"], ["192.0.2.50", "192.0.2.51"]),
        (["2049"], ["192.0.2.50"]),
    ]


def test_hosts_that_need_the_same_share_the_lines() -> None:
    shown = lines(host(SSH), host(SSH, name="agent2"), host(name="agent3"))
    assert "What would allow it, in the inventory at agent1, agent2:" in shown
    assert len([line for line in shown if line.startswith("What would allow it")]) == 1


def test_the_state_of_each_host_is_said_plainly() -> None:
    assert lines(
        host(SSH, unlisted=2),
        HostTraffic("agent2", "enforce"),
        HostTraffic("agent3", "off"),
        HostTraffic("agent4", error="Connection refused"),
    )[-4:] == [
        "agent1 is open: firewall_mode is report; 42 packets would have been dropped, 2 of them not listed.",
        "agent2 is closed: firewall_mode is enforce, and the kernel log has what is dropped.",
        "agent3 is open: it has no firewall.",
        "agent4: unknown: Connection refused.",
    ]


def test_what_containers_sent_to_closed_storage_is_counted_in_any_mode() -> None:
    sent = ReportedTraffic("172.18.0.2", "tcp", 2049, "192.0.2.7", 4, "NFS, mounted at /mnt/data")
    line, state = lines(HostTraffic("agent1", "enforce", storage=(sent,)))
    assert line == (
        "agent1: 4 packets of the container 172.18.0.2 to 192.0.2.7, tcp 2049 (NFS, mounted at /mnt/data), were"
        " dropped: agent_open_storage opens it."
    )
    assert state == "agent1 is closed: firewall_mode is enforce, and the kernel log has what is dropped."
    assert lines(host(storage=(sent,)))[-1].startswith("agent1 is open: firewall_mode is report; 0 packets would")


def test_without_traffic_there_is_no_table() -> None:
    assert lines(host()) == ["agent1 is open: firewall_mode is report; 0 packets would have been dropped."]


def test_the_report_is_plain_data() -> None:
    report = build_traffic_report([host(SSH, PING)])
    assert json.loads(json.dumps(report)) == report
    assert report == {
        "hosts": [
            {
                "name": "agent1",
                "mode": "report",
                "traffic": [
                    {
                        "source": "192.0.2.50",
                        "protocol": "tcp",
                        "port": 22,
                        "destination": None,
                        "packets": 40,
                        "program": "sshd",
                    },
                    {
                        "source": "192.0.2.60",
                        "protocol": "icmp",
                        "port": None,
                        "destination": None,
                        "packets": 2,
                        "program": None,
                    },
                ],
                "unlisted": 0,
                "error": None,
                "storage": [],
                "allow": [{"protocol": "tcp", "ports": ["22"], "sources": ["192.0.2.50"], "programs": ["sshd"]}],
                "allow_all": [{"protocol": "icmp", "sources": ["192.0.2.60"]}],
            }
        ]
    }

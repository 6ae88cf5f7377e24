"""What a host reports becomes lines of an inventory: anything that could be another line is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import DataError
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_replies import check_reply

ENTRY = {"source": "192.0.2.9", "protocol": "tcp", "port": 22, "destination": None, "packets": 3, "program": "sshd"}


def reply(**changes: Any) -> dict[str, Any]:
    return {"mode": "report", "traffic": [{**ENTRY, **changes}], "unlisted": 0}


@pytest.mark.parametrize("changes", [{}, {"program": None, "port": 0}, {"port": None, "destination": "2001:db8::1"}])
def test_addresses_ports_and_names_are_accepted(changes: dict[str, Any]) -> None:
    check_reply("firewall_traffic", reply(**changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"source": "0.0.0.0/0"}, "'0.0.0.0/0' is not an address"),
        ({"source": "192.0.2.9]}\n  - {protocol: any"}, "is not an address"),
        ({"destination": "everywhere"}, "'everywhere' is not an address"),
        ({"port": 65536}, "65536 is not a port"),
        ({"program": "sshd\n  - {protocol: any}"}, "protocol and program must be one printable line"),
        ({"protocol": "tcp\n"}, "protocol and program must be one printable line"),
        ({"packets": "many"}, "packets"),
    ],
)
def test_what_could_become_another_line_is_an_error_of_that_host(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError) as refused:
        check_reply("firewall_traffic", reply(**changes))
    assert str(refused.value).startswith("the reply of this host is damaged: ")
    assert problem in str(refused.value)

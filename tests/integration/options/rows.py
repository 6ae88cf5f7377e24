"""Where the effect of each option is seen: a value that is no default, what differs then, and the test that looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.integration.options.host_rows import HOST_ROWS
from tests.integration.options.row import Row
from tests.integration.options.session_rows import SESSION_ROWS

ROWS: Mapping[str, Row] = {**HOST_ROWS, **SESSION_ROWS}


class Bundle(NamedTuple):
    """Tests of this folder that share sessions, or a provisioned host: their file, and how many of these they make."""

    file: str
    sessions: int = 0
    provisionings: int = 0


BUNDLES: Mapping[str, Bundle] = {
    "spread": Bundle("test_session_options.py", sessions=1),
    "host network": Bundle("test_session_options.py", sessions=1),
    "end": Bundle("test_session_options.py", sessions=1),
    "refused": Bundle("test_session_options.py"),
    "racks": Bundle("test_placement_options.py", sessions=2),
    "groups": Bundle("test_placement_options.py", sessions=2),
    "registry": Bundle("test_placement_options.py", sessions=1),
    "queue": Bundle("test_placement_options.py", sessions=2),
    "service": Bundle("test_operator_options.py"),
    "agent": Bundle("test_agent_options.py", sessions=1, provisionings=1),
    "gateway": Bundle("test_gateway_options.py", provisionings=1),
    "manager": Bundle("test_manager_options.py", provisionings=2),
}

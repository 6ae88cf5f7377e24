# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of a session, as the argument specification of the role ``session`` has them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.backendai.cluster.plugins.plugin_utils.host_program import COLLECTION

SPECIFICATION = COLLECTION / "roles" / "session" / "meta" / "argument_specs.yml"


@functools.cache
def specification() -> Mapping[str, Mapping[str, Any]]:
    """Return what the role says of each option, by the name of its variable."""
    options: dict[str, dict[str, Any]] = yaml_load(SPECIFICATION.read_text())["argument_specs"]["main"]["options"]
    return options


def with_defaults(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of a run, and the default of each option that has none there."""
    return {**{name: option["default"] for name, option in specification().items() if "default" in option}, **variables}

"""The documentation of the modules about one session is that of their actions."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.doc_fragments.options import ModuleDocFragment
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import specification

PLUGINS = "ansible_collections.backendai.cluster.plugins"


@pytest.mark.parametrize("name", ["session_logs", "session_token", "session_verify"])
def test_options_are_those_of_the_action_and_each_has_its_variable(name: str) -> None:
    documented = yaml.safe_load(importlib.import_module(f"{PLUGINS}.modules.{name}").DOCUMENTATION)
    action = importlib.import_module(f"{PLUGINS}.action.{name}")
    options: dict[str, Any] = documented["options"]
    if "backendai.cluster.options.look" in documented["extends_documentation_fragment"]:
        options |= yaml.safe_load(ModuleDocFragment.LOOK)["options"]
    described = {
        option: {field: each[field] for field in ("type", "choices") if field in each}
        for option, each in options.items()
    }
    assert described == action.OPTIONS
    for option in {*options} - {"format"}:
        variable = action.VARIABLES[option]
        assert variable in specification()
        assert f"C({variable})" in str(options[option]["description"])

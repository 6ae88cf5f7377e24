"""Runs whole modules of the collection in the process of the test."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args


def result_of(
    module: str, args: dict[str, Any], capsys: pytest.CaptureFixture[str], *, check_mode: bool = False
) -> dict[str, Any]:
    """Run a module of the collection in this process and return the result that it prints."""
    main = importlib.import_module(f"ansible_collections.backendai.cluster.plugins.modules.{module}").main
    with patch_module_args({**args, "_ansible_check_mode": check_mode}), pytest.raises(SystemExit):
        main()
    return dict(json.loads(capsys.readouterr().out))

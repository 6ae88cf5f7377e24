# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Docker SDK for Python, imported on first use.

The import takes 0.1 s of CPU, and the frequent reconciliation of an agent usually needs no engine. If the SDK cannot be
imported, its use raises ImportError, which ``client`` explains. Its errors have stand-ins then, which only match
themselves: what handles one of them must not hide that explanation.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import docker
    import docker.auth
    import docker.credentials
    import docker.errors
    import docker.types
    import docker.utils
else:

    class _Sdk:
        def __getattr__(self, name: str) -> Any:
            try:
                return getattr(importlib.import_module("docker"), name)
            except ImportError:
                if name == "errors":
                    return _StandIns()
                raise

    class _StandInError(OSError):
        def __init__(self, message: str, explanation: str = "") -> None:
            super().__init__(message)
            self.explanation = explanation

    class _StandIns:
        def __getattr__(self, name: str) -> Any:
            return _stand_in(name)

    @functools.cache
    def _stand_in(name: str) -> type:
        return type(name, (_StandInError,), {})

    docker = _Sdk()

__all__ = ["docker"]

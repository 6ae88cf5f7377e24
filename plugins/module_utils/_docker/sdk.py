# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Docker SDK for Python, imported on first use.

The import takes 0.1 s of CPU, and the frequent reconciliation of an agent usually needs no engine. If the SDK is
missing, its first use raises ImportError; ``client.connect`` is always the first.
"""

from __future__ import annotations

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
            return getattr(importlib.import_module("docker"), name)

    docker = _Sdk()

__all__ = ["docker"]

# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the states of a session's containers from the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._docker import labels
from .._docker.containers import exit_code_of
from .._docker.sdk import docker
from .._model.held_session import ContainerState
from .._model.session import STOPPED


def container_states(client: docker.APIClient, own: Mapping[str, Mapping[str, Any]]) -> dict[str, ContainerState]:
    """Return the states of a session's own containers by hostname."""
    return {hostname: _state(client, container) for hostname, container in own.items()}


def _state(client: docker.APIClient, container: Mapping[str, Any]) -> ContainerState:
    ended = container["State"] in STOPPED
    exit_code = exit_code_of(client, container["Id"]) if ended else None
    return ContainerState(container["State"], container["Labels"].get(labels.IMAGE_DIGEST), exit_code)

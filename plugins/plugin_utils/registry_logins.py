# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of ``session_registries`` that an agent receives: the logins to the registries of its images."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.images import Credential, registry_of
from ..module_utils._model.validation import ValidationErrors
from ._request.registries import OPTION, parse_registries


def read_registries(variables: Mapping[str, Any], template: Callable[[Any], Any]) -> dict[str, Credential]:
    """Return the credentials of the variable ``session_registries``, which ``template`` renders.

    It is no option of a task, because Ansible can be told to display those. Raises :class:`AnsibleActionFail` for
    invalid credentials, without their secrets.
    """
    problems = ValidationErrors()
    credentials = parse_registries(problems, template(variables.get(OPTION) or {}))
    if problems:
        raise AnsibleActionFail(str(problems))
    return credentials


def logins_for(images: Iterable[str], credentials: Mapping[str, Credential]) -> dict[str, dict[str, str]]:
    """Return ``username`` and ``password`` for each registry of these images, as far as there are credentials."""
    needed = {registry_of(image) for image in images}
    return {registry: dataclasses.asdict(credentials[registry]) for registry in needed & credentials.keys()}

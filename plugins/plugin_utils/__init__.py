# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Code for the control node. Once its first module is imported, Python imports all of it, and keeps it compiled.

Ansible's own importer compiles each module of a collection from its source, in every run: more than a hundred of these.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType


class CompiledFinder:
    """Finds the modules of this collection that its plugins import, as Python finds those of other packages."""

    PACKAGES = (f"{__name__}.", f"{__name__.rpartition('.')[0]}.module_utils._")

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, or ``None`` if it is none of these."""
        if not name.startswith(cls.PACKAGES):
            return None
        found = (_in_folder(folder).find_spec(name) for folder in path or ())
        return next((spec for spec in found if spec and spec.loader), None)


@functools.cache
def _in_folder(folder: str) -> FileFinder:
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


def _begin() -> None:
    """Let this finder be asked right before Ansible's; where Ansible has none, Python imports all of it anyway."""
    ansible = (at for at, finder in enumerate(sys.meta_path) if type(finder).__module__.startswith("ansible."))
    for at in [*ansible][:1]:
        sys.meta_path.insert(at, CompiledFinder)


_begin()

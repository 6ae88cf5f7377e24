# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sphinx configuration of the documentation site, which `make docs-site` builds."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

project = "backendai.cluster"
author = "backendai.cluster contributors"
project_copyright = "backendai.cluster contributors"

extensions = ["myst_parser", "sphinx_antsibull_ext"]
root_doc = "index"
include_patterns = [
    "index.md",
    "*.md",
    "CHANGELOG.rst",
    "docs/*.md",
    "playbooks/*.md",
    "roles/*/README.md",
    "reference/*.rst",
]
nitpicky = True
show_warning_types = True
# Anchors as GitHub makes them, so that a link works in both places.
myst_heading_anchors = 6
# Of Ansible itself, as those in ANSIBLE_PAGES.
nitpick_ignore_regex = [("envvar", "ANSIBLE_[A-Z_]+")]

html_theme = "sphinx_rtd_theme"
html_title = "backendai.cluster"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_depth": 2}
html_copy_source = False
html_show_sphinx = False
html_use_index = False
pygments_style = "ansible"

ANSIBLE = "https://docs.ansible.com/projects/ansible/latest/"
ANSIBLE_PAGES = {
    "action_plugins": "plugins/action.html",
    "ansible_configuration_settings": "reference_appendices/config.html",
    "common_return_values": "reference_appendices/common_return_values.html",
}
"""Where the labels are that pages of antsibull-docs refer to; an inventory of intersphinx would need a network."""


def link_ansible(_app: Sphinx, _env: Any, node: nodes.Element, content: nodes.Element) -> nodes.reference | None:
    """Return a link to the documentation of Ansible for a label that is defined there."""
    target = node.get("reftarget", "")
    plugin = re.fullmatch(r"ansible_collections\.ansible\.builtin\.(\w+)", target)
    page = f"collections/ansible/builtin/{plugin[1]}.html" if plugin else ANSIBLE_PAGES.get(target)
    return nodes.reference("", "", content, internal=False, refuri=f"{ANSIBLE}{page}") if page else None


def setup(app: Sphinx) -> None:
    app.connect("missing-reference", link_ansible)

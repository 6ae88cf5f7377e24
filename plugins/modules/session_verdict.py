#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say how a creation ended."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_verdict
short_description: Say how a creation ended, and fail where it failed
version_added: 0.1.0
description:
  - A session that had to wait may have been started meanwhile, and one that was waited for has ended. The last
    record is written then.
  - Fails when the session failed, and when a command that was waited for did.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.manager.queue
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: The record is a report.
options:
  record:
    description: The record, as M(backendai.cluster.session_record) returned it.
    type: dict
    required: true
  error:
    description: What went wrong, as M(backendai.cluster.session_record) returned it.
    type: str
    default: ""
  started:
    description: The records of the sessions that this run has started after that.
    type: list
    elements: dict
    default: []
  waited:
    description: Whether the end of the session was waited for.
    type: bool
    default: false
  links:
    description:
      - The ways in that each gateway has opened, by its name, as M(backendai.cluster.gateway_routes) said them.
    type: dict
    default: {}
  access_path:
    description: The file to write RV(access) to, as JSON; empty for none.
    type: path
    default: ""
  host_key:
    description: The public half of main1's host key, for people who come in by a gateway.
    type: str
    default: ""
  path:
    description: The file to write; empty for none.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Say how it ended
  backendai.cluster.session_verdict:
    record: "{{ recorded.record }}"
    error: "{{ recorded.error or '' }}"
"""

RETURN = r"""
record:
  description: The last record.
  returned: success
  type: dict
access:
  description:
    - The ways in to a session that runs, one for each gateway. Its C(ssh) has C(host) and C(port), and each of its
      C(apps) a C(name) and a C(url), which is V(null) for an app that speaks no HTTP.
  returned: success
  type: list
  elements: dict
"""

# The work is done by the action plugin of the same name, on the control node.

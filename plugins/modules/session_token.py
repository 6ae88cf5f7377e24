#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_token
short_description: Issue an access token for a session
version_added: 0.2.0
description:
  - Has a gateway sign a token, and writes it to a file on the control node that only its owner can read. The token
    gives access to one session on every gateway of the group until it expires. It cannot be revoked before, except by
    the end of the session or a new key of the gateway.
  - The token is not in the result, nor in Ansible's log, and nothing but O(format) shows it, not even C(-vvv); only
    C(ANSIBLE_DEBUG) does, as it does for any task with C(no_log).
  - Runs once, on the control node, and asks the first gateway that can be reached. Put it into a play with
    C(hosts=localhost), or set C(run_once=true). In a play with several hosts it is refused without that.
  - Gateways are the hosts that the pattern in the variable C(gateway_group) matches, or else those of the group
    C(gateways). Each is reached as a task on it would be, as with M(backendai.cluster.session_info).
extends_documentation_fragment:
  - backendai.cluster.attributes.agents
attributes:
  action:
    description: Runs on the control node, and asks the program on a gateway itself.
  check_mode:
    details: Nothing is signed or written.
options:
  name:
    description: The name of the session; this or O(id) is required. By default the variable C(session_name).
    type: str
  id:
    description: The id of the session, instead of its name. By default the variable C(session_id).
    type: str
  ttl:
    description: The lifetime of the token in seconds, or such as V(12h) or V(7d); 60 to 2592000 seconds. By default the
      variable C(session_token_ttl), else V(3600).
    type: str
  path:
    description:
      - The file on the control node for the token, which is followed by a newline. Required, unless the variable
        C(session_token_path) is set.
      - With a name that ends in C(.json), it is a mapping with C(token), C(session), C(links) and C(expires_at).
    type: path
  format:
    description: With V(text), shows a link for each app, which has the token in it and opens the app in a browser until
      the token expires, on the screen only.
    type: str
    choices: [text]
"""

EXAMPLES = r"""
- name: Ask an app of a session for its status
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Write a token that is valid for ten minutes
      backendai.cluster.session_token:
        name: train-llm
        ttl: 600
        path: train-llm.token
      register: issued

    - name: Ask the app
      ansible.builtin.uri:
        url: "{{ issued.links.apps[0].url }}"
        headers:
          Authorization: "Bearer {{ lookup('ansible.builtin.file', issued.path) }}"
      no_log: true
"""

RETURN = r"""
session:
  description: The id and the name of the session.
  returned: success
  type: dict
  sample: {id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a, name: train-llm}
links:
  description: How users reach the session through this gateway, without the token.
  returned: success
  type: dict
  sample:
    id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a
    name: train-llm
    ssh: {host: gateway.example.com, port: 31001}
    apps: [{name: jupyter, protocol: http, url: "https://gateway.example.com/s/train-llm/jupyter/"}]
expires_at:
  description: When the token expires, in seconds since the epoch.
  returned: success
  type: int
  sample: 1772337597
path:
  description: The file with the token.
  returned: success
  type: str
  sample: /home/ada/train-llm.token
refused:
  description: Whether an option is not valid, so that no gateway was asked.
  returned: if it is so
  type: bool
"""

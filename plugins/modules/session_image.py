#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: session_image
short_description: Pull images on an agent, or remove those that nothing needs
description:
  - "Internal: called by the playbooks of this collection."
  - Starts to pull an image if the agent does not have it, and shows the progress. A background process on the agent
    pulls; it ends when no run asks for the image any more.
  - With O(state=present), O(images) are pulled before a session needs them, as sessions would pull them. An image that
    another agent has is pulled by its digest.
  - With O(state=absent), images are removed that came to the agent with sessions, and that no container, no session and
    none of O(images) needs, nor a request for a session has looked for within the last hour.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
  - backendai.cluster.attributes.group
attributes:
  check_mode:
    details: Nothing is pulled or removed.
options:
  state:
    description: Whether images are pulled before they are needed, or removed.
    type: str
    choices: [present, absent]
    default: present
  images:
    description: The images to pull, for O(state=present), or those that stay, for O(state=absent).
    type: list
    elements: str
  agents:
    description:
      - The inventory names of all agents, for O(state=present). Their images are read from the variables
        C(__session_agent) and C(__agent_images) of each.
    type: list
    elements: str
  unused_days:
    description: For how many days an image that is removed was not needed; V(0) for none by this rule.
    type: int
    default: 30
  free_space:
    description:
      - The space that should be free where the engine keeps its images, as V(100g). Until it is, the image that was not
        needed for the longest time is removed.
    type: str
    default: ""
  others:
    description: Whether images are removed, too, that did not come with sessions.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Pull images before sessions need them
  backendai.cluster.session_image:
    state: present
    images: ["registry.example.com/pytorch:2.3"]
    agents: "{{ groups['agents'] }}"
  register: __agent_images
"""

RETURN = r"""
images: {type: dict, returned: with O(state=present), description: "The images on this agent, by name."}
missing: {type: list, elements: str, returned: with O(state=present), description: The images that could not be pulled.}
removed: {type: list, elements: dict, returned: with O(state=absent),
  description: "The C(name) and C(size) of each image that was removed, and for how many days it was not needed."}
kept: {type: list, elements: str, returned: with O(state=absent), description: "What the engine kept, and why."}
folder: {type: str, returned: with O(state=absent), description: Where the engine keeps its images.}
free_before: {type: int, returned: with O(state=absent), description: "How many bytes were free there."}
free: {type: int, returned: with O(state=absent), description: "How many bytes are free there."}
"""

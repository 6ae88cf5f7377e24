# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of agents as operators see them: what they ask for, and what was removed and left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.facts import AgentFacts
from ..module_utils._model.images import ImageIdentity, images_from_dict
from ..module_utils._model.plain_data import DataError
from ..module_utils._model.quantity import format_size, parse_bytes

SURVEYED, PREFETCHED = "__session_agent", "__agent_images"
"""The variables of each agent with its facts, and with the images that it has pulled in this run."""


def parse_names(names: Sequence[str]) -> list[str]:
    """Return the names of images, each once. Raises :class:`AnsibleActionFail` with one sentence."""
    parsed = list(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not parsed:
        raise AnsibleActionFail("agent_images is required: the images to pull, as a list or comma-separated.")
    for name in parsed:
        if not name.isprintable() or " " in name:
            raise AnsibleActionFail(f"agent_images: {name!r} is not the name of an image.")
    return parsed


def known_images(
    agents: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, ImageIdentity]]:
    """Return the images that agents had when they were read, or have pulled in this run; damaged facts are none."""
    known: dict[str, dict[str, ImageIdentity]] = {}
    for agent in agents:
        variables = hostvars[agent]
        try:
            facts = AgentFacts.from_dict(agent, (variables.get(SURVEYED) or {}).get("agent"))
            held = {name: image for name, image in facts.images.items() if image}
        except DataError:
            held = {}
        pulled = (variables.get(PREFETCHED) or {}).get("images") or {}
        known[agent] = {**held, **images_from_dict({agent: pulled})[agent]}
    return known


def parse_rules(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return which images go, as the program on hosts takes it. Raises :class:`AnsibleActionFail` with one sentence."""
    days, space = options["unused_days"], options["free_space"]
    if days < 0:
        raise AnsibleActionFail(f"agent_image_unused_days: {days} must be 0 or more.")
    try:
        free_bytes = parse_bytes(space) if space else 0
    except ValueError as error:
        raise AnsibleActionFail(f"agent_image_free_space: {space!r} {error}.") from None
    return {"unused_days": days, "free_bytes": free_bytes, "needed": options["images"], "others": options["others"]}


def describe_pruned(reply: Mapping[str, Any], *, check_mode: bool) -> Iterator[str]:
    """Yield a line for each image that was removed, and one about the result."""
    would = "would be " if check_mode else ""
    for image in reply["removed"]:
        days = image["unused_days"]
        unused = f"not needed for {days} day{'s' if days != 1 else ''}"
        yield f"{image['name']} {would or 'was '}removed, {format_size(image['size'])}, {unused}."
    count, are = len(reply["removed"]), "at most {} would be" if check_mode else "{} are"
    free = f"{are.format(format_size(reply['free']))} free in {reply['folder']}"
    yield f"{count or 'no'} image{'s' if count != 1 else ''} {would}removed, {free}."


def describe_left(reply: Mapping[str, Any], free_bytes: int) -> Iterator[str]:
    """Yield a sentence for each image that the engine kept, and one if there is less room than was asked for."""
    yield from reply["kept"]
    if reply["free"] < free_bytes:
        yield (
            f"{format_size(reply['free'])} are free in {reply['folder']}, less than agent_image_free_space,"
            f" {format_size(free_bytes)}: the images that are left are needed, or did not come with sessions."
        )

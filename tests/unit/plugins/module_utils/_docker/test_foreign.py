"""What others have in an engine."""

from __future__ import annotations

from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.foreign import list_foreign, running_foreign

OURS = {labels.OWNER: labels.OWNER_VALUE}


class Engine:
    """An engine with two containers of this collection, and one that is about to go."""

    def containers(self, **_query: Any) -> list[dict[str, Any]]:
        return [
            {"Id": "1", "Names": ["/main1"], "Labels": OURS},
            {"Id": "2", "Names": ["/web"], "Labels": {}},
            {"Id": "3", "Names": None, "Labels": None},
            {"Id": "4", "Names": ["/backendai-look-1"], "Labels": {labels.OWNER: labels.LOOK_VALUE}},
        ]

    def volumes(self) -> dict[str, Any]:
        return {"Volumes": [{"Name": "data"}]}

    def inspect_container(self, _name: str) -> dict[str, Any]:
        return {"HostConfig": {}, "State": {"Pid": 1}}


ENGINE: Any = Engine()


def test_containers_and_volumes_of_others_are_named_even_one_that_has_no_name_any_more() -> None:
    assert list_foreign(ENGINE) == ["container 3", "container web", "volume data"]
    assert [container.name for _id, _process, container in running_foreign(ENGINE)] == ["web", "3"]

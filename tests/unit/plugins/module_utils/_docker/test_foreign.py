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
            {"Id": "1", "Names": ["/main1"], "Labels": OURS, "State": "running"},
            {"Id": "2", "Names": ["/web"], "Labels": {}, "State": "running"},
            {"Id": "3", "Names": None, "Labels": None, "State": "running"},
            {"Id": "4", "Names": ["/saved"], "Labels": OURS, "State": "exited"},
            {
                "Id": "5",
                "Names": ["/backendai-look-1"],
                "Labels": {labels.OWNER: labels.LOOK_VALUE},
                "State": "created",
            },
        ]

    def volumes(self) -> dict[str, Any]:
        return {"Volumes": [{"Name": "data"}]}

    def inspect_container(self, _name: str) -> dict[str, Any]:
        return {"HostConfig": {}, "State": {"Pid": 1}}


ENGINE: Any = Engine()


def test_containers_and_volumes_are_named_whatever_their_labels_even_one_that_has_no_name_any_more() -> None:
    containers = ["container 3", "container main1", "container saved", "container web"]
    assert list_foreign(ENGINE) == [*containers, "volume data"]


def test_what_runs_and_is_not_ours_is_foreign_whatever_its_labels() -> None:
    assert [each.name for _id, _process, each in running_foreign(ENGINE, ["1"])] == [
        "web",
        "3",
        "saved",
        "backendai-look-1",
    ]

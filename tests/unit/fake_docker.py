"""Fake Docker API client with the methods that the adapters call; its state is a few lists."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from docker.errors import ImageNotFound, NotFound

from tests.unit.builders import IMAGE

NEVER = "0001-01-01T00:00:00Z"


class Images(dict[str, dict[str, Any]]):
    """The images of an engine by name; called, it lists them as the API does."""

    def __call__(self, **_filters: Any) -> list[dict[str, Any]]:
        return [{"Id": image["Id"]} for image in self.values()]


class FakeDocker:
    """Replaces ``docker.APIClient``. ``calls`` lists the calls that change state, in order."""

    def __init__(self, images: dict[str, dict[str, Any]] | None = None) -> None:
        ordinary = {IMAGE: {"Id": "sha256:1", "Config": {"Env": ["PATH=/bin"]}}}
        self.images = Images(ordinary if images is None else images)
        self.made: list[dict[str, Any]] = []
        self._order = threading.Lock()
        self.joined: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.asked: list[dict[str, Any]] = []

        self.registry: dict[str, dict[str, Any]] = {}
        """Results of pulls, by reference: an image, or ``{"error": …}``, after ``{"lines": […]}``."""

        self.swarm: dict[str, Any] = {"LocalNodeState": "inactive"}
        self.cdi_folders: list[str] = []
        self.cgroup_driver = "cgroupfs"
        self.log_driver = "json-file"
        self.api_version = "1.41"
        self.server_version = "20.10.24"
        self.security_options: list[str] = []

    def info(self) -> dict[str, Any]:
        known = {"Swarm": self.swarm, "CDISpecDirs": self.cdi_folders, "LoggingDriver": self.log_driver}
        asked = {"CgroupDriver": self.cgroup_driver, "ServerVersion": self.server_version}
        return {**known, **asked, "SecurityOptions": self.security_options}

    def version(self) -> dict[str, str]:
        return {"Version": self.server_version, "ApiVersion": self.api_version}

    def inspect_image(self, name: str) -> dict[str, Any]:
        if name not in self.images:
            raise ImageNotFound(f"No such image: {name}")
        return self.images[name]

    def pull(
        self, repository: str, tag: str, *, stream: bool, decode: bool, auth_config: dict[str, str] | None
    ) -> Iterator[dict[str, Any]]:
        assert stream, "the end of a pull is its last line"
        assert decode, "lines are read as mappings"
        assert auth_config is not None, "the SDK would use the login of this host"
        reference = f"{repository}{'@' if tag.startswith('sha256:') else ':'}{tag}"
        self.calls.append(f"pull {reference}{f' as {auth_config}' if auth_config else ''}")
        pulled = dict(self.registry.get(reference, {"error": f"manifest for {reference} not found\n"}))
        yield from pulled.pop("lines", [])
        if "error" in pulled:
            yield {"error": pulled["error"]}
        elif pulled:
            self.images[reference] = pulled

    def tag(self, image: str, repository: str, tag: str | None) -> None:
        self.calls.append(f"tag {image} {repository}:{tag or 'latest'}")
        self.images[f"{repository}:{tag}" if tag else repository] = self.images[image]

    def containers(self, **options: Any) -> list[dict[str, Any]]:
        listed = [container for container in self.made if _matches(container, options.get("filters"))]
        return [container for container in listed if options.get("all") or container["State"] == "running"]

    def create_host_config(self, **settings: Any) -> dict[str, Any]:
        return settings

    def create_container(self, image: str, name: str, *, labels: dict[str, str], **settings: Any) -> dict[str, str]:
        return self.create_container_from_config({"Image": image, "Labels": labels, **settings}, name)

    def create_container_from_config(self, config: dict[str, Any], name: str) -> dict[str, str]:
        self.calls.append(f"create {name}")
        self.asked.append({"name": name, **config})
        labels = config["Labels"]
        # Containers are created in parallel; tests find one by its place.
        with self._order:
            self.made.append({"Id": f"id-{name}", "Names": [f"/{name}"], "Labels": labels, "State": "created"})
            self.made.sort(key=lambda container: str(container["Names"]))
        return {"Id": f"id-{name}"}

    def connect_container_to_network(self, container: str, network: str) -> None:
        self.calls.append(f"connect {container} to {network}")

    def start(self, container: str) -> None:
        self.calls.append(f"start {container}")
        self._container(container).update(State="running", StartedAt=f"after call {len(self.calls)}")

    def kill(self, container: str, signal: str = "SIGKILL") -> None:
        self.calls.append(f"{'kill' if signal == 'SIGKILL' else signal} {container}")
        if signal == "SIGKILL" or not self._container(container).get("Stubborn"):
            self._container(container).update(State="exited", Pid=0)

    def remove_container(self, container: str, *, force: bool, v: bool) -> None:
        assert force, "a running container is removed by force only"
        assert v, "anonymous volumes would be left behind"
        self.calls.append(f"remove {container}")
        self.made.remove(self._container(container))

    def inspect_container(self, container: str) -> dict[str, Any]:
        entry = self._container(container)
        state = {key: entry[key] for key in ("Pid", "ExitCode", "FinishedAt", "StartedAt") if key in entry}
        endpoint = {"IPAddress": "172.18.0.2", "IPPrefixLen": 16, "MacAddress": "02:42:AC:12:00:02"}
        return {
            "Id": container,
            "Image": entry.get("ImageID", "sha256:1"),
            "Config": {"Labels": entry["Labels"]},
            "HostConfig": entry.get("HostConfig", {}),
            "GraphDriver": entry.get("GraphDriver", {"Name": "overlay2", "Data": {"UpperDir": "/nothing/diff"}}),
            "State": {"ExitCode": 0, "FinishedAt": NEVER, "StartedAt": NEVER, "Pid": 42, **state},
            "NetworkSettings": {"Networks": {"backendai-default": {**endpoint, "Gateway": "172.18.0.1"}}},
        }

    def logs(
        self, container: str, *, tail: int | str, timestamps: bool, stream: bool, follow: bool, **_options: Any
    ) -> Any:
        assert (stream, follow) == (True, False), "logs are streamed and not followed"
        log = self._container(container).get("Log", [])
        if isinstance(log, Exception):
            raise log
        return (when + line if timestamps else line for when, line in log[-tail if isinstance(tail, int) else None :])

    def networks(self, filters: dict[str, list[str]] | None = None) -> list[dict[str, Any]]:
        return [network for network in self.joined if _matches(network, filters)]

    def create_network(self, name: str, **settings: Any) -> None:
        self.calls.append(f"create network {name}")
        self.asked.append({"name": name, **settings})
        network = {"Driver": settings["driver"], "Labels": settings["labels"], "IPAM": settings["ipam"]}
        network["Options"] = settings.get("options")
        self.joined.append({"Id": f"id-{name}-0123456789", "Name": name, **network})

    def remove_network(self, network: str) -> None:
        self.calls.append(f"remove network {network}")
        self.joined = [entry for entry in self.joined if entry["Id"] != network]

    def _container(self, container: str) -> dict[str, Any]:
        for entry in self.made:
            if entry["Id"] == container:
                return entry
        raise NotFound(f"No such container: {container}")


def _matches(item: dict[str, Any], filters: dict[str, list[str]] | None) -> bool:
    """Return whether an item has all labels of a filter, each ``name`` or ``name=value``."""
    labels = item["Labels"] or {}
    required = (label.partition("=") for label in (filters or {}).get("label", []))
    return all(name in labels and (not sign or labels[name] == value) for name, sign, value in required)


def environment_of(request: dict[str, Any]) -> dict[str, str | None]:
    """Return the variables that a container is asked for with; ``None`` is one that it does not get from its image."""
    pairs = (line.partition("=") for line in request["Env"])
    return {name: value if sign else None for name, sign, value in pairs}

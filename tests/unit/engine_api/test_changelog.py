"""Lines of the changelog of the engine's API that touch what the collection asks or reads, one by one.

The lines are quoted from ``api/docs/CHANGELOG.md`` of github.com/moby/moby, below the version that they name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import docker
import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import container, containers, images, networks
from ansible_collections.backendai.cluster.plugins.module_utils._docker.api_version import newer_than_known
from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError, connect
from ansible_collections.backendai.cluster.plugins.module_utils._docker.image_store import image_folder
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.engine_rules import untried_rules
from ansible_collections.backendai.cluster.plugins.module_utils._host import accelerators
from tests.unit.engine_api.calls import MAC, MAIN, NETWORK, bridge, desired
from tests.unit.engine_api.engine import CONFIG, INDEX, NAME, ApiEngine

Serve = Callable[..., tuple[Any, ApiEngine]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return what starts an engine of a version, and connects to it."""
    with ExitStack() as stack:

        def start(newest: str, **settings: Any) -> tuple[Any, ApiEngine]:
            engine = stack.enter_context(ApiEngine(tmp_path / f"{newest}.sock", newest, **settings).serving())
            return connect(engine.url), engine

        yield start


# ---- which version is named


@pytest.mark.parametrize(
    ("newest", "oldest", "named"),
    [
        ("1.41", "1.12", "1.41"),  # engine 20.10
        ("1.45", "1.24", "1.45"),  # 26.1
        ("1.51", "1.24", "1.51"),  # 28.5
        ("1.52", "1.44", "1.52"),  # 29.0, which takes none below 1.44
        ("1.99", "1.44", "1.56"),
    ],
)
def test_the_newest_version_that_both_know_is_named(serve: Serve, newest: str, oldest: str, named: str) -> None:
    client, engine = serve(newest, oldest=oldest)
    client.info()
    client.volumes()
    assert client.api_version == named
    paths = [target for _method, target, _body in engine.asked if target != "/_ping"]
    assert paths == [f"/v{named}/info", f"/v{named}/volumes"]


def test_an_engine_that_is_older_than_the_oldest_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ApiEngine(tmp_path / "docker.sock", "1.40").serving() as engine:
        sentence = (
            f"the Docker engine at {engine.url} is too old: it knows its API up to 1.40, and backendai.cluster needs"
            " 1.41, which engine 20.10 and newer ones know: upgrade the engine."
        )
        with pytest.raises(DockerUnavailableError) as raised:
            connect(engine.url)
        assert str(raised.value) == sentence
        monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
        with pytest.raises(DockerUnavailableError) as raised:
            connect(engine.url)
        assert str(raised.value) == sentence


def test_an_engine_that_is_newer_than_the_newest_is_worth_a_warning() -> None:
    assert newer_than_known("1.56") == newer_than_known("1.41") == ""
    assert newer_than_known("1.57") == (
        "the engine is newer than this version of backendai.cluster: it knows API 1.57, and is called by API 1.56, the"
        " newest that has been looked at; upgrade backendai.cluster when there is a newer version."
    )


def test_an_engine_that_has_given_up_all_that_are_known_says_so_itself(serve: Serve) -> None:
    client, _engine = serve("1.99", oldest="1.90")
    with pytest.raises(docker.errors.APIError, match=r"Minimum supported API version is 1\.90"):
        client.info()


# ---- containers


@pytest.mark.parametrize("version", ["1.41", "1.43", "1.44", "1.51", "1.52", "1.54"])
def test_a_container_gets_the_mac_address_of_its_session_network(serve: Serve, version: str) -> None:
    """1.44: "A new endpoint-specific MacAddress field has been added", 1.52: "no longer supports … container-wide"."""
    client, engine = serve(version)
    container.create_container(client, desired(client))
    assert engine.macs == {NETWORK: MAC}
    endpoint = engine.created["NetworkingConfig"]["EndpointsConfig"][NETWORK]
    old = version in ("1.41", "1.43")
    assert (engine.created.get("MacAddress"), endpoint.get("MacAddress")) == ((MAC, None) if old else (None, MAC))
    assert endpoint["IPAMConfig"] == {"IPv4Address": "10.128.3.2"}


def test_a_mac_address_does_not_depend_on_the_sdk(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of Debian 12, 5.0.3, knows none at an endpoint."""
    client, engine = serve("1.52")

    def of_an_old_sdk(_self: Any, **settings: Any) -> Any:
        assert not settings.get("mac_address")
        return {}

    monkeypatch.setattr(docker.APIClient, "create_endpoint_config", of_an_old_sdk)
    container.create_container(client, desired(client))
    assert engine.macs == {NETWORK: MAC}


@pytest.mark.parametrize("version", ["1.41", "1.42", "1.44", "1.52"])
def test_options_of_mounts_are_of_their_type(serve: Serve, version: str) -> None:
    """1.42: "rejects request if BindOptions|VolumeOptions|TmpfsOptions is set with a non-matching mount Type"."""
    client, engine = serve(version)
    container.create_container(client, desired(client))
    mounts = engine.created["HostConfig"]["Mounts"]
    options = [mount["BindOptions"] for mount in mounts if "BindOptions" in mount]
    # 1.44: BindOptions.ReadOnlyForceRecursive.
    new = version in ("1.44", "1.52")
    assert options == ([{"Propagation": "rprivate", "ReadOnlyForceRecursive": True}] if new else [])


def test_published_ports_have_bindings(serve: Serve) -> None:
    """1.52: "A future API version will drop empty PortBindings list altogether"."""
    client, engine = serve("1.52")
    container.create_container(client, desired(client))
    assert engine.created["HostConfig"]["PortBindings"] == {"22/tcp": [{"HostIp": "192.0.2.1", "HostPort": "30000"}]}
    container.create_container(client, dataclasses.replace(desired(client), published=()))
    assert engine.created["HostConfig"]["PortBindings"] == {}


@pytest.mark.parametrize("version", ["1.51", "1.52"])
def test_addresses_of_a_container_are_those_of_its_networks(serve: Serve, version: str) -> None:
    """1.52: "the NetworkSettings no longer returns the deprecated … IPAddress … and MacAddress fields"."""
    client, _engine = serve(version)
    endpoint = containers.inspect(client, "c")["NetworkSettings"]["Networks"][MAIN.default_network]
    assert (endpoint["IPAddress"], endpoint["MacAddress"]) == ("172.18.0.2", "02:42:ac:12:00:02")


# ---- networks


@pytest.mark.parametrize(("version", "said"), [("1.41", True), ("1.43", True), ("1.44", None), ("1.52", None)])
def test_a_network_whose_name_exists_is_refused(serve: Serve, version: str, said: bool | None) -> None:
    """1.44: "a duplicated name now fails systematically … the CheckDuplicate field is now deprecated"."""
    client, engine = serve(version)
    networks.create_network(client, bridge())
    assert engine.asked[-1][2].get("CheckDuplicate") == said
    with pytest.raises(docker.errors.APIError, match="already exists"):
        networks.create_network(client, bridge())


# ---- images


@pytest.mark.parametrize("version", ["1.43", "1.44", "1.45", "1.49", "1.50", "1.52"])
def test_an_image_is_the_same_whatever_an_engine_says_beside_it(serve: Serve, version: str) -> None:
    """1.44: VirtualSize, 1.45: ContainerConfig, 1.50: fields of Config, 1.52: those that are not set, are left out."""
    image = images.find_image(serve(version)[0], NAME)
    assert image is not None
    assert (image.argv, image.environment, image.volumes, image.folder) == (("python3",), {"PATH": "/bin"}, (), "/")
    assert (image.id, image.size) == (CONFIG, 300)
    other = images.find_image(serve("1.41")[0], NAME)
    assert other is not None
    assert image.content == other.content != ""


@pytest.mark.parametrize("version", ["1.47", "1.48", "1.56"])
def test_the_error_of_a_pull_is_read_from_its_detail(serve: Serve, version: str) -> None:
    """1.48: "The error and progress fields in streaming responses … Users should use … errorDetail"."""
    client, engine = serve(version)
    engine.failing = {NAME: "toomanyrequests: slow down"}
    with pytest.raises(images.ImagePullError, match=r"cannot be pulled \(toomanyrequests: slow down\)"):
        images.pull_image(client, NAME, NAME, {}, lambda _line: None)


@pytest.mark.parametrize("version", ["1.45", "1.48", "1.52"])
def test_an_image_in_a_containerd_is_known_by_its_content(serve: Serve, version: str) -> None:
    """Engine 29: "the containerd image store is the default"; its ids and digests are those of manifests (#45122)."""
    ours = images.find_image(serve("1.41")[0], NAME)
    client, _engine = serve(version, containerd=True)
    theirs = images.find_image(client, NAME)
    assert ours is not None
    assert theirs is not None
    assert (ours.id, theirs.id, theirs.in_containerd, ours.in_containerd) == (CONFIG, INDEX, True, False)
    assert theirs.identity.content == ours.identity.content
    assert theirs.identity.may_be_loaded
    # 4f7f31e7b7: until then "image inspect calculated Size from the … packed descriptors only", unlike the list.
    assert (theirs.size, images.disk_usage(client, theirs)) == (100, 300)


def test_a_digest_that_no_registry_has_falls_back_to_the_tag(serve: Serve) -> None:
    """#48747: a loaded image has a RepoDigest, too."""
    client, engine = serve("1.52", containerd=True)
    digest = f"{NAME.rpartition(':')[0]}@{INDEX}"
    engine.failing = {digest: "manifest unknown"}
    images.pull_image(client, NAME, digest, {}, lambda _line: None)
    pulls = [target for method, target, _body in engine.asked if "/images/create?" in target and method == "POST"]
    assert [target.partition("?tag=")[2].partition("&")[0] for target in pulls] == [INDEX.replace(":", "%3A"), "1"]


# ---- the engine's information


def test_cdi_folders_are_those_that_the_engine_says(serve: Serve) -> None:
    """1.44: "GET /info now includes a CDISpecDirs field"."""
    folders = [containers.cdi_folders(serve(version)[0].info()) for version in ("1.43", "1.44")]
    assert folders == [[], ["/etc/cdi"]]
    assert accelerators.named_gpus([]) == frozenset()


def test_an_engine_with_nftables_is_detected_from_the_version_on_that_says_it(serve: Serve) -> None:
    """1.49: "GET /info now returns a FirewallBackend"."""
    backends = {"nftables": True, "nftables+firewalld": True, "iptables": False, "iptables+firewalld": False}
    for driver, untried in backends.items():
        assert bool(untried_rules({"FirewallBackend": {"Driver": driver}})) == untried
    for version, said in (("1.48", False), ("1.49", True)):
        client, engine = serve(version)
        engine.info = {"FirewallBackend": ("1.49", {"Driver": "nftables"})}
        assert bool(untried_rules(client.info())) == said


@pytest.mark.parametrize("version", ["1.45", "1.46"])
def test_the_store_is_that_of_the_containerd_that_the_engine_names(serve: Serve, version: str) -> None:
    """1.46: "GET /info now includes a Containerd field containing information about the location of the … socket"."""
    client, engine = serve(version)
    engine.info = {
        "DriverStatus": ("1.41", [["driver-type", "io.containerd.snapshotter.v1"]]),
        "Containerd": ("1.46", {"Address": "/var/run/docker/containerd/containerd.sock"}),
    }
    own = "/var/lib/docker/containerd/daemon"
    assert image_folder(client.info()) == (own if version == "1.46" else "/var/lib/containerd")

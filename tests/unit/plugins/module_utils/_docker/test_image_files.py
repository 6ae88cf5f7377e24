"""Looks at files of an image through a container that never starts, by an engine on a real socket that may hang."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import image_files as looking
from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.image_files import (
    ImageFiles,
    ImageLookError,
    image_files,
    remove_look,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.image_paths import DEVICE, FIFO, SOCKET, Entry
from tests.unit.engine_server import EngineServer
from tests.unit.image_tree import Node, file, image_with, link

NAME = "backendai-look-1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EngineServer]:
    with EngineServer(tmp_path / "docker.sock").serving() as serving:
        yield serving


@pytest.fixture
def client(server: EngineServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(looking, "SECONDS", 1)
    return docker.APIClient(server.url, version="1.41", timeout=1)


@pytest.fixture
def files(client: Any) -> Iterator[ImageFiles]:
    with image_files(client, "sha256:1", NAME, ()) as looked:
        yield looked


@pytest.mark.parametrize(
    ("node", "entry"),
    [
        (file("root"), Entry("file", 0o644, 4)),
        (Node("folder", mode=0o700), Entry("folder", 0o700)),
        (link("/x"), Entry("link", 0o755, 0, "/x")),
        (Node(FIFO), Entry(FIFO, 0o755)),
        (Node(DEVICE), Entry(DEVICE, 0o755)),
        (Node(SOCKET), Entry(SOCKET, 0o755)),
    ],
)
def test_each_kind_of_path_is_told(server: EngineServer, files: ImageFiles, node: Node, entry: Entry) -> None:
    server.image["/x"] = node
    assert files.entry("/x") == entry
    assert files.entry("/nothing") is None


def test_the_container_never_starts_and_is_removed(server: EngineServer, client: Any) -> None:
    volumes = ("/data/", "/a//b", "//odd", "///../x/./y/../z")
    with image_files(client, "sha256:1", NAME, volumes):
        (made,) = server.created
    assert made["name"] == NAME
    assert made["Image"] == "sha256:1"
    assert made["Entrypoint"] == ["/never"]
    assert made["HostConfig"]["NetworkMode"] == "none"
    assert made["HostConfig"]["Tmpfs"] == {"/data": "", "/a/b": "", "/odd": "", "/x/z": ""}, "volumes are not filled"
    assert server.looks == {}
    assert not any("/start" in path for path, _query in server.asked)


@pytest.mark.usefixtures("files")
def test_the_container_is_of_no_session_whatever_labels_its_image_has(server: EngineServer) -> None:
    assert server.created[0]["Labels"] == {labels.OWNER: labels.LOOK_VALUE}
    assert f"{labels.OWNER}={labels.LOOK_VALUE}" not in labels.label_filter()["label"]


def test_files_are_read_up_to_a_limit(server: EngineServer, files: ImageFiles) -> None:
    server.image["/x"] = file(b"\xff" * 5000)
    assert files.read("/x", 5000) == b"\xff" * 5000
    problem = r"^has 5000 bytes in /x, and at most 4999 are read: build the image with a smaller file$"
    with pytest.raises(ImageLookError, match=problem):
        files.read("/x", 4999)


def test_a_large_file_is_not_read_to_its_end(server: EngineServer, files: ImageFiles) -> None:
    server.image["/x"] = file(b"x" * (8 << 20))
    with pytest.raises(ImageLookError, match=r"^has 8388608 bytes in /x, "):
        files.read("/x", 10)


def test_owners_are_told_of_folders_of_any_size(server: EngineServer, files: ImageFiles) -> None:
    server.image["/home"] = Node("folder", uid=1000, gid=100)
    server.image["/home/large"] = file(b"x" * (2 << 20))
    assert files.owner("/home") == (1000, 100)


def test_an_archive_is_passed_on_as_it_is(server: EngineServer, files: ImageFiles) -> None:
    server.image = image_with({"/home/work/a": file("text"), "/home/work/l": link("a")})
    with files.chunks("/home/work") as chunks:
        content = b"".join(chunks)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == ["work", "work/a", "work/l"]


@pytest.mark.parametrize("kind", [FIFO, "link", "folder"])
def test_what_is_no_file_is_not_read(server: EngineServer, files: ImageFiles, kind: str) -> None:
    server.image["/x"] = Node(kind, target="/etc/passwd" if kind == "link" else "")
    with pytest.raises(ImageLookError, match="describes /x in a form that is not known"):
        files.read("/x", 10)


@pytest.mark.parametrize("cut", [0, 100, 600])
def test_an_archive_that_is_cut_is_an_error(server: EngineServer, files: ImageFiles, cut: int) -> None:
    server.image["/x"] = file(b"x" * 5000)
    server.archive_bytes = cut
    with pytest.raises(
        ImageLookError, match=r"^cannot be judged, because the engine describes /x in a form that is not"
    ):
        files.read("/x", 5000)


def test_a_path_that_the_engine_cannot_follow_is_named(server: EngineServer, files: ImageFiles) -> None:
    server.statuses["/x"] = 500
    problem = r"because the engine cannot say what /x is \(status 500\): if it is a link in a circle, remove"
    with pytest.raises(ImageLookError, match=problem):
        files.entry("/x")


def test_an_odd_description_is_an_error(
    server: EngineServer, files: ImageFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.image, "stat_header", lambda _path: "b2Rk")
    with pytest.raises(ImageLookError, match="describes /x in a form that is not known: build the image again"):
        files.entry("/x")
    monkeypatch.undo()


def look_at_x(client: Any) -> None:
    """Look at one path of an image, and read it."""
    with image_files(client, "sha256:1", NAME, ()) as files:
        files.entry("/x")
        files.read("/x", 10)


@pytest.mark.parametrize("call", ["HEAD /x", "GET /x", "POST", "DELETE"])
def test_an_engine_that_hangs_in_one_call_is_left_at_its_limit(server: EngineServer, client: Any, call: str) -> None:
    server.image["/x"] = file("x")
    server.silent = {call}
    began = time.monotonic()
    with pytest.raises(ImageLookError, match=r"^cannot be judged, because [^.]* \(no answer within 1 seconds\)[^.]*$"):
        look_at_x(client)
    assert time.monotonic() - began < 5
    assert (NAME in server.looks) == (call == "DELETE"), "what can be removed is"


def test_an_image_of_which_no_container_can_be_created_is_an_error(server: EngineServer, client: Any) -> None:
    server.refuses = "invalid volume specification: '/'"
    problem = r"^cannot be judged, because no container of it can be created \(invalid volume specification: '/'\)$"
    with pytest.raises(ImageLookError, match=problem), image_files(client, "sha256:1", NAME, ("/",)):
        pass


def test_a_container_that_somebody_removed_has_shown_nothing(
    server: EngineServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.image, "stat_header", lambda _path: server.looks.clear())
    problem = f"^cannot be judged, because its container {NAME} was removed meanwhile: try it again$"
    with pytest.raises(ImageLookError, match=problem), image_files(client, "sha256:1", NAME, ()) as files:
        files.entry("/etc/passwd")


def test_containers_of_killed_looks_are_removed_once(server: EngineServer, client: Any) -> None:
    server.looks[NAME] = {}
    remove_look(client, NAME)
    assert server.looks == {}
    remove_look(client, NAME)

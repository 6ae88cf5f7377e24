"""Judges images once, by an engine on a real socket, and containers before they start again."""

from __future__ import annotations

import dataclasses
import errno
import io
import os
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import docker
import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import image_files, labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import Image
from ansible_collections.backendai.cluster.plugins.module_utils._host.image_records import look_file
from ansible_collections.backendai.cluster.plugins.module_utils._host.look_records import LookRecords
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.image_look import HomeFolder, ImageLook
from ansible_collections.backendai.cluster.plugins.module_utils._model.image_paths import CLIENTS, DEVICE, FIFO, FOLDER
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import Mount
from ansible_collections.backendai.cluster.plugins.module_utils._session import image_look
from ansible_collections.backendai.cluster.plugins.module_utils._session.image_look import (
    FILE_BYTES,
    ImageRefusedError,
    copy_of_home,
    find_abandoned,
    find_unjudgeable,
    judge_container,
    judge_own_homes,
    look_at_image,
    recorded_look,
    remove_abandoned,
    require_not_refused,
)
from tests.unit.builders import plan
from tests.unit.engine_server import EngineServer
from tests.unit.image_tree import NODE, ImageTree, Node, file, image_with, link

IMAGE = Image("sha256:1", {}, id="sha256:1")
NAME = "lab/odd:1"
DATA = "/home/work/data"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EngineServer]:
    with EngineServer(tmp_path / "docker.sock").serving() as serving:
        serving.image = image_with({})
        yield serving


@pytest.fixture
def client(server: EngineServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(image_files, "SECONDS", 1)
    return docker.APIClient(server.url, version="1.41", timeout=1)


def look(client: Any, store: Store, targets: Sequence[str] = (), image: Image = IMAGE) -> ImageLook:
    """Look at the image for a session with mounts at these targets."""
    return look_at_image(client, store, image, NAME, [Mount("/srv", target) for target in targets])


def test_an_ordinary_image_is_looked_at_once(server: EngineServer, client: Any, store: Store) -> None:
    expected = ImageLook("root:x:0:0:root:/root:/bin/sh\n", "root:x:0:\n", {}, CLIENTS)
    assert look(client, store, [DATA]) == expected
    server.image.asked.clear()
    assert look(client, store, [DATA]) == look(client, store) == expected
    assert server.image.asked == []
    assert len(server.created) == 1
    assert server.looks == {}
    assert find_abandoned(store) == []


def test_of_other_mounts_only_what_is_new_is_looked_at(server: EngineServer, client: Any, store: Store) -> None:
    server.image["/data"] = link("/home/work/all")
    look(client, store)
    server.image.asked.clear()
    assert look(client, store, ["/data"]).leads == {"/data": "/home/work/all"}
    assert server.image.asked == ["/data", "/"], "and whether the container is there until the end"


def test_no_path_is_looked_at_twice(server: EngineServer, client: Any, store: Store) -> None:
    look(client, store, [DATA, "/data/x"])
    heads = [path for path in server.image.asked if path not in ("/", "/etc/passwd", "/etc/group")]
    assert len(heads) == len({*heads})


def test_users_do_not_make_a_record_grow_for_ever(client: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_look, "MAX_ENTRIES", 50)
    for number in range(60):
        assert look(client, store, [f"/data{number}"]).passwd
    assert len(LookRecords(store.images_folder).find("sha256:1").entries) < 60


def test_what_an_image_has_is_told(server: EngineServer, client: Any, store: Store) -> None:
    files = {
        "/etc/passwd": link("../usr/lib/passwd"),
        "/usr/lib/passwd": file(b"a\xff\r\n"),
        "/usr/bin/ssh": file(b"ELF"),
        "/bin/scp": file(),
    }
    server.image = image_with({**files, "/home/work": Node(FOLDER, mode=0o750, uid=1000, gid=100)})
    found = look(client, store)
    assert found.passwd == "a\ufffd\r\n"
    assert found.leads == {"/etc/passwd": "/usr/lib/passwd"}
    assert found.clients == ("scp", "sftp", "ssh-keygen")
    assert found.home == HomeFolder(1000, 100, 0o750)


def test_an_image_that_keeps_its_home_has_the_folders_for_mounts_in_it(
    server: EngineServer, client: Any, store: Store
) -> None:
    made = plan({"agent1": 1})
    server.image["/home"], server.image["/home/work"] = NODE, Node(FOLDER, uid=made.uid)
    lacking = look(client, store, ["/home/work/a/b"])
    with pytest.raises(ImageRefusedError) as refused:
        judge_own_homes(made, {NAME: dataclasses.replace(IMAGE, look=lacking)})
    assert str(refused.value) == (
        "session_image: 'lab/odd:1' has its own /home/work without /home/work/a, which session_mounts needs for"
        " /home/work/a/b: build the image with the line RUN mkdir -p /home/work/a, as the user whose /home/work is, or"
        " choose another target"
    )
    # In a home on the agent they are made.
    judge_own_homes(dataclasses.replace(made, uid=made.uid + 1), {NAME: dataclasses.replace(IMAGE, look=lacking)})
    judge_own_homes(made, {NAME: dataclasses.replace(IMAGE, look=look(client, store, [DATA]))})


def test_an_image_without_any_file_is_looked_at_once(server: EngineServer, client: Any, store: Store) -> None:
    server.image = ImageTree({})
    assert look(client, store) == look(client, store) == ImageLook("", "", {}, CLIENTS)
    assert len(server.created) == 1


def test_a_passwd_of_ten_megabytes_is_read_whole(server: EngineServer, client: Any, store: Store) -> None:
    content = "".join(f"user{number}:x:{number}:100::/home/user{number}:/bin/sh\n" for number in range(220_000))
    assert len(content) > 10 << 20
    server.image["/etc/passwd"] = file(content)
    assert look(client, store).passwd == look(client, store).passwd == content


def test_a_larger_passwd_is_refused_with_both_numbers(server: EngineServer, client: Any, store: Store) -> None:
    server.image["/etc/passwd"] = file(b"\n" * (FILE_BYTES + 1))
    problem = f"has {FILE_BYTES + 1} bytes in /etc/passwd, and at most {FILE_BYTES} are read: build the image"
    with pytest.raises(ImageRefusedError, match=f"^session_image: 'lab/odd:1' {problem} with a smaller file$"):
        look(client, store)


REFUSED: list[tuple[dict[str, Node], tuple[str, ...], tuple[str, ...], str]] = [
    ({"/etc/passwd": Node(FIFO)}, (), (), "has a FIFO at /etc/passwd, and a session needs a file or nothing there"),
    ({"/etc/group": Node(DEVICE)}, (), (), "has a device at /etc/group, and a session needs a file or nothing there"),
    ({"/etc/passwd": NODE}, (), (), "has a folder at /etc/passwd, and a session needs a file or nothing there"),
    ({}, ("/opt/backendai/bin",), (), "declares VOLUME /opt/backendai/bin, which is in what a session mounts at "),
    ({"/run": link("/data")}, (), ("/data",), r"would have /run/backendai \(in the image /data/backendai\) in the "),
]


@pytest.mark.parametrize(
    ("nodes", "volumes", "targets", "problem"), REFUSED, ids=["FIFO", "device", "folder", "volume", "link"]
)
def test_a_refused_image_is_named_and_not_looked_at_again(
    server: EngineServer,
    client: Any,
    store: Store,
    nodes: dict[str, Node],
    volumes: tuple[str, ...],
    targets: tuple[str, ...],
    problem: str,
) -> None:
    server.image = image_with(nodes)
    image = Image("sha256:1", {}, id="sha256:1", volumes=volumes)
    for _time in range(2):
        with pytest.raises(ImageRefusedError, match=f"^session_image: 'lab/odd:1' {problem}"):
            look(client, store, targets, image)
    assert len(server.created) == 1
    assert server.looks == {}
    mounts = [Mount("/srv", target) for target in targets]
    with pytest.raises(ImageRefusedError, match=f"^session_image: 'sha256:1' {problem}"):
        recorded_look(store, image, mounts)
    if not targets:
        with pytest.raises(ImageRefusedError, match=f"^session_image: 'lab/odd:1' {problem}"):
            require_not_refused(store, image, NAME)


@pytest.mark.parametrize("volumes", [[f"/v{number}" for number in range(101)], ["data"]], ids=["many", "relative"])
def test_of_an_image_whose_volumes_are_refused_nothing_is_created(
    server: EngineServer, client: Any, store: Store, volumes: list[str]
) -> None:
    image = Image("sha256:1", {}, id="sha256:1", volumes=tuple(volumes))
    with pytest.raises(ImageRefusedError, match=r"^session_image: 'lab/odd:1' declares "):
        look(client, store, image=image)
    assert server.created == []


def test_an_image_with_a_maze_of_links_is_looked_at_for_a_limited_number_of_paths(
    server: EngineServer, client: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_look, "LOOK_ENTRIES", 300)
    ends = {f"/v{number}": "/".join(f"w{number}-{part}" for part in range(60)) for number in range(100)}
    server.image = image_with({**{at: link(to) for at, to in ends.items()}, **{f"/{to}": NODE for to in ends.values()}})
    image = Image("sha256:1", {}, id="sha256:1", volumes=tuple(f"/v{number}" for number in range(100)))
    problem = "leads its VOLUMEs and the paths of the session through more than 300 paths: build the image with fewer"
    with pytest.raises(ImageRefusedError, match=f"^session_image: 'lab/odd:1' {problem} links and VOLUMEs$"):
        look(client, store, image=image)
    assert len(server.image.asked) <= image_look.LOOK_ENTRIES + 1
    assert server.looks == {}


def test_an_image_of_which_the_engine_tells_slowly_is_looked_at_for_a_limited_time(
    server: EngineServer, client: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_look, "LOOK_SECONDS", 0)
    problem = "cannot be judged, because looking at its paths took more than 0 seconds: try it again, or build the"
    with pytest.raises(ImageRefusedError, match=f"^session_image: 'lab/odd:1' {problem} image with fewer links"):
        look(client, store)
    assert server.image.asked in ([], ["/"])
    assert server.looks == {}


def test_files_of_refused_images_are_not_read(server: EngineServer, client: Any, store: Store) -> None:
    server.image["/etc/group"] = Node(FIFO)
    with pytest.raises(ImageRefusedError):
        look(client, store)
    assert not any(path.endswith("/archive") for path, _query in server.asked)


def test_damaged_files_of_users_are_read_again(client: Any, store: Store) -> None:
    found = look(client, store)
    look_file(store.images_folder, "sha256:1", ".group").unlink()
    assert recorded_look(store, IMAGE, []) is None
    assert look(client, store) == recorded_look(store, IMAGE, []) == found


def test_volumes_are_judged_although_the_image_is_known(client: Any, store: Store) -> None:
    look(client, store)
    image = Image("sha256:1", {}, id="sha256:1", volumes=("/run/backendai/ssh",))
    with pytest.raises(ImageRefusedError, match="declares VOLUME /run/backendai/ssh, "):
        look(client, store, image=image)


def test_what_is_recorded_is_told_without_an_engine(client: Any, store: Store) -> None:
    assert recorded_look(store, IMAGE, []) is None
    require_not_refused(store, IMAGE, NAME)
    found = look(client, store)
    assert recorded_look(store, IMAGE, []) == found
    assert recorded_look(store, IMAGE, [Mount("/srv", "/srv/data")]) is None


def test_an_engine_that_hangs_fails_the_session_in_a_sentence(server: EngineServer, client: Any, store: Store) -> None:
    server.silent = {"HEAD /etc/passwd"}
    began = time.monotonic()
    problem = r"cannot be judged, because the engine does not say what /etc/passwd is \(no answer within 1 seconds\)"
    with pytest.raises(ImageRefusedError, match=f"^session_image: 'lab/odd:1' {problem}: restart the engine if that"):
        look(client, store)
    assert time.monotonic() - began < 5
    assert server.looks == {}


def test_a_container_that_could_not_be_removed_is_removed_later(
    server: EngineServer, client: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.silent = {"DELETE"}
    with pytest.raises(ImageRefusedError, match=r"cannot be removed \(no answer within 1 seconds\)$"):
        look(client, store)
    server.silent = set()
    monkeypatch.setattr(time, "time", lambda: 1e11)
    (name,) = find_abandoned(store)
    assert [*server.looks] == [name]
    (change,) = remove_abandoned(client, store, [name])
    assert change.subject == f"container {name}"
    assert server.looks == {}
    assert find_abandoned(store) == []


def test_the_home_of_an_image_is_passed_on(server: EngineServer, client: Any, store: Store) -> None:
    server.image = image_with({"/home": link("var/home"), "/var/home/work/a": file("text")})
    found = look(client, store)
    with copy_of_home(client, store, IMAGE, NAME, found) as chunks:
        content = b"".join(chunks)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == ["work", "work/a"]
    assert server.looks == {}


def test_a_home_that_is_not_told_fails_the_session(server: EngineServer, client: Any, store: Store) -> None:
    server.image["/home/work"] = NODE
    found = look(client, store)
    server.silent = {"GET /home/work"}
    with (
        pytest.raises(
            ImageRefusedError, match="'lab/odd:1' cannot be judged, because the engine does not say what /home"
        ),
        copy_of_home(client, store, IMAGE, NAME, found),
    ):
        pytest.fail("there is no archive")
    assert server.looks == {}


class Stopped:
    """An engine with one stopped container, whose layer is in a folder of the host."""

    def __init__(self, layer: Path) -> None:
        self.layer = layer
        layer.mkdir()

    def inspect_container(self, _container: str) -> dict[str, Any]:
        return {"GraphDriver": {"Name": "overlay2", "Data": {"UpperDir": str(self.layer)}}}


@pytest.fixture
def stopped(tmp_path: Path) -> Any:
    return Stopped(tmp_path / "diff")


LOOK = ImageLook(leads={"/home/work": "/var/home/work", DATA: "/var/home/work/data"}, clients=("ssh",))


def judge(client: Any) -> None:
    """Judge a stopped container of an image with such links."""
    judge_container(client, "0123456789abcdef", NAME, LOOK, [Mount("/srv", DATA), Mount("/srv", "/deep/a/b")])


def test_a_container_in_which_nothing_of_ours_was_touched_starts(stopped: Any) -> None:
    judge(stopped)
    for path in ("etc/profile.d", "var/home/work/data", "deep/a/b", "usr/bin", "tmp"):
        (stopped.layer / path).mkdir(parents=True)
    (stopped.layer / "etc/passwd").touch()
    (stopped.layer / "tmp/link").symlink_to("/var/home/work/data")
    (stopped.layer / "etc/odd").symlink_to("passwd")
    judge(stopped)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("etc", "leads /etc/hosts to /var/home/work/data/hosts by now"),
        ("etc/profile.d", "leads /etc/profile.d/backendai.sh to /var/home/work/data/backendai.sh by now"),
        ("usr", "leads /usr/bin/ssh to /var/home/work/data/bin/ssh by now"),
        ("deep/a", "leads /deep/a/b to /var/home/work/data/b by now"),
        ("var/home", r"leads /home/work \(in the image /var/home/work\) to /var/home/work/data/work by now"),
    ],
)
def test_a_container_in_which_its_user_put_a_link_is_not_started(stopped: Any, path: str, problem: str) -> None:
    at = stopped.layer / path
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to("/var/home/work/data" if path != "var/home" else "/srv/data")
    expected = problem.replace("/var/home/work/data/work", "/srv/data/work")
    remedy = r"remove it \(docker rm 0123456789ab\) and run repair_session, which creates it again"
    sentence = f"^session_image: 'lab/odd:1' has a stopped container that {expected}: {remedy}$"
    with pytest.raises(ImageRefusedError, match=sentence):
        judge(stopped)


def test_a_container_in_which_its_user_put_a_pipe_is_not_started(stopped: Any) -> None:
    (stopped.layer / "etc").mkdir()
    os.mkfifo(stopped.layer / "etc/passwd")
    with pytest.raises(
        ImageRefusedError, match="has a stopped container that has a FIFO at /etc/passwd by now: remove"
    ):
        judge(stopped)


def test_a_container_in_which_its_user_renamed_a_folder_of_the_image_is_not_started(
    stopped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stopped.layer / "etc").mkdir()
    marks = {stopped.layer / "etc": b"/evil"}

    def getxattr(path: Path, name: str) -> bytes:
        assert name == "trusted.overlay.redirect"
        if path not in marks:
            raise OSError(errno.ENODATA, "No data available")
        return marks[path]

    monkeypatch.setattr(os, "getxattr", getxattr)
    with pytest.raises(ImageRefusedError, match="that leads /etc/hosts to /evil/hosts by now: remove it"):
        judge(stopped)


def test_what_was_removed_in_a_container_is_made_again(stopped: Any) -> None:
    (stopped.layer / "etc").mkdir()
    os.mknod(stopped.layer / "etc/passwd", 0o020000, os.makedev(0, 0))
    judge(stopped)


UNTOLD = [
    {"GraphDriver": {"Name": "btrfs", "Data": None}},
    {"GraphDriver": {"Name": "overlay2", "Data": {}}},
    {"GraphDriver": None},
    {},
]


@pytest.mark.parametrize("answer", UNTOLD, ids=["btrfs", "no folder", "none", "missing"])
def test_a_container_whose_layer_the_engine_does_not_tell_is_not_looked_at_through_it_and_not_started(
    server: EngineServer, client: Any, answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "inspect_container", lambda _container: answer)
    problem = "cannot be judged, because the engine does not say where its files are: run repair_session, which"
    with pytest.raises(
        ImageRefusedError, match=f"^session_image: 'lab/odd:1' has a stopped container that {problem} repla"
    ):
        judge(client)
    assert not any("archive" in path for path, _query in server.asked)
    assert find_unjudgeable(client, {"main1": listed("exited"), "sub1": listed("running", "sub1")}) == {
        "main1": "files that can be judged on this engine (what it wrote outside of the folders of its session is lost)"
    }


def listed(state: str, hostname: str = "main1") -> dict[str, Any]:
    return {"Id": hostname, "State": state, "Labels": {labels.HOSTNAME: hostname}}


def test_a_stopped_container_of_overlay2_can_be_judged(stopped: Any) -> None:
    assert find_unjudgeable(stopped, {"main1": listed("exited")}) == {}

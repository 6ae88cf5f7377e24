"""Where the paths of a session lead in an image, and which images are refused."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ansible_collections.backendai.cluster.plugins.module_utils._docker.container import KIT
from ansible_collections.backendai.cluster.plugins.module_utils._host.kit import BOUND_FILES
from ansible_collections.backendai.cluster.plugins.module_utils._model.image_paths import (
    CLIENTS,
    DEVICE,
    FIFO,
    FOLDER,
    FOLDERS,
    LINK,
    MAX_LINKS,
    MAX_PARTS,
    MAX_VOLUMES,
    SOCKET,
    Entry,
    Leads,
    Place,
    follow,
    judge_image,
    judge_leads,
    own_paths,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.mounts import FILES, RESERVED
from tests.unit.image_tree import NODE, ImageTree, Node, file, image_with, link

DATA = "/home/work/data"
REMEDY = "remove that link from the image, or choose another target in session_mounts"


def refusal(nodes: dict[str, Node], volumes: tuple[str, ...] = (), mounts: tuple[str, ...] = ()) -> str:
    """Return why an ordinary image with these nodes is refused; empty if it is not."""
    judged = judge_image(image_with(nodes).look, volumes, mounts)
    return judged if isinstance(judged, str) else ""


def leads(nodes: dict[str, Node], mounts: tuple[str, ...] = ()) -> dict[str, str]:
    """Return where paths lead in an ordinary image with these nodes, which is not refused."""
    judged = judge_image(image_with(nodes).look, (), mounts)
    assert isinstance(judged, Leads), judged
    return judged.leads


def followed(path: str, nodes: dict[str, Node]) -> str:
    """Return where a path leads, or the problem."""
    place = follow(path, ImageTree(nodes).look)
    return place.path if isinstance(place, Place) else place


def test_everything_that_a_container_gets_is_judged() -> None:
    bound = [target for targets in BOUND_FILES.values() for target in targets]
    assert {*bound} <= {*FILES}
    assert KIT in FOLDERS
    assert {*RESERVED} - {*FOLDERS} == {"/home/work/.ssh"}, "is in a folder that is judged"


def test_an_ordinary_image_has_everything_where_it_is_wanted() -> None:
    assert judge_image(image_with({}).look, (), [DATA, "/data"]) == Leads({}, CLIENTS, {})


def test_an_empty_image_is_not_refused() -> None:
    assert judge_image(ImageTree({}).look, (), [DATA]) == Leads({}, CLIENTS, {})


@pytest.mark.parametrize("folder", ["/usr/bin", "/bin", "/usr/local/bin"])
def test_programs_that_the_image_has_are_not_replaced(folder: str) -> None:
    judged = judge_image(image_with({f"{folder}/ssh": file(b"ELF"), f"{folder}/scp": link("ssh")}).look, (), ())
    assert judged == Leads({}, ("sftp", "ssh-keygen"), {})


def test_an_empty_file_where_something_was_mounted_is_no_program() -> None:
    """An image that was made of a container has one."""
    judged = judge_image(image_with({"/usr/bin/ssh": file(), "/usr/bin/scp": file(b"ELF")}).look, (), ())
    assert judged == Leads({}, ("ssh", "sftp", "ssh-keygen"), {})


def test_a_program_that_leads_nowhere_is_lacking_and_bound_where_it_leads() -> None:
    judged = judge_image(image_with({"/usr/bin/ssh": link("/etc/alternatives/ssh")}).look, (), ())
    assert judged == Leads({"/usr/bin/ssh": "/etc/alternatives/ssh"}, CLIENTS, {})


@pytest.mark.parametrize(
    ("path", "nodes", "place"),
    [
        ("/a/b", {"/a": link("/c")}, "/c/b"),
        ("/a/b", {"/a": link("c/d")}, "/c/d/b"),
        ("/x/a/b", {"/x/a": link("../c")}, "/c/b"),
        ("/x/a", {"/x/a": link("../../../../c")}, "/c"),
        ("/a", {"/a": link("/")}, "/"),
        ("/a/./b//c/", {}, "/a/b/c"),
        ("/a/b", {"/a": link("c"), "/c": link("d"), "/d": link("/e")}, "/e/b"),
        ("/a/b", {"/a": link("missing/../c")}, "/c/b"),
        ("/a", {"/a": link("b/"), "/b": NODE}, "/b"),
        ("/", {}, "/"),
    ],
    ids=["absolute", "relative", "above", "above the root", "root", "odd", "chain", "missing", "slash", "nothing"],
)
def test_links_are_followed_inside_the_root_of_the_image(path: str, nodes: dict[str, Node], place: str) -> None:
    assert followed(path, nodes) == place


def test_a_link_in_a_circle_is_refused_by_name() -> None:
    nodes = {"/a": link("b"), "/b": link("/a")}
    problem = "has a link at /a that leads nowhere, or through too many links: remove it from the image"
    assert followed("/a/c", nodes) == problem


def test_a_path_leads_through_forty_links_at_most() -> None:
    chain = {f"/l{number}": link(f"l{number + 1}") for number in range(MAX_LINKS + 1)}
    assert followed("/l1", chain) == f"/l{MAX_LINKS + 1}"
    assert followed("/l0", chain).startswith(f"has a link at /l{MAX_LINKS} that leads nowhere")


def test_a_link_without_a_target_is_refused() -> None:
    assert followed("/a", {"/a": link("")}).startswith("has a link at /a that leads nowhere")


def test_a_link_of_thousands_of_components_costs_few_questions() -> None:
    tree = ImageTree({"/a": link("/d" * 2000)})
    deep = {"/d" * depth: NODE for depth in range(1, 300)}
    tree.update(deep)
    problem = f"leads /a through more than {MAX_PARTS} folders: build the image with fewer links"
    assert follow("/a", tree.look) == problem
    assert len(tree.asked) <= MAX_PARTS


@pytest.mark.parametrize("kind", [FIFO, DEVICE, SOCKET, "file"])
def test_what_is_no_folder_has_nothing_below_it(kind: str) -> None:
    problem = f"has a {kind} at /etc, and /etc/profile.d/backendai.sh needs a folder there: remove it from the image"
    assert followed("/etc/profile.d/backendai.sh", {"/etc": Node(kind)}) == problem
    assert followed("/etc/../x", {"/etc": Node(kind)}).startswith(f"has a {kind} at /etc, and ")


@pytest.mark.parametrize("path", [*FILES, "/usr/bin/ssh"])
@pytest.mark.parametrize("kind", [FIFO, DEVICE, SOCKET, FOLDER])
def test_a_file_of_the_session_is_a_file_in_the_image_or_nothing(path: str, kind: str) -> None:
    problem = f"has a {kind} at {path}, and a session needs a file or nothing there: remove it from the image"
    assert refusal({path: Node(kind)}) == problem


@pytest.mark.parametrize("path", [*FOLDERS, DATA])
@pytest.mark.parametrize("kind", [FIFO, DEVICE, SOCKET, "file"])
def test_a_folder_of_the_session_is_a_folder_in_the_image_or_nothing(path: str, kind: str) -> None:
    problem = f"has a {kind} at {path}, and a session needs a folder or nothing there: remove it from the image"
    assert refusal({path: Node(kind)}, mounts=(DATA,)) == problem


def test_what_a_link_leads_to_is_named_with_its_own_path() -> None:
    nodes = {"/etc/passwd": link("/srv/pipe"), "/srv/pipe": Node(FIFO)}
    problem = "has a FIFO at /srv/pipe, where /etc/passwd leads, and a session needs a file or nothing there: "
    assert refusal(nodes) == f"{problem}remove it from the image"


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ({"/home": link("var/home")}, {"/home/work": "/var/home/work"}),
        ({"/home": link("var/home"), "/var/home/work/x": file()}, {"/home/work": "/var/home/work"}),
        ({"/root": link("var/roothome")}, {}),
        ({"/opt": link("/var/opt")}, {"/opt/backendai": "/var/opt/backendai"}),
        ({"/run": link("/var/run")}, {"/run/backendai": "/var/run/backendai"}),
        ({"/var/log": link("/nowhere/log")}, {"/var/log/backendai": "/nowhere/log/backendai"}),
        ({"/etc/passwd": link("../usr/lib/passwd")}, {"/etc/passwd": "/usr/lib/passwd"}),
        ({"/etc/profile.d": link("/usr/etc")}, {"/etc/profile.d/backendai.sh": "/usr/etc/backendai.sh"}),
        ({"/home/work": link("/srv/work")}, {"/home/work": "/srv/work"}),
        (
            {
                **{f"/{name}": link(f"var/{name}") for name in ("home", "mnt", "opt", "srv")},
                "/root": link("var/roothome"),
                "/tmp": link("sysroot/tmp"),
                "/usr/local": link("../var/usrlocal"),
            },
            {"/home/work": "/var/home/work", "/opt/backendai": "/var/opt/backendai"},
        ),
    ],
    ids=["home nowhere", "home", "root nowhere", "opt", "run", "nowhere", "passwd", "profile.d", "work", "ostree"],
)
def test_links_inside_the_image_are_bound_where_they_lead(nodes: dict[str, Node], expected: dict[str, str]) -> None:
    assert leads(nodes) == expected


BOUND = [
    *("/etc", "/home", "/run", "/opt", "/var", "/var/log", "/var/lib", "/usr", "/usr/bin", "/etc/profile.d"),
    *own_paths(CLIENTS),
]


@pytest.mark.parametrize("path", BOUND)
def test_links_into_a_mounted_folder_are_refused_by_name(path: str) -> None:
    target = next(target for target in own_paths(CLIENTS) if f"{target}/".startswith(f"{path}/"))
    # Without the files of an ordinary image, which are where the link is.
    judged = judge_image(ImageTree({path: link("/data/x")}).look, (), ["/data"])
    assert isinstance(judged, str)
    assert judged.startswith(f"would have {target} (in the image /data/x")
    assert judged.endswith(
        " in the mount at /data: remove that link from the image, or choose another target in session_mounts"
    )


@pytest.mark.parametrize("path", BOUND)
def test_links_to_nowhere_are_bound_there(path: str) -> None:
    judged = judge_image(ImageTree({path: link("/nowhere/at/all")}).look, (), ["/data"])
    assert isinstance(judged, Leads)
    assert all(place.startswith("/nowhere/at/all") for place in judged.leads.values())
    assert judged.leads


OTHERS = ["/opt/backendai", "/home/work", f"{KIT}/x", "/run/backendai/gate", "/proc/1", "/sys", "/dev/shm", "/", "/var"]


@pytest.mark.parametrize("place", OTHERS)
def test_links_into_the_sessions_own_folders_or_the_kernels_are_refused(place: str) -> None:
    problem = refusal({"/var/log/backendai": link(place)})
    assert problem.startswith(f"leads /var/log/backendai to {place}, which must not be at, in or above /")
    assert problem.endswith(": remove that link from the image")


def test_a_file_that_leads_to_another_of_the_session_is_refused() -> None:
    assert refusal({"/etc/hosts.allow": link("hosts.deny")}) == (
        "leads /etc/hosts.allow to /etc/hosts.deny, which must not be at, in or above /etc/hosts.deny: "
        "remove that link from the image"
    )


def test_a_mount_of_which_the_image_has_a_link_leads_there() -> None:
    assert leads({"/data": link("/srv/data")}, ("/data",)) == {"/data": "/srv/data"}
    assert leads({"/home": link("var/home")}, (DATA,)) == {"/home/work": "/var/home/work", DATA: "/var/home/work/data"}


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("/opt/backendai/x", f"must not be in a reserved folder: {', '.join(RESERVED)}"),
        ("/home/work/.ssh", "would hide /home/work/.ssh"),
        ("/etc", "would hide /etc/hosts"),
        ("/", "would hide /home/work"),
        ("/proc/1", "must not be in /proc"),
        ("/other", "is in the mount at /other"),
        ("/other/x", "is in the mount at /other"),
    ],
)
def test_a_mount_that_leads_where_none_may_be_is_refused_in_the_words_for_a_target(place: str, problem: str) -> None:
    led = f"leads the target /data of session_mounts to {place}, which {problem}: "
    assert refusal({"/data": link(place)}, mounts=("/data", "/other")) == led + REMEDY


def test_a_mount_that_hides_where_the_image_has_something_of_the_session_is_refused() -> None:
    nodes = {"/home": link("var/home")}
    assert refusal(nodes, mounts=("/var/home",)).startswith(
        "would have /home/work (in the image /var/home/work) in the mount at /var/home: "
    )
    nodes = {"/var/log/backendai": link("/srv/log")}
    assert refusal(nodes, mounts=("/srv/log/x",)).startswith(
        "would have the mount at /srv/log/x in /var/log/backendai (in the image /srv/log): "
    )
    nodes = {"/home": link("var/home")}
    assert refusal(nodes, mounts=("/var/home/work/.ssh",)).startswith("would have the mount at /var/home/work/.ssh in ")


def test_mounts_in_each_other_count_as_the_user_has_given_them() -> None:
    nodes = {"/data/x": link("/etc"), "/l": link("/srv")}
    assert leads(nodes, ("/data/x", "/data")) == {}
    assert leads(nodes, ("/l/x", "/l")) == {"/l": "/srv", "/l/x": "/srv/x"}


@pytest.mark.parametrize(
    ("nodes", "mounts", "expected"),
    [
        ({"/home/work/a": NODE}, ("/home/work/a/b", DATA, "/data/x"), {}),
        ({"/home/work/a": NODE}, ("/home/work/a/b/c",), {"/home/work/a/b/c": "/home/work/a/b"}),
        # What is in another mount is in its folder.
        ({"/home/work": NODE}, (DATA, f"{DATA}/x/y"), {}),
        ({"/home/work/l": link("a")}, ("/home/work/l/b",), {"/home/work/l/b": "/home/work/a"}),
        ({"/home": link("srv"), "/srv/work": NODE}, ("/home/work/a/b",), {"/home/work/a/b": "/srv/work/a"}),
        ({"/data": link("/home/work/a/b"), "/home/work": NODE}, ("/data",), {"/data": "/home/work/a"}),
    ],
)
def test_folders_that_a_home_lacks_for_mounts_are_named(
    nodes: dict[str, Node], mounts: tuple[str, ...], expected: dict[str, str]
) -> None:
    judged = judge_image(image_with(nodes).look, (), mounts)
    assert isinstance(judged, Leads), judged
    assert judged.lacking == expected


@pytest.mark.parametrize("below", FOLDERS)
@pytest.mark.parametrize("spelled", ["{}/bin", "/{}/bin/", "{}/x/../bin", "/./{}/bin", "/../{}/bin"])
def test_volumes_in_folders_of_the_session_are_refused_by_name(below: str, spelled: str) -> None:
    volume = spelled.format(below)
    problem = f"is in what a session mounts at {below}: build the image without that VOLUME"
    assert refusal({}, (volume,)) == f"declares VOLUME {volume}, which {problem}"


@pytest.mark.parametrize("volume", ["data", "./data", "../data", "", "opt/backendai"])
def test_a_relative_volume_is_refused_by_name(volume: str) -> None:
    problem = "which does not begin with a slash: build the image with an absolute path"
    assert refusal({}, ("/data", volume)) == f"declares VOLUME {volume}, {problem}"


def test_more_volumes_than_are_taken_are_refused_before_anything_is_looked_at() -> None:
    tree = image_with({})
    volumes = [f"/v{number}" for number in range(MAX_VOLUMES + 1)]
    assert judge_image(tree.look, volumes, ()) == (
        "declares 101 VOLUMEs, and at most 100 are taken: build the image with fewer"
    )
    assert tree.asked == []
    assert isinstance(judge_image(tree.look, volumes[1:], ()), Leads)


def test_volumes_in_a_mount_are_refused_and_others_are_not() -> None:
    problem = "declares VOLUME /data/x, which is in what a session mounts at /data: build the image without that VOLUME"
    assert refusal({}, ("/data/x",), ("/data",)) == problem
    assert refusal({"/data/x": link("/srv")}, ("/data/x",), ("/data",)) == problem
    assert refusal({}, ("/data/x",)) == ""


@pytest.mark.parametrize(
    "volume", [*FOLDERS, "/opt", "/var", "/var/lib", "/home", "/etc", "/home/work/", "//opt", DATA]
)
def test_volumes_at_or_above_what_the_session_mounts_change_nothing(volume: str) -> None:
    assert refusal({}, (volume,), (DATA,)) == ""


def test_a_volume_that_leads_into_folders_of_the_session_is_refused() -> None:
    nodes = {"/kit": link("/opt/backendai"), "/x/y": link("/opt")}
    assert refusal(nodes, ("/kit/bin",)).startswith("declares VOLUME /kit/bin, which is in what a session mounts at ")
    # It is mounted before what the session mounts: that has more components.
    assert refusal(nodes, ("/kit",)) == ""
    assert refusal(nodes, ("/x/y",)) == (
        "declares VOLUME /x/y, which leads to /opt and would hide what a session mounts at /opt/backendai: "
        "build the image without that VOLUME"
    )


def test_a_volume_that_leads_nowhere_is_refused() -> None:
    assert refusal({"/v": link("v")}, ("/v",)).startswith("declares VOLUME /v and has a link at /v that leads nowhere")


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ({}, ""),
        ({"/srv": NODE, "/srv/passwd": file()}, ""),
        ({"/srv": link("/data")}, "leads /etc/passwd (in the image /srv/passwd) to /data/passwd by now"),
        ({"/srv/passwd": link("group")}, "leads /etc/passwd (in the image /srv/passwd) to /srv/group by now"),
        ({"/srv/passwd": Node(FIFO)}, "has a FIFO at /srv/passwd by now"),
        ({"/srv": file()}, "has a file at /srv, and /srv/passwd needs a folder there"),
    ],
    ids=["nothing", "as before", "folder", "link", "FIFO", "file"],
)
def test_paths_of_a_container_lead_where_it_was_made_with(nodes: dict[str, Node], problem: str) -> None:
    assert judge_leads(ImageTree(nodes).look, [("/etc/passwd", "/srv/passwd")]) == problem


NAMES = some.sampled_from(["a", "b", "c", "etc", "passwd", "home", "work", "..", ".", ""])
PATHS = some.lists(NAMES, min_size=1, max_size=5).map("/".join)
LINKS = some.tuples(some.sampled_from(["", "/"]), PATHS).map("".join).map(link)
NODES = some.one_of(some.sampled_from([FOLDER, FOLDER, FIFO, "file"]).map(Node), LINKS)


@given(some.dictionaries(PATHS.map(lambda path: posixpath.normpath(f"/{path}").replace("//", "/")), NODES), PATHS)
def test_a_walk_ends_at_a_path_without_links(nodes: dict[str, Node], path: str) -> None:
    tree: dict[str, Node] = {}
    # Only what is below folders exists.
    for at, node in sorted(nodes.items()):
        above = posixpath.dirname(at)
        if at != "/" and (above == "/" or (above in tree and tree[above].kind == FOLDER)):
            tree[at] = node
    asked: list[str] = []

    def look(at: str) -> Entry | None:
        asked.append(at)
        node = tree.get(at)
        return Entry(node.kind, target=node.target) if node else None

    place = follow(f"/{path}", look)
    assert len(asked) <= MAX_PARTS
    if isinstance(place, Place):
        assert place.path == posixpath.normpath(place.path)
        components = place.path.strip("/").split("/")
        found = [tree.get("/" + "/".join(components[:count])) for count in range(1, len(components) + 1)]
        assert all(node is None or node.kind != LINK for node in found)
        assert all(node is None or node.kind == FOLDER for node in found[:-1])
        assert follow(place.path, look) == place
    else:
        assert "\n" not in place


@given(
    some.dictionaries(some.sampled_from(BOUND), PATHS.map(lambda path: link(f"/{path}"))), some.lists(PATHS, max_size=2)
)
def test_what_is_bound_leads_through_no_link_and_apart(nodes: dict[str, Node], volumes: list[str]) -> None:
    # A link has nothing below it.
    tree = {at: node for at, node in nodes.items() if not any(at.startswith(f"{other}/") for other in nodes)}
    judged = judge_image(ImageTree(tree).look, volumes, ["/a/b", DATA])
    if isinstance(judged, str):
        return
    places = [judged.leads.get(target, target) for target in own_paths(judged.clients)]
    assert all(f"{place}/".startswith("/a/b/") is False for place in places)
    assert len({*places}) == len(places)
    for place in places:
        assert judge_leads(ImageTree(tree).look, [(place, place)]) == ""

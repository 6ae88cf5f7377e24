"""The hosts' images: bare Debian with systemd and sshd, and a package archive that works without a network."""

from __future__ import annotations

import functools
import hashlib
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.lab.command import LabError, in_parallel, output, step
from tests.lab.debian import check_mirror, require
from tests.lab.engine import Engine
from tests.lab.identity import SUITES, Lab, State
from tests.lab.image_cache import cached, remove_others, writing
from tests.lab.leftovers import end_processes, remove_folder
from tests.lab.session_images import link_session_images, make_session_images, session_images_file
from tests.lab.trees import BUILDERS, Tree, split_suite

HOST_FILES = Path(__file__).with_name("host_files")
#: Packages of a Debian server after its installation, without the engine.
HOST_PACKAGES = (
    "ca-certificates",
    "dbus",
    "kmod",
    "less",
    "nftables",
    "openssh-server",
    "python3-apt",
    "sudo",
    "systemd",
    "systemd-sysv",
)
#: Packages that roles and tests may install on the hosts. Recommended packages missing here are unknown to the hosts'
#: apt, which then omits them.
ARCHIVE_PACKAGES = (
    "bash-completion",
    "busybox-static",
    "curl",
    "docker.io",
    "ethtool",
    "firewalld",
    "haproxy",
    "iperf3",
    "iptables",
    "network-manager",
    "nmap",
    "openssh-client",
    "python3-cryptography",
    "python3-docker",
    "python3-venv",
    "shellinabox",
    "tcpdump",
    "ufw",
    "wireguard-tools",
)
#: What not all releases have: wireguard-go came with Debian 12, sudo-rs with Debian 13, in which the docker command is
#: no longer in docker.io, which recommends it. Debian 11 is as old as RHEL 9.
ARCHIVE_PACKAGES_OF_SUITE = {
    "bullseye": (),
    "bookworm": ("wireguard-go",),
    "trixie": ("docker-cli", "sudo-rs", "wireguard-go"),
}
#: Suites with packages of a newer one: of hosts for tests, if not of agent3.
NEWER_SUITES = ("trixie-sid",)
#: What a host with packages of a newer suite has of it. Its systemd is of the base: unstable's refuses to start with
#: cgroup v1. Its Python is, too, so it has no firewalld: that needs python3-nftables of the same version as nftables.
NEWER_HOST_PACKAGES = ("nftables", "openssh-server")
NEWER_ARCHIVE_PACKAGES = ("docker-cli", "docker.io", "iptables", "openssh-client")
#: GiB of disk that the images take while they are built, and the hosts with their engines later.
SPACE = 8
#: Units without a purpose here: no consoles, no network for updates; the kernel is the machine's.
MASKED = (
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "console-getty.service",
    "e2scrub_all.timer",
    "getty.target",
    "systemd-modules-load.service",
)


def image_tag(lab: Lab, suite: str) -> str:
    """Return the image's name; its tag is a digest of the files that build it."""
    return f"{lab.name}/{suite}:{_recipe()}"


@functools.cache
def _recipe() -> str:
    """Return a digest of the files that build the hosts' images: the same for a whole run, also if one changes then."""
    digest = hashlib.sha256()
    recipe = [Path(__file__), Path(__file__).with_name("trees.py")]
    for path in [*recipe, *sorted(path for path in HOST_FILES.rglob("*") if path.is_file())]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _file_name(suite: str) -> str:
    """Return the name of a host image in the cache."""
    return f"{suite}-{_recipe()}.tar"


def ensure_images(
    engine: Engine, state: State, wanted: Sequence[str] | None = None, *, with_sessions: bool = True
) -> None:
    """Provide the images that are missing, from the cache or by building them.

    Those of the hosts are in the engine, of the suites that are wanted or of all, those of sessions in ``.lab/images``.
    """
    lab = engine.lab
    wanted = SUITES if wanted is None else wanted
    for suite in wanted:
        if split_suite(suite)[0] not in ARCHIVE_PACKAGES_OF_SUITE:
            raise LabError(f"LAB_AGENT3_SUITE is {suite}: set it to bullseye, bookworm, trixie or trixie-sid")
    end_processes(lab, BUILDERS)  # of a killed run
    remove_folder(lab.folder / "build")
    missing = [suite for suite in wanted if not engine.has("image", image_tag(lab, suite))]
    hosts = [suite for suite in missing if not cached(lab, _file_name(suite))]
    sessions = [] if not with_sessions or link_session_images(lab) else [SUITES[0]]
    suites = [suite for suite in dict.fromkeys((*SUITES, *wanted)) if suite in {*hosts, *sessions}]
    if suites:
        _check_space(lab)
        require("mmdebstrap")
        pull = state.engine == "machine"
        if not pull:
            in_parallel(*(partial(check_mirror, split_suite(suite)[0]) for suite in suites))
        try:
            with step(f"images from Debian packages ({', '.join(suites)})"):
                builds = (partial(_build, engine, suite, pull, suite in hosts, suite in sessions) for suite in suites)
                in_parallel(*builds)
        finally:
            end_processes(lab, BUILDERS)
            remove_folder(lab.folder / "build")
    if missing:
        with step("images of the hosts in the engine"):
            in_parallel(*(partial(_import, engine, suite) for suite in missing))
    remove_others(lab, {*map(_file_name, (*SUITES, *ARCHIVE_PACKAGES_OF_SUITE, *NEWER_SUITES)), session_images_file()})


def _check_space(lab: Lab) -> None:
    """Raise LabError, before anything is built, if the disk is too full for the images and the hosts."""
    if shutil.disk_usage(lab.checkout).free < SPACE << 30:
        raise LabError(f"{lab.checkout} has less than {SPACE} GiB of free space, which the lab needs")


def remove_images(engine: Engine, keep: set[str] | None = None) -> None:
    """Remove the hosts' images from the engine, except those in ``keep``."""
    for image in engine.docker("images", "--format", "{{.Repository}}:{{.Tag}}").split():
        if image.startswith(f"{engine.lab.name}/") and image not in (keep or set()):
            engine.docker("rmi", image)


def remove_outdated_images(engine: Engine) -> None:
    """Remove the images of earlier builds, which no host uses any more."""
    used = engine.docker("ps", "--all", "--format", "{{.Image}}").split()  # by hosts of scenarios, perhaps
    remove_images(engine, keep={image_tag(engine.lab, suite) for suite in SUITES} | set(used))


def _build(engine: Engine, suite: str, pull: bool, host: bool, sessions: bool) -> None:
    """Build the host image of a suite and the session images, if missing, in parallel on one base."""
    tree = Tree(engine.lab, suite)
    with step(f"  {suite}: base"):
        tree.create_base(engine, pull)
    parts: list[Callable[[], None]] = []
    if sessions:
        parts.append(step(f"  {suite}: session images")(partial(make_session_images, tree.copy("sessions"))))
    if host:
        parts.append(step(f"  {suite}: host")(partial(_make_host_image, tree)))
    in_parallel(*parts)


def _make_host_image(tree: Tree) -> None:
    """Install a host into a tree, and write it into the cache."""
    _install_host(tree)
    with writing(tree.lab, _file_name(tree.suite)) as archive:
        tree.pack(archive, lists=True)
    remove_folder(tree.root)


def _import(engine: Engine, suite: str) -> None:
    """Import the image of a suite's hosts from the cache into the engine."""
    archive = engine.lab.cache / _file_name(suite)
    start = 'CMD ["/usr/local/sbin/lab-init"]'
    engine.docker("import", "--change", start, str(archive), image_tag(engine.lab, suite), timeout=300)


def _install_host(tree: Tree) -> None:
    """Install the host's packages, then replace the package sources by a local archive."""
    base, newer = split_suite(tree.suite)
    tree.apt("install", *HOST_PACKAGES)
    tree.apt("clean")
    tree.apt("install", "--download-only", *ARCHIVE_PACKAGES, *ARCHIVE_PACKAGES_OF_SUITE[base])
    if newer:  # apt on the host takes the newest of what the archive has
        tree.add_suite(newer)
        tree.apt("install", "--target-release", newer, *NEWER_HOST_PACKAGES)
        tree.apt("install", "--download-only", "--target-release", newer, *NEWER_ARCHIVE_PACKAGES)
    packages = tree.root / "srv/packages"
    packages.mkdir(parents=True)
    for package in (tree.root / "var/cache/apt/archives").glob("*.deb"):
        package.rename(packages / package.name)
    (packages / "Packages").write_text(package_index(packages))
    for sources in (tree.root / "etc/apt/sources.list.d").iterdir():
        sources.unlink()
    shutil.copytree(HOST_FILES, tree.root, dirs_exist_ok=True)
    _keep_network_sysctls(tree.root)
    for key in (tree.root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (tree.root / "etc/machine-id").write_text("")
    remove_folder(tree.root / "var/lib/apt/lists")
    tree.run_in("apt-get", "update")
    tree.run_in("systemctl", "enable", "lab-host-key.service", "lab-no-resolver.service")
    tree.run_in("systemctl", "mask", *MASKED)
    tree.run_in("systemctl", "set-default", "multi-user.target")


def package_index(folder: Path) -> str:
    """Return the index that makes a folder of .deb files an apt repository."""
    stanzas = []
    for package in sorted(folder.glob("*.deb")):
        fields = output("dpkg-deb", "--field", str(package)).rstrip("\n")
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        place = f"Filename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {digest}"
        stanzas.append(f"{fields}\n{place}\n")
    return "\n".join(stanzas)


def _keep_network_sysctls(root: Path) -> None:
    """Keep only the network settings of the distribution's sysctls, which are per network namespace.

    The others (kernel.*, vm.*, fs.*) would change the machine when a host boots.
    """
    for vendor in (root / "usr/lib/sysctl.d").glob("*.conf"):
        lines = vendor.read_text().splitlines()
        network = [line for line in lines if line.lstrip("-").startswith("net.")]
        (root / "etc/sysctl.d" / vendor.name).write_text("".join(f"{line}\n" for line in network))

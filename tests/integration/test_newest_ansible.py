"""The newest ansible-core, on a host of the lab whose Python can run it: that of this machine may be too old."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.ansible_settings import ROOT
from tests.integration.laboratory import AGENTS, TIMEOUT, run_on, ssh
from tests.lab.other_ansible import OF_LINKS

pytestmark = pytest.mark.requests

HOST = AGENTS[2]
PLACE = "/root/newest-ansible"
CHECKOUT = f"{PLACE}/ansible_collections/backendai/cluster"
PACKAGES = ("ansible-core", "pytest", "hypothesis", "cryptography")


def send(folder: Path, names: str, target: str) -> None:
    """Send files of a folder to a folder of the host."""
    line = f"tar --create --directory {folder} --null --files-from -"
    packed = subprocess.run(line.split(), input=names.encode(), stdout=subprocess.PIPE, check=True).stdout
    unpack = ssh(HOST, f"mkdir -p {target} && tar --extract --directory {target}")
    subprocess.run(unpack, input=packed, timeout=TIMEOUT, check=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The folder on the host with packages for its Python and a copy of the checkout."""
    packages = tmp_path_factory.mktemp("newest") / "packages"
    version = run_on(HOST, "python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").strip()
    # This pip would compare the Python that packages require with its own.
    how = ["--ignore-requires-python", "--only-binary=:all:", "--python-version", version, "--target", str(packages)]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *how, *PACKAGES], check=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    send(packages.parent, "packages", PLACE)
    send(ROOT, "\0".join(name for name in names.split("\0") if (ROOT / name).is_file()), CHECKOUT)
    yield PLACE
    run_on(HOST, f"rm -rf {PLACE}", check=False)


def test_links_pass_their_tests(place: str) -> None:
    surroundings = f"PYTHONPATH={place}/packages:{place}:{CHECKOUT} ANSIBLE_COLLECTIONS_PATH={place}"
    tests = f"python3 -m pytest -q -p no:cacheprovider {' '.join(OF_LINKS)}"
    printed = run_on(HOST, f"cd {CHECKOUT} && {surroundings} {tests}; echo code $?")
    assert printed.splitlines()[-1] == "code 0", printed

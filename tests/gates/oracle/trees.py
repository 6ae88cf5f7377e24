"""Checkouts of commits in git worktrees, each with its own tools, whose unit tests run apart from this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
FOLDER = REPOSITORY / ".cache/oracle"
SEED = "eb7707c518099f1e55d2f63272015e04b82c7aa5"
# Where programs write what they find, in a copy.
RESULT = ".cache/oracle/result.json"
# A mutant may kill any process, remove any folder and load any rule: it has namespaces of its own, and writes to its
# checkout alone. Everything that it has started ends with it.
SANDBOX = """
tree=$1; shift
mount --bind "$tree" "$tree"
for place in / /sys /run/netns; do mount -o remount,bind,ro "$place" 2>/dev/null || true; done
for place in /tmp /var/tmp /run /root; do mount -t tmpfs -o size=2g none "$place"; done
mount -o remount,bind,rw "$tree"
ip link set lo up
# Some tests look at an address of the host, or at its processes 7 and 42.
ip link add eth0 type bridge
ip address add 192.0.2.2/24 dev eth0
ip link set eth0 up
for process in 7 42; do
    echo $((process - 1)) > /proc/sys/kernel/ns_last_pid
    sleep infinity &
done
cd "$tree"
"$@"
exit
"""
NAMESPACES = ("--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc")


def git(*arguments: str, folder: Path = REPOSITORY) -> str:
    """Return what a command of git prints."""
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def full_name(commit: str) -> str:
    """Return the whole name of a commit."""
    return git("rev-parse", "--verify", f"{commit}^{{commit}}").strip()


def place(commit: str, copy: str) -> Path:
    """Return where a copy of a commit is."""
    return FOLDER / f"{full_name(commit)[:12]}-{copy}"


def checkout(commit: str, copy: str = "0") -> Path:
    """Return a copy of a commit, without what a killed process has changed in it; a copy is for one process at a time.

    The first copy gets the tools that the commit asks for; the others share them.
    """
    tree, first = place(commit, copy), place(commit, "0")
    if tree != first:
        checkout(commit)
    if not (tree / ".git").exists():
        git("worktree", "prune")
        git("worktree", "add", "--quiet", "--detach", str(tree), full_name(commit))
    git("checkout", "--quiet", "--force", full_name(commit), folder=tree)
    (tree / ".cache/oracle").mkdir(parents=True, exist_ok=True)
    if tree == first:
        python = str(Path(sys.base_prefix, "bin/python3"))
        subprocess.run([tree / "tests/gates/setup"], cwd=tree, env={**os.environ, "PYTHON": python}, check=True)
        return tree
    link = tree / ".venv/collections/ansible_collections/backendai/cluster"
    link.parent.mkdir(parents=True, exist_ok=True)
    # Python finds the packages of a virtual environment from the path by which it is called.
    targets = {tree / ".venv" / name: first / ".venv" / name for name in ("bin", "lib", "pyvenv.cfg")}
    for path, target in {**targets, link: Path("../../../..")}.items():
        if not path.is_symlink():
            path.symlink_to(target)
    return tree


def sandboxed(tree: Path, command: Sequence[str]) -> list[str]:
    """Return a command that runs in a copy and changes nothing else; for root."""
    return ["unshare", *NAMESPACES, "--", "bash", "-ec", SANDBOX, "sandbox", str(tree), *command]


def run_in(tree: Path, *arguments: str, **variables: str) -> None:
    """Run Python with the tools and the tests of a copy, and these variables of the environment."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": "", **variables}
    if subprocess.run(sandboxed(tree, [".venv/bin/python", *arguments]), env=environment, check=False).returncode:
        sys.exit(f"oracle: this failed in {tree}, see above: {arguments}")

"""Create many single-node sessions of two containers on one agent, end them, and tell whether each costs the same.

Ansible's own time is left out: it does not depend on how many sessions there are, but is longer than what does. The
agent does all the rest, with the code that the modules call, over one SSH connection.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import statistics
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.bench.leftovers import nothing_left
from tests.bench.measured import BenchError
from tests.integration import laboratory

AGENT = "agent1"
CONTAINERS, MEMORY, IMAGE = 2, "16m", "lab/busybox:1"
BLOCK = 20
WANTED = 1.2
"""How much the last block may cost, as a multiple of the first."""

UTILS = "plugins/module_utils"
PACKAGE = "ansible_collections/backendai/cluster"

Parts = dict[str, float]


def archive() -> bytes:
    """Return the agent's code of this checkout and what drives it, as an archive that Python runs."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as there:
        there.write(Path(__file__).with_name("creation.py"), "__main__.py")
        folders = {Path(UTILS)}
        for path in sorted((laboratory.ROOT / UTILS).rglob("*.py")):
            inside = path.relative_to(laboratory.ROOT)
            folders |= {inside.parent}
            if path.name != "__init__.py":
                there.write(path, f"{PACKAGE}/{inside}")
        packages = {parent for folder in folders for parent in (Path(PACKAGE, folder), *Path(PACKAGE, folder).parents)}
        for package in sorted(packages - {Path()}):
            there.writestr(f"{package}/__init__.py", "")
    return packed.getvalue()


def asked(count: int) -> dict[str, Any]:
    """Return what the agent is told: the variables of a request, and its own, by which so many sessions fit on it."""
    request = {
        "session_name": "bench-many",
        "session_image": IMAGE,
        "session_cluster_size": CONTAINERS,
        "session_resources": {"cpu": 1, "mem": MEMORY},
    }
    own = {**laboratory.host_variables(AGENT), "agent_cpu_overcommit": count * CONTAINERS}
    return {
        "agent": AGENT,
        "count": count,
        "session": {**_defaults("session"), **request},
        "settings": {**_defaults("agent"), **own},
    }


def _defaults(role: str) -> dict[str, Any]:
    return dict(yaml.safe_load((laboratory.ROOT / "roles" / role / "defaults" / "main.yml").read_text()))


def measure(count: int) -> dict[str, list[Parts]]:
    """Return the seconds of each part of each session that was created and removed."""
    place = "/run/backendai-bench.pyz"
    line = f"trap 'rm -f {place}' EXIT; cat > {place} && python3 {place} {shlex.quote(json.dumps(asked(count)))}"
    found: dict[str, list[Parts]] = {"created": [], "removed": []}
    with subprocess.Popen(laboratory.ssh(AGENT, line), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        if not run.stdin or not run.stdout:
            raise BenchError("the agent cannot be talked to")
        run.stdin.write(archive())
        run.stdin.close()
        for text in run.stdout:
            told = json.loads(text)
            found[told["kind"]].append(told["seconds"])
            if len(found[told["kind"]]) % BLOCK == 0:
                print(f"bench: {told['kind']} {len(found[told['kind']])} of {count}", flush=True)
    if run.returncode or len(found["removed"]) != count:
        raise BenchError(f"{len(found['created'])} of {count} sessions were created, then it ended: see above")
    return found


def total(parts: Parts) -> float:
    """Return the seconds of a session; the indented parts are within others."""
    return sum(seconds for name, seconds in parts.items() if not name.startswith(" "))


def table(sessions: Sequence[Parts]) -> Iterable[str]:
    """Return a line for each block of sessions, with the medians of all parts, and what the last is to the first."""
    blocks = [sessions[start : start + BLOCK] for start in range(0, len(sessions), BLOCK)]
    names = list(dict.fromkeys(name for parts in sessions for name in parts))
    yield f"{'sessions':<12}{'seconds':>9}" + "".join(f"{name:>13}" for name in names)
    medians = []
    for number, block in enumerate(blocks):
        parts = [statistics.median(one.get(name, 0.0) for one in block) for name in names]
        medians.append([statistics.median(map(total, block)), *parts])
        cells = "".join(f"{seconds:13.3f}" for seconds in parts)
        yield f"{f'{number * BLOCK + 1}-{number * BLOCK + len(block)}':<12}{medians[-1][0]:9.3f}{cells}"
    ratios = [last / first if first else 1.0 for first, last in zip(medians[0], medians[-1], strict=True)]
    yield f"{'last / first':<12}{ratios[0]:9.2f}" + "".join(f"{ratio:13.2f}" for ratio in ratios[1:])


def main() -> int:
    """Run the benchmark; its exit code says only whether everything worked."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.many_sessions", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many sessions (default: %(default)s)")
    options = parser.parse_args()
    if not laboratory.INVENTORY.exists():
        sys.exit("bench: the lab is not up: run `make lab`")
    before, load = laboratory.remains(), os.getloadavg()[0]
    found = measure(options.count)
    print(f"\n{options.count} sessions of {CONTAINERS} containers on {AGENT}, all there at once; medians of each block")
    print(f"machine: {os.cpu_count()} cores, load average {load:.1f} before; wanted last / first <= {WANTED}")
    for kind, sessions in found.items():
        print(f"\n{kind}\n")
        print("\n".join(table(sessions)))
    nothing_left(before)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"bench: {error}")

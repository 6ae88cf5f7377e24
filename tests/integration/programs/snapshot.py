"""Print all that a provisioning changes on a host, as JSON: a text by subject, to be compared with another time."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator

FOLDERS = ("/etc", "/opt", "/usr", "/var/lib", "/var/spool", "/srv")

#: What differs however a host is given back, with the reasons.
LEFT_OUT = {
    "copies that useradd and groupadd keep of their files": r"/etc/(passwd|group|shadow|gshadow|subuid|subgid)-",
    "the marks and caches of dpkg and apt: packages are compared by their names, versions and states": (
        r"/var/lib/(dpkg|apt|ucf|python)/.*|/etc/\.pwd\.lock"
    ),
    "Python's compiled files of programs that were used": r".*/__pycache__(/.*)?",
    "the modes of the mount points of the engine's data, which hosts of the lab have before": (
        r"/var/lib/(docker|containerd)"
    ),
    "random seeds, and when timers ran last": r"/var/lib/systemd/(random-seed|timers/.*|timesync/.*)",
    "the cache of the dynamic linker, whose order depends on history": r"/etc/ld\.so\.cache",
}
_LEFT_OUT = re.compile("|".join(f"(?:{pattern})" for pattern in LEFT_OUT.values()))

COMMANDS = {
    "packages": "dpkg-query --show --showformat='${Package} ${Version} ${db:Status-Abbrev}\\n'",
    "units": "systemctl list-unit-files --no-legend --no-pager | sort",
    "failed units": "systemctl list-units --failed --plain --no-legend",
    "timers": "systemctl list-timers --all --no-legend --no-pager | awk '{print $(NF-1)}' | sort",
    "kernel settings": "sysctl --all 2> /dev/null | grep -E '^net[.]ipv[46][.](conf[.](all|default)[.]|ip_forward)'",
    "rules": "nft list ruleset",
    "links": "ls /sys/class/net",
    "routes": "ip route; ip -6 route | grep -v 'metric 256'; ip rule",
    "namespaces": "ip netns list",
    "what runs": "ls /run /run/lock | grep -E 'backendai|docker|containerd|haproxy'",
    "processes": "ps -e -o comm= | grep -E 'docker|containerd|haproxy|shellinabox|wireguard' | sort",
}


def files() -> Iterator[tuple[str, str]]:
    """Yield each path with its mode, owner and content."""
    for root in FOLDERS:
        for folder, names, others in os.walk(root):
            for name in (*names, *others):
                path = os.path.join(folder, name)
                if not _LEFT_OUT.fullmatch(path):
                    yield path, described(path)


def described(path: str) -> str:
    """Return the mode, the owner and the content of a path as text."""
    status = os.lstat(path)
    content = ""
    if stat.S_ISLNK(status.st_mode):
        content = os.readlink(path)
    elif stat.S_ISREG(status.st_mode):
        with open(path, "rb") as stream:
            content = hashlib.sha256(stream.read()).hexdigest()
    return f"{status.st_mode:o} {status.st_uid} {status.st_gid} {content}"


def printed(line: str) -> str:
    """Return what a shell line prints."""
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False).stdout


print(json.dumps({**dict(files()), **{subject: printed(line) for subject, line in COMMANDS.items()}}))

"""The script of the kit that limits the logs of apps."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.unit.builders import REPOSITORY

SCRIPT = (REPOSITORY / "roles/agent/files/kit/shorten-logs").read_text()


def shorten(tmp_path: Path) -> None:
    """Run the script with folders of the test."""
    text = SCRIPT.replace("/var/log/backendai", str(tmp_path)).replace("/var/lib/backendai", str(tmp_path))
    subprocess.run(["sh", "-c", text], check=True)


def test_only_the_end_of_a_large_log_is_kept_and_the_app_appends_to_it(tmp_path: Path) -> None:
    large, small, other = (tmp_path / name for name in ("large.log", "small.log", "other"))
    lines = b"".join(b"%08d\n" % number for number in range(2_000_000))
    small.write_bytes(lines[: 16 << 20])
    other.write_bytes(lines)
    large.write_bytes(lines)
    with large.open("ab") as app:
        shorten(tmp_path)
        app.write(b"next\n")
    assert large.read_bytes() == lines[-(4 << 20) :] + b"next\n"
    assert (small.stat().st_size, other.stat().st_size) == (16 << 20, len(lines))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["large.log", "other", "small.log"]


def test_link_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"x" * (17 << 20))
    (tmp_path / "linked.log").symlink_to(secret)
    shorten(tmp_path)
    assert secret.stat().st_size == 17 << 20

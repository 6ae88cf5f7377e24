"""The page of sessions in headless Chromium, with 200 sessions and 100 agents, and with hostile ones. Needs no lab."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._report.page import PageSources, render_page
from tests.frameworks.page_data import make_agents, make_records
from tests.integration.ansible_settings import ROOT

HERE = Path(__file__).parent
FOLDER = ROOT / "roles/session/templates/page"
SOURCES = PageSources(*((FOLDER / name).read_text() for name in ("page.html.j2", "page.css", "page.js")))
DEBIAN = {"chromium-headless-shell": "chromium-headless-shell", "npm": "npm"}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\u202e"

Look = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Look]:
    """Return a function that returns what a browser shows of a page."""
    folder = tmp_path_factory.mktemp("browser")
    missing = [package for program, package in DEBIAN.items() if not shutil.which(program)]
    if missing:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], check=True)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--target", folder)
    subprocess.run([*pip, "--requirement", HERE / "browser_requirements.txt"], check=True)
    shutil.copy(HERE / "package.json", folder)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder], check=True)
    axe = folder / "node_modules/axe-core/axe.min.js"

    def run(html: str) -> list[dict[str, Any]]:
        page = folder / "page.html"
        page.write_text(html)
        command = [
            sys.executable,
            str(HERE / "browser.py"),
            str(shutil.which("chromium-headless-shell")),
            str(axe),
            str(page),
        ]
        seen = subprocess.run(command, env={"PYTHONPATH": str(folder)}, check=True, stdout=subprocess.PIPE, text=True)
        views: list[dict[str, Any]] = json.loads(seen.stdout)
        return views

    yield run
    shutil.rmtree(folder)


def render(
    records: list[dict[str, Any]], agents: Any, unavailable: dict[str, str], now: float, timer: Any = None
) -> str:
    """Render the page of records that were written to a file and read again."""
    return render_page(SOURCES, json.loads(json.dumps(records)), agents, unavailable, timer or {}, now)


def test_large_page_is_small_fast_and_accessible(look: Look) -> None:
    agents, now = make_agents(100), time.time()
    records = make_records(200, list(agents), now)
    html = render(records, agents, {}, now)
    views = look(html)
    slowest = max(view["content_ms"] for view in views)
    print(f"{len(html.encode()):,} bytes, content after {slowest:.0f} ms at most")
    assert len(html.encode()) <= 300_000
    assert slowest <= 1000
    for view in views:
        assert {"violations": view["violations"], "faults": view["faults"]} == {"violations": [], "faults": []}, view
        assert all(url.startswith(("file:", "data:")) for url in view["requests"]), view["requests"]
        assert (view["rows"], view["overflow"]) == (200, 0)
        assert "timer" not in view["written"]
        assert view["none"] == [0, "None of 200 sessions matches."]
        assert view["focused"] == ["All200"]
        assert sorted(view["names"]) == sorted(record["name"] for record in records)
        assert {tag.split(" ")[0] for tag in view["tags"]} == {"Single-node", "Multi-node", "1"}


def test_names_with_markup_are_shown_and_not_executed(look: Look) -> None:
    now, agents = time.time(), make_agents(1)
    record = make_records(1, list(agents), now)[0]
    kernels = [{**kernel, "agent": HOSTILE, "hostname": HOSTILE} for kernel in record["kernels"]]
    apps = [{"name": HOSTILE, "port": 1, "protocol": HOSTILE}]
    texts = dict.fromkeys(("id", "name", "user", "image", "resource_group", "error", "reason"), HOSTILE)
    timer = {"host": HOSTILE, "ran_at": now - 3 * 3600 - 60, "late_at": now - 3600, "problem": "late"}
    html = render([{**record, **texts, "kernels": kernels, "apps": apps}], agents, {HOSTILE: HOSTILE}, now, timer)
    shown = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    for view in look(html):
        assert (view["faults"], view["names"], view["violations"]) == ([], [shown], [])
        assert ". The last good run of the timer was 3 hours ago: sessions that wait do not start, " in view["written"]
        assert view["written"].endswith(f" backendai-schedule.service on {shown}")
        assert all(url.startswith(("file:", "data:")) for url in view["requests"])

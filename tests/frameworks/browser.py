"""Look at a page in headless Chromium, in both colour schemes and at both widths, and print what is seen as JSON.

Run by a Python that has Playwright: ``browser.py CHROMIUM AXE PAGE``.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Dialog, sync_playwright

CONTENT = """() => Math.max(
    performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd,
    ...performance.getEntriesByName("first-contentful-paint").map((entry) => entry.startTime))"""


def look(browser: Browser, axe: str, address: str, scheme: str, width: int) -> dict[str, Any]:
    """Return what one user sees: errors, requests, violations with all rows open, time to content, and texts."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    requests: list[str] = []
    faults: list[str] = []

    def refuse(dialog: Dialog) -> None:
        faults.append(f"dialog {dialog.message}")
        dialog.dismiss()

    page.on("request", lambda request: requests.append(request.url[:40]))
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", refuse)
    page.goto(address)
    page.wait_for_selector("#list > li")
    content_ms = page.evaluate(CONTENT)
    rows = page.locator("#list > li").count()
    page.keyboard.press("Tab")
    focused = [page.evaluate("document.activeElement.textContent")]
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("details[open] dl")
    for summary in page.locator("details:not([open]) > summary").all()[:12]:
        summary.click()
    violations = page.evaluate(f"async () => {{ {axe}; return (await axe.run()).violations; }}")
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    page.locator("#filter").fill("nothing-is-called-this")
    none = [page.locator("#list > li").count(), page.locator("#count").inner_text()]
    page.locator("#filter").fill("")
    page.locator("#sort").select_option("name")
    names = page.locator(".name").all_inner_texts()
    tags = page.locator(".tag").all_inner_texts()
    written = page.locator("#written").inner_text()
    context.close()
    return {
        "scheme": scheme,
        "width": width,
        "content_ms": content_ms,
        "written": written,
        "rows": rows,
        "focused": focused,
        "none": none,
        "names": names,
        "tags": tags,
        "overflow": overflow,
        "faults": faults,
        "requests": requests,
        "violations": [
            f"{found['id']}: {node['failureSummary']}" for found in violations for node in found["nodes"][:1]
        ],
    }


def main(chromium: str, axe: str, path: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        source, address = Path(axe).read_text(), Path(path).as_uri()
        views = itertools.product(("light", "dark"), (360, 1440))
        print(json.dumps([look(browser, source, address, scheme, width) for scheme, width in views]))
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

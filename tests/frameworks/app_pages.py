"""What a user does on the page of each app, in headless Chromium; each raises when the page does not answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


CELL = "import socket; print('host', socket.gethostname())"


def run_a_cell(page: Page) -> None:
    """Open a notebook in JupyterLab and print the name of the host."""
    # It remembers what was open the last time, of the other kind of link.
    page.locator(".jp-Launcher:visible, .jp-Notebook:visible").first.wait_for()
    card = page.locator(".jp-LauncherCard[data-category=Notebook]:visible").first
    for _attempt in range(60):
        if card.is_visible():
            break
        # Beside the tabs; while the page still loads, nothing may come of it.
        page.locator(".lm-TabBar-addButton:visible").first.click()
        page.wait_for_timeout(3000)
    card.click()
    notebook = page.locator(".jp-NotebookPanel:visible")
    # Before the notebook has a kernel, it is shown as idle, and runs nothing.
    notebook.get_by_text("Python 3 (ipykernel)").wait_for()
    notebook.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(state="attached")
    cell = notebook.locator(".jp-CodeCell .cm-content").first
    # Keys would be lost where the page moves the focus while it still loads.
    cell.fill(CELL)
    page.wait_for_function("([cell, text]) => cell.innerText.trim() == text", arg=[cell.element_handle(), CELL])
    cell.press("Shift+Enter")
    notebook.locator(".jp-OutputArea-output", has_text=re.compile("^host main1$", re.MULTILINE)).first.wait_for()


def log_in_to_a_container(page: Page) -> None:
    """Log in to sub1 from the terminal; the answer is on a line of its own."""
    page.locator("#console", has_text="work@main1").wait_for()
    page.keyboard.type("ssh sub1 hostname\n")
    page.wait_for_function("document.querySelector('#console').innerText.split('\\n').some(l => l.trim() == 'sub1')")


def see_a_scalar(page: Page) -> None:
    page.get_by_text("loss", exact=True).first.wait_for()


def see_a_run(page: Page) -> None:
    page.get_by_text("tuning", exact=True).first.click()
    page.wait_for_url(re.compile("#/experiments/[0-9]+"))
    # What it shows first depends on the release; runs have this address in all.
    page.evaluate("location.hash = location.hash.match('#/experiments/[0-9]+')[0] + '/runs'")
    page.get_by_text("first-run", exact=True).first.wait_for()


def see_the_scheduler(page: Page) -> None:
    """See the charts of Dask's dashboard, which come over a WebSocket, and another page of it."""
    page.locator(".bk-Canvas, .bk-Figure").first.wait_for(state="attached")
    page.get_by_role("link", name="Workers").first.click()
    page.locator(".bk-DataTable").first.wait_for(state="attached")


def see_a_node(page: Page) -> None:
    page.get_by_role("link", name="Cluster").first.click()
    page.get_by_text("main1").first.wait_for()


USES: dict[str, Callable[[Page], None]] = {
    "jupyter": run_a_cell,
    "terminal": log_in_to_a_container,
    "tensorboard": see_a_scalar,
    "mlflow": see_a_run,
    "dask": see_the_scheduler,
    "ray": see_a_node,
}

"""The apps of sessions in a real browser: opened from the printed link, used, and apart from each other."""

from __future__ import annotations

import base64
import importlib
import re
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.frameworks.app_pages import USES
from tests.frameworks.packages import copy_to_agent, install_packages
from tests.integration.ansible_settings import ROOT
from tests.integration.gateway_client import GATEWAY, provision_gateway
from tests.integration.laboratory import address, run_in, run_on, run_playbook
from tests.integration.managers import MANAGER, SETTINGS
from tests.integration.programs import source
from tests.integration.session_requests import SMALL
from tests.integration.sessions import StartedSession, started_session
from tests.integration.user_command import backendai, create
from tests.integration.waiting import wait_until
from tests.lab.debian import require
from tests.lab.distributed_image import TAG

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

REQUIREMENTS = Path(__file__).with_name("apps_requirements.txt")
AGENT, ON_AGENT, IN_CONTAINERS = "agent1", "/srv/apps", "/opt/apps"
DOMAIN, CHROMIUM = "apps.example.org", "chromium-headless-shell"
WITH_DOMAIN = ("-e", f"gateway_domain={DOMAIN}")
#: Of the machine, in milliseconds: it is slow, and pages load megabytes of scripts.
PATIENCE = 300_000

#: Packages below a folder of their own, as in a mount.
ENVIRONMENT = {
    "PATH": f"{IN_CONTAINERS}/bin:/usr/local/bin:/usr/bin:/bin",
    "PYTHONPATH": IN_CONTAINERS,
    "JUPYTER_PATH": f"{IN_CONTAINERS}/share/jupyter",
    "JUPYTER_CONFIG_PATH": f"{IN_CONTAINERS}/etc/jupyter",
    "JUPYTERLAB_DIR": f"{IN_CONTAINERS}/share/jupyter/lab",
    # Ray gives its dashboard a minute to start, and a busy machine takes longer.
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "600",
}
TOGETHER = [app for app in USES if app != "ray"]
#: What these pages ask for in vain without a gateway, too: fonts at the root, a user, services that do not run.
ABSENT = re.compile(r"/font-roboto/|/mlflow/users/current$|/api/(v0/platform_events|grafana_health|prometheus_health)$")

RECORD = """
import os, time
import mlflow
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(os.path.expanduser("~/data/tensorboard/first"))
for step in range(10):
    summary = Summary(value=[Summary.Value(tag="loss", simple_value=1 / (1 + step))])
    writer.add_event(Event(step=step, wall_time=time.time(), summary=summary))
writer.close()
mlflow.set_tracking_uri("http://main1:5000")
mlflow.set_experiment("tuning")
with mlflow.start_run(run_name="first-run"):
    mlflow.log_metric("loss", 0.5)
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The folder on an agent with the apps."""
    folder = tmp_path_factory.mktemp("apps") / "readable"  # pytest's own folders are for root alone
    folder.mkdir(mode=0o755)
    try:
        install_packages(REQUIREMENTS, folder)
        copy_to_agent(folder, AGENT, ON_AGENT)
        yield ON_AGENT
    finally:
        run_on(AGENT, f"rm -rf {ON_AGENT}")


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provision the gateway with a domain of host names for apps; afterwards without."""
    folder = tmp_path_factory.mktemp("gateway")
    run = provision_gateway(folder, domain=DOMAIN)
    assert run.code == 0, run.output
    yield DOMAIN
    rerun = provision_gateway(folder)
    assert rerun.code == 0, rerun.output


def request_with(packages: str, *apps: str) -> dict[str, Any]:
    """Return the variables of a session of two containers with apps."""
    return {
        "apps": [*apps],
        "roles": {
            "main": {"resources": {"cpu": 2, "mem": "8g", "shmem": "1g"}},
            "sub": {"resources": {"cpu": 1, "mem": "128m"}},
        },
        "env": ENVIRONMENT,
        "mounts": [{"source": packages, "target": IN_CONTAINERS, "read_only": True}],
        "designated_agents": [AGENT],
    }


@pytest.fixture
def with_ray(domain: str, packages: str, tmp_path: Path) -> Iterator[StartedSession]:
    """A session with Ray alone: it gives its first processes 15 seconds, too short beside others that start."""
    assert domain == DOMAIN
    with started_session(tmp_path, *WITH_DOMAIN, **request_with(packages, "ray")) as session:
        yield session


@pytest.fixture(scope="module")
def session(domain: str, packages: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """A session with every other app that has wheels, and what these show."""
    assert domain == DOMAIN
    request = request_with(packages, *TOGETHER)
    with started_session(tmp_path_factory.mktemp("session"), *WITH_DOMAIN, **request) as session:
        main = session.kernels[0]
        listens = "python3 -c 'import socket; socket.create_connection((\"main1\", 5000))' && echo listens"
        wait_until(lambda: "listens" in run_in(main, "sh", "-c", listens, check=False), 600)
        record = f"python3 -c {shlex.quote(RECORD)} > /dev/null 2>&1"
        run_in(main, "/opt/backendai/shell/bash", "-c", record)
        yield session


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Debian's Chromium; names of apps lead to the gateway."""
    require(CHROMIUM)
    folder = tmp_path_factory.mktemp("playwright")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--no-warn-conflicts", "--target", folder)
    subprocess.run([*pip, "--requirement", REQUIREMENTS.with_name("browser_requirements.txt")], check=True)
    sys.path.append(str(folder))
    sync_playwright = importlib.import_module("playwright.sync_api").sync_playwright
    options = ["--no-sandbox", f"--host-resolver-rules=MAP *.{DOMAIN} {address(GATEWAY)}"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which(CHROMIUM), args=options)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, link: str) -> Iterator[Page]:
    """Open a link in a browser of its own."""
    # The certificate is self-signed.
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 1400, "height": 900})
    context.set_default_timeout(PATIENCE)
    try:
        page = context.new_page()
        open_patiently(page, link)
        yield page
    finally:
        context.close()


def open_patiently(page: Page, link: str) -> None:
    """Open a link, until its app has started."""
    wait_until(lambda: (page.goto(link, wait_until="domcontentloaded") or pytest.fail(link)).status == 200, 600, 2)


def printed_links(session: StartedSession, folder: Path) -> dict[str, str]:
    """Return the links that ``session_token`` prints, by app."""
    variables = {"session_name": session.record["name"], "session_token_path": str(folder / "token")}
    run = run_playbook("session_token", folder, variables)
    assert run.code == 0, run.output
    return dict(re.findall(r"^  ([a-z-]+) +(https://\S+[?&]token=\S+)$", run.output, re.MULTILINE))


@pytest.fixture(scope="module")
def links(session: StartedSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return printed_links(session, tmp_path_factory.mktemp("links"))


def by_path(link: str, session: str, app: str) -> str:
    """Return the link by path for one by host name."""
    prefix = f"/s/{session}/{app}"
    page = link.partition(f".{DOMAIN}")[2].removeprefix(prefix)
    return f"https://{address(GATEWAY)}{prefix}{page}"


def use(app: str, link: str, browser: Browser) -> None:
    """Use an app in a browser, without a password or an error."""
    problems: list[str] = []
    with opened(browser, link) as page:
        # A request of the terminal that leaving its page cuts off is an error there.
        page.goto("about:blank")
        page.on("response", lambda answer: problems.append(answer.url) if answer.status >= 400 else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", partial(note_error, problems))
        page.goto(link)
        USES[app](page)
        assert page.locator("input[type=password]").count() == 0
        assert "token=" not in page.url
    assert [problem for problem in problems if not ABSENT.search(problem)] == []


# First, while no other app runs.
def test_ray_is_used_without_a_password_or_an_error(with_ray: StartedSession, browser: Browser, tmp_path: Path) -> None:
    link = printed_links(with_ray, tmp_path)["ray"]
    for each in (link, by_path(link, with_ray.record["name"], "ray")):
        use("ray", each, browser)


@pytest.mark.parametrize("kind", ["path", "host"])
@pytest.mark.parametrize("app", TOGETHER)
def test_app_is_used_without_a_password_or_an_error(
    session: StartedSession, links: dict[str, str], browser: Browser, app: str, kind: str
) -> None:
    use(app, links[app] if kind == "host" else by_path(links[app], session.record["name"], app), browser)


def note_error(problems: list[str], message: ConsoleMessage) -> None:
    """Note an error in the browser's console; of what could not be loaded, its address."""
    if message.type == "error":
        failed = message.text.startswith("Failed to load resource")
        problems.append(message.location["url"] if failed else message.text)


def test_readme_starts_apps_by_these_words() -> None:
    (words,) = re.findall(r"^session_apps: \[(.*?)\]", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert {*words.split(", ")} == {"jupyter", "terminal"} <= {*USES}


@pytest.fixture
def session_of_alice(domain: str) -> Iterator[str]:
    """A session with apps of somebody who is root nowhere, from the image with the frameworks, on manager1."""
    inventory, name = f"{SETTINGS}/inventory.yml", f"it-{uuid.uuid4().hex[:8]}"
    with_domain = f"sed -i 's/^all:/all:\\n  vars: {{gateway_domain: {domain}}}/' {inventory}"
    run_on(MANAGER, f"cp -p {inventory} {inventory}.before; {with_domain}")
    try:
        create("alice", name, "--size", "2", "--image", TAG, "--mem", "2g", "--app", "jupyter", "--app", "terminal")
        yield name
    finally:
        backendai("alice", "end", name)
        run_on(MANAGER, f"mv {inventory}.before {inventory}")


@pytest.mark.parametrize("app", ["jupyter", "terminal"])
def test_the_command_of_users_opens_an_app(session_of_alice: str, browser: Browser, app: str) -> None:
    answer = backendai("alice", "open", session_of_alice, app)
    assert answer.code == 0, answer
    (link,) = re.findall(r"https://\S+token=\S+", answer.output)
    with opened(browser, link) as page:
        USES[app](page)
        assert page.locator("input[type=password]").count() == 0


@pytest.fixture(scope="module")
def victim(domain: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """A session with an app that has a secret, and logs what reaches it."""
    assert domain == DOMAIN
    request = {**SMALL, "apps": [app_of("victim", "")]}
    with started_session(tmp_path_factory.mktemp("victim"), *WITH_DOMAIN, **request) as session:
        yield session


@pytest.fixture(scope="module")
def hostile(victim: StartedSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """A session with a page that tries to read the other one's."""
    request = {**SMALL, "apps": [app_of("hostile", f"https://{victim.record['name']}--victim.{DOMAIN}/")]}
    with started_session(tmp_path_factory.mktemp("hostile"), *WITH_DOMAIN, **request) as session:
        yield session


def app_of(name: str, target: str) -> dict[str, object]:
    program = base64.b64encode(source("hostile_app").encode()).decode()
    return {
        "name": name,
        "port": 8000,
        "command": f'exec python3 -c "$(echo {program} | base64 -d)" 8000 {target}',
    }


def test_hostile_page_gets_nothing_of_another_session(
    victim: StartedSession, hostile: StartedSession, browser: Browser, tmp_path: Path
) -> None:
    link = printed_links(victim, tmp_path)["victim"]
    with opened(browser, link) as page:
        before = page.content()
        assert "secret of the session" in before
        with page.expect_popup() as popup:
            page.evaluate("link => void window.open(link)", printed_links(hostile, tmp_path)["hostile"])
        attack = popup.value
        attack.wait_for_function("document.title == 'done'")
        got = attack.evaluate("got")
        assert len(got) == 13
        assert {name: read for name, read in got.items() if read} == {}
        assert "secret" not in attack.evaluate("[window.secret, document.documentElement.outerHTML].join()")
        # A link may be followed; nothing else arrives, and no cookie of the other page takes the user's place.
        reached = run_in(victim.kernels[0], "cat", "/var/log/backendai/victim.log").split()
        assert {*reached} - {"/", "/favicon.ico", "/opened"} == set()
        again = page.goto(page.url)
        assert again is not None
        assert (again.status, page.content()) == (200, before)

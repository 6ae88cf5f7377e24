"""Check the forge's workflows and the commit hooks: they have the form that their programs read, and run our targets.

Neither can be run here, so a mistake would show only after a push.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.gates.pages import Checkout

WORKFLOWS = ".github/workflows"
WORKFLOW = "test.yml"
"""The workflow of the tests."""
HOOKS = Path(".pre-commit-config.yaml")
EVENTS = {"push", "pull_request", "schedule", "workflow_dispatch"}
WORKFLOW_KEYS = {"name", "on", "permissions", "concurrency", "jobs"}
JOB_KEYS = {"name", "if", "runs-on", "timeout-minutes", "steps"}
STEP_KEYS = {"name", "if", "run", "uses", "with"}
HOOK_KEYS = {"id", "name", "entry", "language", "pass_filenames", "types", "files", "stages"}
CONFIG_KEYS = {"default_install_hook_types", "default_stages", "repos"}
STAGES = {"pre-commit", "pre-push"}
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
CRON = re.compile(r"[\d*/,-]+(?: [\d*/,-]+){4}")


@dataclass(frozen=True)
class Promise:
    """What a job of the workflow runs, and an event that starts it."""

    command: str
    event: str


PROMISES = (Promise("test", "push"), Promise("test", "pull_request"), Promise("test-all", "schedule"))


def strangers(where: str, mapping: dict[Any, Any], known: set[str]) -> Iterator[str]:
    """Yield a sentence for each key that the program behind a file does not expect there."""
    yield from (f"{where}: {key} is not expected here" for key in mapping if key not in known)


def targets_of(command: str) -> list[str] | None:
    """Return the targets that a command line makes; None if it is no plain call of make."""
    words = shlex.split(command)
    if words[:1] == ["sudo"]:
        words = words[1:]
    targets = [word for word in words[1:] if "=" not in word]
    return targets if words[:1] == ["make"] and targets else None


def command_faults(where: str, commands: object, known: set[str]) -> Iterator[str]:
    """Yield a sentence for each line of a command that is not a call of make, and each target that does not exist."""
    lines = [line for line in str(commands or "").splitlines() if line.strip()]
    if not lines:
        yield f"{where}: no command"
    for line in lines:
        targets = targets_of(line)
        if targets is None:
            yield f"{where}: {line.strip()} is not `make` with a target"
            continue
        yield from (f"{where}: the Makefile has no target {target}" for target in targets if target not in known)


def step_faults(where: str, step: object, known: set[str]) -> Iterator[str]:
    if not isinstance(step, dict):
        yield f"{where}: a step is a mapping"
        return
    yield from strangers(where, step, STEP_KEYS)
    if ("run" in step) == ("uses" in step):
        yield f"{where}: a step has either run or uses"
    elif "run" in step:
        yield from command_faults(where, step["run"], known)
    elif not PINNED.fullmatch(str(step["uses"])):
        yield f"{where}: {step['uses']} is not pinned to a commit of 40 digits"


def job_faults(where: str, job: object, known: set[str]) -> Iterator[str]:
    if not isinstance(job, dict):
        yield f"{where}: a job is a mapping"
        return
    yield from strangers(where, job, JOB_KEYS)
    if not isinstance(job.get("runs-on"), str):
        yield f"{where}: runs-on names no machine"
    if not isinstance(job.get("timeout-minutes"), int):
        yield f"{where}: timeout-minutes is not a number of minutes"
    steps = job.get("steps")
    if not isinstance(steps, list) or not steps:
        yield f"{where}: steps is not a list of steps"
        return
    for number, step in enumerate(steps, start=1):
        yield from step_faults(f"{where}, step {number}", step, known)


def events_of(workflow: dict[Any, Any]) -> dict[str, Any]:
    """Return the events of a workflow, none if they are no mapping; YAML 1.1 reads the key ``on`` as true."""
    events = workflow.get("on", workflow.get(True))
    return events if isinstance(events, dict) else {}


def event_faults(where: str, events: dict[str, Any]) -> Iterator[str]:
    if not events:
        yield f"{where}: on is not a mapping of events"
        return
    yield from strangers(f"{where}: on", events, EVENTS)
    if "schedule" in events:
        times = events["schedule"]
        crons = [str(time.get("cron")) if isinstance(time, dict) else "" for time in times or [None]]
        yield from (f"{where}: schedule: not five fields of cron" for cron in crons if not CRON.fullmatch(cron))


def workflow_faults(where: str, workflow: object, known: set[str]) -> Iterator[str]:
    """Yield the faults of a workflow; `known` are the targets of the Makefile."""
    if not isinstance(workflow, dict):
        yield f"{where}: a workflow is a mapping"
        return
    yield from strangers(where, {"on" if key is True else key: 0 for key in workflow}, WORKFLOW_KEYS)
    yield from event_faults(where, events_of(workflow))
    if workflow.get("permissions") != {"contents": "read"}:
        yield f"{where}: permissions are not {{contents: read}}: tests write nothing"
    jobs = workflow.get("jobs")
    if not isinstance(jobs, dict) or not jobs:
        yield f"{where}: jobs is not a mapping of jobs"
        return
    for name, job in jobs.items():
        yield from job_faults(f"{where}: jobs.{name}", job, known)


def started_by(job: dict[str, Any], event: str) -> bool:
    """Whether an event starts a job: its condition names none, or this one."""
    named = re.findall(r"event_name == '(\w+)'", str(job.get("if", "")))
    return not named or event in named


def broken_promises(where: str, workflow: dict[Any, Any]) -> Iterator[str]:
    """Yield a sentence for each event that does not start the tests that it has to start; the form is right."""
    for promise in PROMISES:
        jobs = [job for job in workflow["jobs"].values() if started_by(job, promise.event)]
        lines = [line for job in jobs for step in job["steps"] for line in str(step.get("run", "")).splitlines()]
        if promise.event not in events_of(workflow) or [promise.command] not in map(targets_of, lines):
            yield f"{where}: {promise.event} does not start `make {promise.command}`"


def hook_faults(where: str, hook: object, known: set[str]) -> Iterator[str]:
    if not isinstance(hook, dict):
        yield f"{where}: a hook is a mapping"
        return
    yield from strangers(where, hook, HOOK_KEYS)
    yield from (f"{where}: no {key}" for key in ("id", "name") if not isinstance(hook.get(key), str))
    if hook.get("language") != "system":
        yield f"{where}: language is not system: `make setup` installs the tools"
    if hook.get("pass_filenames") is not False:
        yield f"{where}: pass_filenames is not false: make would take the files for targets"
    stages = hook.get("stages", [])
    if not isinstance(stages, list) or not STAGES.issuperset(stages):
        yield f"{where}: stages are not of {', '.join(sorted(STAGES))}"
    yield from command_faults(where, hook.get("entry"), known)


def config_faults(config: object, known: set[str]) -> Iterator[str]:
    """Yield the faults of the configuration of pre-commit."""
    where = str(HOOKS)
    if not isinstance(config, dict) or not isinstance(config.get("repos"), list):
        yield f"{where}: repos is not a list"
        return
    yield from strangers(where, config, CONFIG_KEYS)
    for repository in config["repos"]:
        if not isinstance(repository, dict) or repository.get("repo") != "local":
            yield f"{where}: a repository is not local: its hooks would be downloaded"
            continue
        for number, hook in enumerate(repository.get("hooks") or [None], start=1):
            yield from hook_faults(f"{where}: hook {number}", hook, known)


def faults(root: Path) -> Iterator[str]:
    """Yield the faults of all workflows and of the hooks of a checkout."""
    known = Checkout(root).targets
    paths = sorted((root / WORKFLOWS).glob("*.y*ml"))
    if root / WORKFLOWS / WORKFLOW not in paths:
        yield f"{WORKFLOWS}/{WORKFLOW}: no such file"
    for path in paths:
        where = str(path.relative_to(root))
        workflow = yaml.safe_load(path.read_text())
        found = list(workflow_faults(where, workflow, known))
        yield from found
        if path.name == WORKFLOW and not found:
            yield from broken_promises(where, workflow)
    if not (root / HOOKS).exists():
        yield f"{HOOKS}: no such file"
        return
    yield from config_faults(yaml.safe_load((root / HOOKS).read_text()), known)


def main() -> None:
    try:
        found = list(faults(Path()))
    except yaml.YAMLError as error:
        sys.exit(f"{WORKFLOWS} or {HOOKS}: {error}")
    if found:
        sys.exit("\n".join(found))
    print("the forge's workflow and the commit hooks: each command is a target of the Makefile")


if __name__ == "__main__":
    main()

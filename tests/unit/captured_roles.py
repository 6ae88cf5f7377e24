"""Runs roles with Ansible, on hosts of recorded distributions, and notes what they call: modules, arguments, order.

Run as a program, because it replaces parts of Ansible: ``python -m tests.unit.captured_roles INVENTORY PLAYBOOK OUT``.
Nothing is run on a host. Facts come from Ansible's own parser; what the host has of packages is in its recording.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ansible.executor.process.worker import WorkerProcess, _task
from ansible.executor.task_executor import TaskExecutor
from ansible.executor.task_result import _RawTaskResult
from ansible.module_utils import distro
from ansible.module_utils.facts.system import distribution

FAMILIES = Path(__file__).parent / "roles/host/families"
# The module in which its functions look for the distribution: Ansible's copy, or the installed package.
_INNER = sys.modules[distro.LinuxDistribution.__module__]
# These run: they change nothing, and decide what is called.
_OF_CONTROL_NODE = ("assert", "debug", "fail", "include_vars", "set_fact", "validate_argument_spec")
#: What is on a host that nothing is installed on.
_NEEDED, _MACHINE = ("ip", "modprobe", "nft", "sudo", "sysctl"), platform.machine()
_ANSWER = {"rc": 0, "stdout": "", "stdout_lines": [], "stderr": "", "stat": {"exists": False}, "changed": False}


def read_facts(recorded: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Return the facts of the distribution whose ``os_release`` was recorded, as Ansible parses it below ``root``."""
    (root / "etc").mkdir(parents=True, exist_ok=True)
    (root / "etc/os-release").write_text("".join(f"{line}\n" for line in recorded["os_release"]))
    if "redhat_release" in recorded:
        (root / "etc/redhat-release").write_text(f"{recorded['redhat_release']}\n")
    known = distro.LinuxDistribution(include_lsb=False, include_uname=False, root_dir=str(root))

    def read(path: str, default: str | None = None, strip: bool = True) -> str | None:
        file = root / path.lstrip("/")
        return (file.read_text().strip() if strip else file.read_text()) if file.exists() else default

    def exists(path: str, **_options: object) -> bool:
        return (root / path.lstrip("/")).exists()

    with (
        patch.object(distribution, "get_file_content", read),
        patch.object(distribution, "_file_exists", exists),
        patch.object(_INNER, "_distro", known),
    ):
        facts: dict[str, Any] = distribution.Distribution(module=_Host()).get_distribution_facts()
    version = {"major": 3, "minor": recorded["python"]}
    return {**facts, "python": {"version": version, "executable": "/usr/bin/python3"}}


class _Host:
    """A host without programs."""

    def get_bin_path(self, *_arguments: object, **_options: object) -> None:
        return None

    def run_command(self, *_arguments: object, **_options: object) -> tuple[int, str, str]:
        return 127, "", ""


def judge_recorded(recorded: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``host_requirements`` returns with ``options`` on a fresh host of this distribution."""
    # By Ansible's importer, which is not there before.
    ours = "ansible_collections.backendai.cluster.plugins.module_utils"
    packages_of = importlib.import_module(f"{ours}._host.packages")
    requirements = importlib.import_module(f"{ours}._requirements.requirements")
    engines = importlib.import_module(f"{ours}._requirements.engine_look")
    family = requirements.Family(**options["family"])
    wanted = requirements.Wanted(options["role"], family, **options["wanted"])
    packages = {name: packages_of.Package(candidate=version) for name, version in recorded["packages"].items()}
    host = requirements.Host(packages=packages, has_sdk=False, manager_python=(3, recorded["python"]))
    if not wanted.install:
        host = host._replace(
            programs=dict.fromkeys(_NEEDED, "9.9"), engine=engines.Engine("27.3.1"), has_sdk=True, machine=_MACHINE
        )
    verdict = requirements.judge(wanted, host)
    if verdict.problems:
        return {"failed": True, "msg": " ".join(verdict.problems), "problems": list(verdict.problems)}
    return {"engine": verdict.engine, "packages": list(verdict.packages), "changed": False}


def _answer(module: str, args: dict[str, Any], name: str, out: Path) -> dict[str, Any]:
    recorded = json.loads((FAMILIES / f"{name.partition('_')[0]}.json").read_text())
    if module == "setup":
        return {"ansible_facts": read_facts(recorded, out.parent / name), "changed": False}
    if module == "host_requirements":
        return judge_recorded(recorded, args)
    if module == "host_record" and args["state"] == "ended":
        # What follows is the same on all of them.
        return {"failed": True, "msg": "the end of what is captured"}
    return dict(_ANSWER)


def _run_here(worker: WorkerProcess) -> None:
    """Run a worker's task in this process: the thousand processes of this playbook were most of its time."""
    # A task is changed as it runs; those of other hosts begin with what was written.
    task = worker._task.copy(exclude_parent=True)
    task._parent = worker._task._parent
    with _task.TaskContext(task):
        result = TaskExecutor(
            worker._host,
            task,
            worker._task_vars,
            worker._play_context,
            worker._loader,
            worker._shared_loader_obj,
            worker._final_q,
            worker._variable_manager,
        ).run()
    worker._final_q.send_task_result(
        _RawTaskResult(host=worker._host, task=worker._task, return_data=result, task_fields=task.dump_attrs())
    )


def main(inventory: str, playbook: str, path: str) -> int:
    """Run a playbook, and write what it calls to a file, a line each."""
    original = TaskExecutor._get_action_handler_with_module_context
    out = Path(path)

    def handler_of(self: Any, *arguments: Any, **options: Any) -> Any:
        handler, context = original(self, *arguments, **options)
        module = str(self._task.action).rpartition(".")[2]
        if module in _OF_CONTROL_NODE:
            return handler, context

        def run(*, task_vars: Mapping[str, Any]) -> dict[str, Any]:
            args, name = json.loads(json.dumps(dict(self._task.args))), str(task_vars["inventory_hostname"])
            result = _answer(module, args, name, out)
            with out.open("a") as stream:
                stream.write(json.dumps([name, module, args, result.get("problems", [])]) + "\n")
            return result

        handler.run = run
        return handler, context

    os.environ["ANSIBLE_LOCALHOST_WARNING"] = "false"
    with (
        patch.object(TaskExecutor, "_get_action_handler_with_module_context", handler_of),
        patch.object(WorkerProcess, "start", _run_here),
    ):
        from ansible.cli.playbook import PlaybookCLI

        options = ["-i", inventory, "--forks", "4", "-e", '{"__manager_checks": []}']
        return int(PlaybookCLI(["ansible-playbook", *options, playbook]).run() or 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

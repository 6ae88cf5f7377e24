"""A host with firewalld and ufw, which change and list their rules as the real programs do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import foreign

ZONES = ("docker", "public")


class Host:
    """The rules of both, and the commands that have changed any; ``broken`` is a word of those that fail.

    ``refused`` is a part of what firewalld does not take, and yet succeeds, as it does if it takes others.
    """

    def __init__(self, folder: Path, *programs: str, runs_firewalld: bool = True, ufw: bool = True) -> None:
        self.programs, self.runs_firewalld = {*programs}, runs_firewalld
        self.settings = folder / "ufw.conf"
        self.settings.write_text(f"#ENABLED=no\nENABLED={'yes' if ufw else 'no'}\nLOGLEVEL=low\n")
        self.defaults = folder / "ufw.defaults"
        self.defaults.write_text('IPV6=yes\nDEFAULT_INPUT_POLICY="DROP"\n')
        self.zones: dict[bool, dict[str, list[str]]] = {flag: {name: [] for name in ZONES} for flag in (False, True)}
        self.zones[False]["docker"].append("--add-interface=backendai0")
        self.ufw: list[str] = []
        self.changes: list[list[str]] = []
        self.broken = self.refused = ""

    def has(self, program: str) -> bool:
        return program in self.programs

    def run(self, *command: str) -> str:
        """Run a command of either, and return what it prints."""
        if self.broken and self.broken in command:
            raise subprocess.CalledProcessError(1, command, "", "Error: COMMAND_FAILED")
        if command[0] == "ufw":
            return self._ufw(*command[1:])
        assert (command[0] == "firewall-cmd") == self.runs_firewalld, command
        words = [word for word in command[1:] if word != "--permanent"]
        permanent = "--permanent" in command or command[0] == "firewall-offline-cmd"
        if words == ["--get-default-zone"]:
            return "public\n"
        if words == ["--list-all-zones"]:
            return "\n".join(self._listed(name, permanent) for name in ZONES)
        self.changes.append([*command])
        zone = self.zones[permanent][words[0].removeprefix("--zone=")]
        assert len({word.partition("=")[0] for word in words[1:]}) == 1, "firewalld takes one kind at a time"
        for word in words[1:]:
            if self.refused and self.refused in word:
                continue
            added = word.replace("--remove-", "--add-")
            zone[:] = [*(rule for rule in zone if rule != added), *([added] if added == word else [])]
        return "success\n"

    def _listed(self, name: str, permanent: bool) -> str:
        words = [word.partition("=")[::2] for word in self.zones[permanent][name]]
        interfaces = " ".join(value for kind, value in words if kind == "--add-interface")
        rules = "".join(f"\n\t{value}" for kind, value in words if kind == "--add-rich-rule")
        target = "ACCEPT" if name == "docker" else "default"
        return (
            f"{name}\n  target: {target}\n  interfaces: {interfaces}\n  sources: \n  ports: \n  rich rules: {rules}\n"
        )

    def _ufw(self, *words: str) -> str:
        if words == ("show", "added"):
            return "Added user rules (see 'ufw status' for running firewall):\n" + "\n".join(self.ufw or ["(None)"])
        self.changes.append(["ufw", *words])
        deletes = words[0] == "delete"
        action, *rest = words[1:] if deletes else words
        matches, _mark, comment = " ".join(rest).partition(" comment ")
        there = [rule for rule in self.ufw if rule.split(" ", 2)[2].partition(" comment ")[0] == matches]
        assert not deletes or there, "a rule that is not there is not deleted"
        line = f"ufw {action} {matches}" + (f" comment '{comment}'" if comment else "")
        self.ufw = [*(rule for rule in self.ufw if rule not in there), *([] if deletes else [line])]
        return ""


@contextmanager
def on_host(host: Host) -> Iterator[None]:
    """Let the module see this host, whose peers are behind eth0."""
    with (
        patch.object(foreign, "_run", host.run),
        patch.object(foreign, "_has", host.has),
        patch.object(foreign, "_runs_firewalld", lambda: host.has("firewall-cmd") and host.runs_firewalld),
        patch.object(foreign, "UFW_SETTINGS", host.settings),
        patch.object(foreign, "UFW_DEFAULTS", host.defaults),
        patch.object(foreign, "_arrives_on", lambda _opening: ["eth0"]),
    ):
        yield

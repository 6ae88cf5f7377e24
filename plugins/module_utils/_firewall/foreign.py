# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Opens firewalld and ufw for the roles of this host, and takes away again what it has added, and nothing else.

A rule is the command line that adds it, which is also what operators are shown. Those of this collection have a mark,
and are written down before they are added. New ones are on trial together with the firewall of the host, in firewalld
at runtime only. Neither firewall is ever enabled, disabled or reloaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import NamedTuple

from .._host.store import LockTimeoutError, Store
from .._model.addressing import is_ipv6
from .._model.change import Change
from .._model.errors import EXPECTED, ClusterError, as_phrase, reason
from .._model.files import LOCK_SECONDS, describe_held_lock, locked, write_atomically
from .._model.network import BRIDGE_PREFIX, DEFAULT_BRIDGE
from .._model.state_format import StateFormat
from .._network.host import external_interfaces
from .._network.iproute import NetworkError, show
from .openings import (
    ACCEPT_ALL,
    MARK,
    PRIORITY,
    Opening,
    Rule,
    Zone,
    deciding,
    parse_ufw,
    parse_zones,
    rich_rule,
    ufw_rule,
    zone_of,
    zones_of,
)
from .state import FirewallState

FIREWALLD, UFW = "firewalld", "ufw"
_PROGRAMS = {FIREWALLD: "firewall-cmd ", UFW: "ufw "}
UFW_SETTINGS, UFW_DEFAULTS = Path("/etc/ufw/ufw.conf"), Path("/etc/default/ufw")
BRIDGES = f"{BRIDGE_PREFIX}+"
"""The bridges of sessions, as firewalld writes names that begin alike."""
_NO_IPV6 = f"it drops IPv6: set IPV6=yes in {UFW_DEFAULTS}, then ufw disable and ufw enable"
SECONDS = 60.0
WITHDRAW_SECONDS = 20.0
"""How long a timer waits for the lock: its unit ends after a minute, and the next one comes soon."""
_PERMANENT = "--permanent "


class Found(NamedTuple):
    """A firewall of others: all its rules, and those that the roles need, each with whether it is not to be added.

    ``closed`` are phrases about what it closes whatever is added.
    """

    name: str
    active: bool
    rules: tuple[str, ...]
    needs: dict[str, bool]
    closed: tuple[str, ...]

    @property
    def lacks(self) -> list[str]:
        """The rules that it lacks."""
        return [line for line, there in self.needs.items() if not there]

    @property
    def lines(self) -> list[str]:
        """The same without our mark: who runs them has rules of his own."""
        return [line.replace(f' priority="{PRIORITY}"', "").replace(f" comment '{MARK}'", "") for line in self.lacks]


def find_firewalls(openings: Collection[Opening], *, bridges: bool) -> list[Found]:
    """Return the firewalls of this host. Raises one of :data:`EXPECTED`."""
    return [*([_firewalld(openings, bridges)] if _runs_firewalld() else []), *([_ufw(openings)] if _has(UFW) else [])]


def name_closing(openings: Collection[Opening], agent: str, *, bridges: bool) -> list[str]:
    """Return a phrase for each firewall that closes some of the openings that a session needs on this agent."""
    try:
        found = find_firewalls(openings, bridges=bridges)
    except EXPECTED as error:
        return [f"whether a firewall of {agent} closes it is not known ({reason(error)})"]
    return [
        f"{each.name} on {agent} closes what it needs: {'; '.join([*_advice(each), *each.closed])}"
        for each in found
        if each.active and (each.lacks or each.closed)
    ]


def _advice(found: Found) -> list[str]:
    return [f"see firewall_foreign, or run there: {'; '.join(found.lines)}"] if found.lacks else []


def _firewalld(openings: Iterable[Opening], bridges: bool) -> Found:
    default = _run("firewall-cmd", "--get-default-zone").strip()
    settings = {flag: _read_zones(flag) for flag in ("", _PERMANENT)}
    now, needs = settings[""], {}
    closed: dict[str, None] = {}
    for opening in openings:
        for name in zones_of(opening, now, default, _arrives_on(opening)):
            for flag, zones in settings.items():
                rule = deciding(opening, zones[name].rules if name in zones else [ACCEPT_ALL])
                needs[_line(flag, name, "rich-rule", rich_rule(opening))] = rule is not None
                closed.update(_name_denying(rule, f" of the zone {name}"))
    # Without a zone of the engine its rules are missing, too, which has a remedy of its own; what is ours stays.
    engine = zone_of(DEFAULT_BRIDGE, now)
    for name in ([engine] if engine else now) if bridges else ():
        for flag, zones in settings.items():
            there = not engine or engine not in zones or bool(zone_of(BRIDGES, zones))
            needs[_line(flag, name, "interface", BRIDGES)] = there
    rules = tuple(line for flag in settings for line in _lines(flag, settings[flag]))
    return Found(FIREWALLD, True, rules, needs, tuple(closed))


def _ufw(openings: Iterable[Opening]) -> Found:
    listing = _run("ufw", "show", "added")
    settings = {**_read_settings(UFW_DEFAULTS), **_read_settings(UFW_SETTINGS)}
    rules, needs = parse_ufw(listing), {}
    rules += [ACCEPT_ALL] if settings.get("default_input_policy") == "accept" else []
    closed: dict[str, None] = {}
    for opening in openings:
        rule = deciding(opening, rules)
        # It drops all packets of IPv6 then, and takes no rule for any.
        without = is_ipv6(opening.source) and settings.get("ipv6") != "yes"
        needs[f"ufw allow {ufw_rule(opening)} comment '{MARK}'"] = without or rule is not None
        closed.update({_NO_IPV6: None} if without else _name_denying(rule))
    return Found(UFW, settings.get("enabled") == "yes", tuple(listing.splitlines()[1:]), needs, tuple(closed))


def _read_settings(path: Path) -> dict[str, str]:
    """Return the settings of a file of ufw, as it reads them itself."""
    pairs = (line.strip().partition("=") for line in path.read_text().splitlines()) if path.is_file() else ()
    return {name.lower(): value.lower().strip("\"'") for name, _sign, value in pairs}


def _name_denying(rule: Rule | None, where: str = "") -> dict[str, None]:
    """Return a phrase about the rule that decides, if it denies."""
    if rule is None or rule.accepts:
        return {}
    return {f"your rule '{rule.text}'{where} closes it; ours comes after it, so remove or narrow yours": None}


def _read_zones(flag: str) -> dict[str, Zone]:
    program = f"firewall-cmd {flag}" if _runs_firewalld() else "firewall-offline-cmd"
    return parse_zones(_run(*program.split(), "--list-all-zones"))


def _lines(flag: str, zones: dict[str, Zone]) -> Iterator[str]:
    for name, zone in zones.items():
        yield from (_line(flag, name, "rich-rule", rule) for rule in zone.rich)
        yield from (_line(flag, name, "interface", interface) for interface in zone.interfaces)


def _line(flag: str, zone: str, kind: str, value: str) -> str:
    return f"firewall-cmd {flag}--zone={zone} --add-{kind}={shlex.quote(value)}"


def _arrives_on(opening: Opening) -> list[str]:
    """Return the interfaces that packets of an opening arrive on; none if that is not known."""
    if not opening.source:
        return external_interfaces()
    network = ip_network(opening.source)
    with contextlib.suppress(NetworkError):
        sender = str(network[min(1, network.num_addresses - 1)])
        return [route["dev"] for route in show("ip", "-j", "route", "get", sender) if "dev" in route]
    return []


def _runs_firewalld() -> bool:
    is_active = ["systemctl", "is-active", "--quiet", "firewalld.service"]
    return _has("firewall-cmd") and _has("systemctl") and subprocess.run(is_active, check=False).returncode == 0


def _has(program: str) -> bool:
    return shutil.which(program) is not None


def _run(*command: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS, env=environment)
    return done.stdout


def _undoing(words: list[str], running: bool) -> list[str]:
    if words[0] == UFW:
        return [UFW, "delete", *words[1:-2]]
    return [*(words[:-1] if running else ("firewall-offline-cmd", words[-2])), words[-1].replace("add", "remove", 1)]


def _list_rules(running: bool) -> set[str]:
    """Return all rules that there are now, as the lines that add them."""
    there: set[str] = set()
    if _has("firewall-cmd"):
        flags = ("", _PERMANENT) if running else (_PERMANENT,)
        there |= {line for flag in flags for line in _lines(flag, _read_zones(flag))}
    if _has(UFW):
        there |= {*_run("ufw", "show", "added").splitlines()}
    return there


def _change(lines: Collection[str], *, there: bool) -> None:
    """Add rules, or remove them, and raise :class:`ClusterError` with those that have not become so.

    firewall-cmd succeeds if one of several rules does, or if the zone of an interface is another one.
    """
    if not lines:
        return
    running = _runs_firewalld()
    _execute(shlex.split(line) if there else _undoing(shlex.split(line), running) for line in lines)
    listed = _list_rules(running)
    failed = [line for line in lines if (line in listed) != there]
    if failed:
        raise ClusterError(f"{'not added' if there else 'not removed, added by'}: {'; '.join(failed)}")


def _execute(commands: Iterable[list[str]]) -> None:
    """Run commands, those of firewalld that differ in nothing but the rule as one: each takes a third of a second."""

    def kind(words: list[str]) -> list[str]:
        return words if words[0] == UFW else [*words[:-1], words[-1].partition("=")[0]]

    for _kind, alike in itertools.groupby(sorted(commands, key=kind), kind):
        first, *others = alike
        _run(*first, *(words[-1] for words in others))


# ---- what is ours


@dataclasses.dataclass(frozen=True)
class Record:
    """The rules that were ``there`` before, by firewall, and ``ours``; those of ``ours`` that are ``tried``."""

    there: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    ours: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


_FORMAT = StateFormat("the openings", Record)


@contextlib.contextmanager
def _changing(store: Store, seconds: float = LOCK_SECONDS) -> Iterator[Record]:
    """Yield what is ours, and let nobody else change it. Raises :class:`ClusterError` if that is damaged."""
    with locked(store.root, seconds) as handle:
        if handle is None:
            raise LockTimeoutError(describe_held_lock(store.root, seconds))
        yield _load(store)


def _load(store: Store) -> Record:
    try:
        return _FORMAT.load(store.openings_file.read_bytes())
    except FileNotFoundError:
        return Record()
    except (OSError, ValueError) as error:
        marks = f"the comment {MARK} in ufw, the priority {PRIORITY} in firewalld"
        raise ClusterError(
            f"{store.openings_file} is damaged ({as_phrase(error)}): remove our rules ({marks}), and then this file"
        ) from None


def _save(store: Store, record: Record) -> None:
    write_atomically(store.openings_file, _FORMAT.dump(record))


def _remove(record: Record, lines: Iterable[str], *, check_mode: bool = False) -> list[Change]:
    """Remove those of our rules that are still there, as they were added, and return the changes.

    At runtime firewalld has what is permanent after a reload, too.
    """
    before = {line for listed in record.there.values() for line in listed}
    ours = dict.fromkeys(each for line in lines for each in (line, line.replace(_PERMANENT, "")))
    if not ours:
        return []
    there = _list_rules(_runs_firewalld())
    gone = [line for line in ours if line in there and line not in before]
    if not check_mode:
        _change(gone, there=False)
    return [Change(line, "present", None) for line in gone]


def open_firewalls(store: Store, found: Iterable[Found], *, check_mode: bool) -> list[Change]:
    """Add what firewalls lack, remove what is ours and not needed any more, and return the changes.

    The caller has begun a trial. Permanent rules of firewalld wait for its end.
    """
    by_name = {each.name: each for each in found}
    with _changing(store) as record:
        lacks = [line for each in by_name.values() for line in each.lacks]
        needs = {line for each in by_name.values() for line in each.needs}
        off = tuple(program for name, program in _PROGRAMS.items() if name not in by_name)
        kept = [line for line in record.ours if line in needs or line.startswith(off)]
        stale = [line for line in record.ours if line not in kept]
        changes = [*_remove(record, stale, check_mode=check_mode), *(Change(line, None, "present") for line in lacks)]
        if changes and not check_mode:
            there = {**{name: each.rules for name, each in by_name.items()}, **record.there}
            ours, tried = (tuple(dict.fromkeys([*lines, *lacks])) for lines in (kept, record.tried))
            _save(store, Record(there, ours, tried))
            _change([line for line in lacks if _PERMANENT not in line], there=True)
    return changes


@contextlib.contextmanager
def keep(store: Store) -> Iterator[None]:
    """Make the rules on trial permanent; they are on trial until the block, which confirms it, has not failed."""
    if not store.openings_file.exists():
        yield
        return
    with _changing(store) as record:
        _change([line for line in record.tried if _PERMANENT in line], there=True)
        yield
        _save(store, dataclasses.replace(record, tried=()))


def _is_over(store: Store, record: Record) -> bool:
    trial = FirewallState(store).trial
    return bool(record.tried) and (trial is None or trial.expired)


def withdraw(store: Store) -> list[Change]:
    """Remove the rules on trial if that is over, also by a reboot, and return the changes."""
    # Whoever opens or keeps them has the lock for longer than the units of timers may take.
    if not _is_over(store, _load(store)):
        return []
    with _changing(store, WITHDRAW_SECONDS) as record:
        if not _is_over(store, record):
            return []
        changes = _remove(record, record.tried)
        _save(store, Record(record.there, tuple(line for line in record.ours if line not in record.tried)))
    return changes


def close_firewalls(store: Store, *, check_mode: bool) -> list[Change]:
    """Remove what is ours from all firewalls, and the record of it; return the changes."""
    if not store.openings_file.exists():
        return []
    with _changing(store) as record:
        changes = _remove(record, record.ours, check_mode=check_mode)
        if not check_mode:
            store.openings_file.unlink()
    return changes

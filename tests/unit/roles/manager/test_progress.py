"""What is shown while a command runs, on a terminal and without one."""

from __future__ import annotations

import io

from rich.console import Console

from backendai_manager.user.progress import PULL, Progress


def shown(*, terminal: bool, verbose: bool = False, width: int = 80) -> str:
    """Return what the steps of a creation show on the console of errors."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=width, highlight=False)
    output = Console(file=io.StringIO())
    with Progress(console, output, verbose=verbose) as progress:
        progress.take({"event": "advice", "text": "2 × 1 = 2"})
        for host in ("agent1", "agent2"):
            progress.take({"event": "step", "task": PULL, "host": host, "state": "begun"})
        progress.take({"event": "step", "task": PULL, "host": "agent1", "state": "done"})
        progress.take({"event": "warning", "text": "bad \x1b[2J\npolicy"})
    return text.getvalue()


def test_without_a_terminal_only_sentences_are_shown() -> None:
    assert shown(terminal=False) == "2 × 1 = 2\nwarning: bad \\x1b[2J\nwarning: policy\n"


def test_a_terminal_shows_how_far_the_pulls_are() -> None:
    text = io.StringIO()
    progress = Progress(Console(file=text, force_terminal=True, width=80), Console(file=io.StringIO()), verbose=False)
    with progress:
        for host, state in (("agent1", "begun"), ("agent2", "begun"), ("agent1", "done")):
            progress.take({"event": "step", "task": PULL, "host": host, "state": state})
        assert progress.described == "Pull images: 1 of 2 agents, waiting for agent2 …"
        progress.take({"event": "step", "task": "Start the containers", "host": "", "state": "begun"})
        assert progress.described == "Start the containers …"


def test_a_narrow_terminal_is_no_problem_and_text_of_others_does_not_control_it() -> None:
    assert "\\x1b[2J" in shown(terminal=True, width=40)


def test_verbose_shows_each_step_on_each_host() -> None:
    lines = shown(terminal=False, verbose=True).splitlines()
    assert lines[1:4] == ["Pull images (agent1): begun", "Pull images (agent2): begun", "Pull images (agent1): done"]

"""Repetition of tests with ``--soak``: number of rounds, seed and progress.

A round depends only on the seed, the test's name and the round's number. So any of them can be repeated, and a
campaign that was stopped, or that failed, resumes at its last round.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from pathlib import Path


@dataclasses.dataclass
class Campaign:
    """All rounds of all tests; ``done`` is the number of rounds passed, by the name of the test."""

    seed: int
    rounds: int = 1
    path: Path | None = None
    done: dict[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def begin(cls, rounds: int, seed: int | None, path: Path) -> Campaign:
        """Begin a campaign, or resume the one saved in ``path``, unless another seed is requested.

        Without rounds, each test has one, and nothing is saved.
        """
        new = cls(random.randrange(1 << 32) if seed is None else seed)
        if not rounds:
            return new
        saved = json.loads(path.read_text()) if path.exists() else {}
        if saved and seed in (None, saved["seed"]):
            return cls(saved["seed"], rounds, path, saved["done"])
        return cls(new.seed, rounds, path)

    def rounds_of(self, test: str) -> Iterator[random.Random]:
        """Yield the random generator of each round still to run; a round has passed when the next one is requested."""
        for number in range(self.done.get(test, 0), self.rounds):
            print(f"\n{test}: round {number + 1} of {self.rounds}, --seed {self.seed}", flush=True)
            yield random.Random(f"{self.seed} {test} {number}")
            self._note(test, number + 1)

    def end(self) -> None:
        """Remove the saved progress once all rounds have passed."""
        if self.path and all(passed >= self.rounds for passed in self.done.values()):
            self.path.unlink(missing_ok=True)

    def _note(self, test: str, passed: int) -> None:
        self.done[test] = passed
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.path.with_suffix(".new")
            temporary.write_text(json.dumps({"seed": self.seed, "done": self.done}))
            temporary.replace(self.path)

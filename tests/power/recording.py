"""Record a run from below: every byte taken from the operating system, every draw of a mechanism, and what was paid when it happened."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import dpcore.mechanisms
from dpcore.ledger import Ledger, Operation

ENTROPY = "dpcore.mechanisms.sampling.entropy"
BOUNDING = "dpcore.tables.ingest.draws"
DECLARED = {
    BOUNDING: "which rows of a person are kept, before anything is counted",
    "dpcore.tables.ingest.fingerprint": "the steward's key, from which nothing is drawn",
    "uuid": "the run's name",
}
"""Who else may ask the operating system for randomness while a run is on, and what for."""

Kind = Any


def kinds() -> list[Kind]:
    """Every mechanism that dpcore.mechanisms offers."""
    offered = [getattr(dpcore.mechanisms, name) for name in dpcore.mechanisms.__all__]
    return [kind for kind in offered if isinstance(kind, type) and {"draw", "describe", "name"} <= set(dir(kind))]


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw: of what, for which paid operation, by which words, with what result."""

    values: Any
    operation: Operation | None
    words: tuple[bytes, ...]
    result: Any


@dataclass(frozen=True)
class Taken:
    """Bytes that somebody asked the operating system for."""

    caller: str
    operation: Operation | None
    content: bytes


@dataclass(eq=False)
class Recording:
    """What a run did, in order; a later one can be made to give the same answers, so that all that is public is equal."""

    draws: list[Draw] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    charged: list[Operation] = field(default_factory=list)

    @contextmanager
    def of_a_run(self, *, answers_of: "Recording | None" = None) -> Iterator[None]:
        """Record; give the answers of another recording in place of one's own, and keep the same rows of each person."""
        running: list[Operation] = []
        inside: list[Kind] = []
        answers = iter([] if answers_of is None else [draw.result for draw in answers_of.draws])
        bounding = iter([] if answers_of is None else [t.content for t in answers_of.taken if t.caller == BOUNDING])
        urandom, charge, commit = os.urandom, Ledger.charge, Ledger.commit

        def take(size: int) -> bytes:
            caller = sys._getframe(1).f_globals["__name__"]
            content = next(bounding, None) if caller == BOUNDING else None
            content = urandom(size) if content is None else content
            self.taken.append(Taken(caller, running[-1] if running else None, content))
            return content

        def recorded_charge(ledger: Ledger, *arguments: Any, **named: Any) -> Operation:
            running.append(charge(ledger, *arguments, **named))
            self.charged.append(running[-1])
            return running[-1]

        def recorded_commit(ledger: Ledger, operation: Operation, output: bytes) -> Operation:
            running.remove(operation)
            return commit(ledger, operation, output)

        def recorded(draw: Callable[..., Any]) -> Callable[..., Any]:
            def call(mechanism: Any, values: Any, **others: Any) -> Any:
                if inside:  # of a mechanism that draws by another one
                    return draw(mechanism, values, **others)
                before = len(self.taken)
                inside.append(mechanism)
                own = draw(mechanism, values, **others)
                inside.clear()
                words = tuple(taken.content for taken in self.taken[before:] if taken.caller == ENTROPY)
                result = next(answers, own)
                self.draws.append(Draw(np.copy(values), running[-1] if running else None, words, result))
                return result

            return call

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "urandom", take)
            patch.setattr(Ledger, "charge", recorded_charge)
            patch.setattr(Ledger, "commit", recorded_commit)
            for kind in kinds():
                patch.setattr(kind, "draw", recorded(kind.draw))
            yield


@contextmanager
def replayed(words: tuple[bytes, ...]) -> Iterator[list[bytes]]:
    """Let the operating system give these words again, in this order; yields those that are left."""
    left = list(words)

    def give(size: int) -> bytes:
        if not left or len(left[0]) != size:
            message = "another draw than the recorded one"
            raise LookupError(message)
        return left.pop(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", give)
        yield left

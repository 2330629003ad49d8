"""Record a run from below: every byte taken from the operating system, every draw of a mechanism, every table of counts, and what was paid and stored."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import pytest

from dpcore.curator.curator import Curator, Offer
from dpcore.curator.gate import Gatekeeper
from dpcore.ledger import Ledger, Operation
from dpcore.mechanisms import KINDS
from dpcore.mechanisms.sessions import Session
from dpcore.privacy.protection import Protection
from dpcore.tables.histogram import Histogram

ENTROPY = "dpcore.mechanisms.sampling.entropy"
DECLARED = {
    "dpcore.tables.ingest.draws": "which rows of a person are kept, before anything is counted",
    "dpcore.mechanisms.bounded_rows": "likewise, for one question",
    "dpcore.mechanisms.noisy_histogram": "likewise",
    "dpcore.tables.ingest.fingerprint": "the steward's key, from which nothing is drawn",
    "uuid": "the run's name",
}
"""Who else may ask the operating system for randomness while a run is on, and what for."""

MOST_CELLS = 200_000
"""A table of counts with at most so many cells is recorded as a whole, a larger one by its pairs of columns."""


@dataclass(frozen=True, eq=False)
class Draw:
    """A draw: by which mechanism, of what, for which paid operation, by which words, with what result.

    Attributes:
        threshold: What the values of a sparse vector are compared with, the same with its noise, and the scale of the noise of a comparison.
        whole: Whether it is a whole query, which draws by other mechanisms. Their draws come before it.
    """

    mechanism: Any
    values: Any
    operation: Operation | None
    words: tuple[bytes, ...]
    result: Any
    threshold: tuple[int, int, float] | None = None
    whole: bool = False


@dataclass(frozen=True)
class Taken:
    """Bytes that somebody asked the operating system for."""

    caller: str
    operation: Operation | None
    content: bytes


@dataclass(frozen=True, eq=False)
class Received:
    """Counts that were handed over to be measured, and the protection that they were bounded by."""

    protection: Protection
    counts: Sequence[Any]


@dataclass(eq=False)
class Recording:
    """What a run did, in order; a later one can be made to give the same answers, so that all that is public is equal."""

    draws: list[Draw] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    charged: list[Operation] = field(default_factory=list)
    committed: list[tuple[Operation, bytes]] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    offered: dict[str, Sequence[Offer]] = field(default_factory=dict)

    @contextmanager
    def of_a_run(self, *, answers_of: "Recording | None" = None) -> Iterator[None]:
        """Record; give the answers of another recording in place of one's own, and keep the same rows of each person."""
        self._running: list[Operation] = []
        self._results = iter([] if answers_of is None else [draw.result for draw in answers_of.draws if not draw.whole])
        self._thresholds: dict[int, tuple[Any, tuple[int, int, float], tuple[bytes, ...]]] = {}
        with pytest.MonkeyPatch.context() as patch:
            self._listen_to_the_ledger(patch)
            self._listen_to_entropy(patch, [] if answers_of is None else answers_of.taken)
            self._listen_to_mechanisms(patch)
            self._listen_to_the_curator(patch)
            yield

    @property
    def _operation(self) -> Operation | None:
        return self._running[-1] if self._running else None

    def _words_since(self, before: int) -> tuple[bytes, ...]:
        return tuple(taken.content for taken in self.taken[before:] if taken.caller == ENTROPY)

    def _listen_to_the_ledger(self, patch: pytest.MonkeyPatch) -> None:
        charge, commit = Ledger.charge, Ledger.commit

        def recorded_charge(ledger: Ledger, *arguments: Any, **named: Any) -> Operation:
            self._running.append(charge(ledger, *arguments, **named))
            self.charged.append(self._running[-1])
            return self._running[-1]

        def recorded_commit(ledger: Ledger, operation: Operation, output: bytes) -> Operation:
            self._running.remove(operation)
            self.committed.append((operation, output))
            return commit(ledger, operation, output)

        patch.setattr(Ledger, "charge", recorded_charge)
        patch.setattr(Ledger, "commit", recorded_commit)

    def _listen_to_entropy(self, patch: pytest.MonkeyPatch, given: Sequence[Taken]) -> None:
        again: dict[str, list[bytes]] = {}
        for taken in given:
            if taken.caller != ENTROPY:  # noise is drawn anew, and its results are replaced
                again.setdefault(taken.caller, []).append(taken.content)
        urandom = os.urandom

        def take(size: int) -> bytes:
            caller = _caller()
            if caller is None:
                return urandom(size)
            content = again[caller].pop(0) if again.get(caller) else b""
            # a table with more rows takes more words; those of the rows that both have are the same
            content = (content + urandom(size))[:size]
            self.taken.append(Taken(caller, self._operation, content))
            return content

        patch.setattr(os, "urandom", take)

    def _listen_to_mechanisms(self, patch: pytest.MonkeyPatch) -> None:
        for kind in KINDS:
            if hasattr(kind, "answer"):
                patch.setattr(kind, "answer", self._recorded_answer(kind.answer))
            elif hasattr(kind, "begin"):
                patch.setattr(kind, "begin", self._recorded_begin(kind.begin))
            else:
                patch.setattr(kind, "draw", self._recorded_draw(kind.draw))
        patch.setattr(Session, "_answers", self._recorded_comparisons(Session._answers))

    def _recorded_draw(self, draw: Callable[..., Any]) -> Callable[..., Any]:
        def call(mechanism: Any, values: Any) -> Any:
            before = len(self.taken)
            own = draw(mechanism, values)
            result = next(self._results, own)
            self.draws.append(Draw(mechanism, np.copy(values), self._operation, self._words_since(before), result))
            return result

        return call

    def _recorded_answer(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        def call(query: Any, exact: Any) -> Any:
            before = len(self.taken)
            result = answer(query, exact)
            words = self._words_since(before)
            self.draws.append(Draw(query, exact.for_noise(), self._operation, words, result, whole=True))
            return result

        return call

    def _recorded_begin(self, begin: Callable[..., Session]) -> Callable[..., Session]:
        def call(mechanism: Any, threshold: int) -> Session:
            before = len(self.taken)
            session = begin(mechanism, threshold)
            known = threshold, session._bar, session._query_scale
            self._thresholds[id(session)] = mechanism, known, self._words_since(before)
            return session

        return call

    def _recorded_comparisons(self, answers: Callable[..., list[bool]]) -> Callable[..., list[bool]]:
        def call(session: Session, values: list[int]) -> list[bool]:
            mechanism, threshold, words = self._thresholds[id(session)]
            self._thresholds[id(session)] = (
                mechanism,
                threshold,
                (),
            )  # the threshold's words belong to the first comparison
            before, own = len(self.taken), answers(session, values)
            result = next(self._results, own)
            session._positives_left += sum(own) - sum(result)
            words += self._words_since(before)
            self.draws.append(Draw(mechanism, np.array(values), self._operation, words, result, threshold=threshold))
            return result

        return call

    def _listen_to_the_curator(self, patch: pytest.MonkeyPatch) -> None:
        receive, open_keeper = Curator.receive, Gatekeeper.__init__

        def recorded_receive(curator: Curator, histogram: Histogram, **named: Any) -> None:
            self.received.append(Received(histogram.protection, _counts_of(histogram)))
            receive(curator, histogram, **named)

        def recorded_keeper(keeper: Gatekeeper, *, histogram: Histogram, **named: Any) -> None:
            self.received.append(Received(histogram.protection, _counts_of(histogram)))
            open_keeper(keeper, histogram=histogram, **named)

        def recorded_offers(select: Callable[..., Any]) -> Callable[..., Any]:
            def call(curator: Curator, step: str, expected: Callable[[], Sequence[Offer]], **named: Any) -> Any:
                def offers() -> Sequence[Offer]:
                    offered = self.offered[f"{curator._run_id} {step}"] = expected()
                    return offered

                return select(curator, step, offers, **named)

            return call

        patch.setattr(Curator, "receive", recorded_receive)
        patch.setattr(Gatekeeper, "__init__", recorded_keeper)
        for select in ("select_marginal", "select_cell"):
            patch.setattr(Curator, select, recorded_offers(getattr(Curator, select)))

    def of_operations(self) -> Mapping[str, list[Draw]]:
        """Return the draws of each operation, by its run, step and attempt."""
        found: dict[str, list[Draw]] = {}
        for draw in self.draws:
            if draw.operation is not None:
                found.setdefault(name_of(draw.operation), []).append(draw)
        return found


def name_of(operation: Operation) -> str:
    """Return the name of an operation, which no other has."""
    return f"{operation.run} {operation.step} {operation.attempt}"


def _caller() -> str | None:
    """Return the module that asks for bytes: the one that uses entropy for itself, or entropy; None if it is no part of the product."""
    frame, names = sys._getframe(2), []
    while frame is not None and len(names) < 3:
        names.append(frame.f_globals["__name__"])
        frame = frame.f_back  # type: ignore[assignment]
    if names[0] == ENTROPY:
        return names[1] if names[1] in DECLARED else ENTROPY
    user = names[1] if names[0] == "uuid" else names[0]
    return names[0] if user.startswith("dpcore.") else None


def _counts_of(histogram: Histogram) -> list[Any]:
    axes = range(len(histogram._shape))
    if prod(histogram._shape) <= MOST_CELLS:
        return [histogram.marginal(tuple(axes)).copy()]
    return [histogram.marginal(pair).copy() for pair in combinations(axes, 2)]


@contextmanager
def replayed(words: Sequence[bytes]) -> Iterator[list[bytes]]:
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

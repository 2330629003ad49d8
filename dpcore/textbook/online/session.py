"""Answer adaptive counting queries: from a public model while it is accurate, and by a paid count where it is not.

The transcript in the ledger is the state. It holds the noisy total, and for each hard round the gate, with every query that it answered, and
the count. A session that was killed rebuilds its model and its answers from it. Queries that a lost gate has answered are not in it: they
are answered again, by a new gate.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from dpcore.curator.gate import CountQuery, Gate, Gatekeeper
from dpcore.errors import BudgetRefused, LedgerDamaged, UsageError
from dpcore.ledger import Ledger, Operation
from dpcore.marginals.measurements import Measurement
from dpcore.models import Model
from dpcore.textbook.online.bounds import Bounds, Terms, bounds_for
from dpcore.textbook.online.weights import PublicWeights, expected_rows, weights_for

TOTAL = "total"
_EVERYTHING = CountQuery((), np.array(True))  # noqa: FBT003  the only cell of a marginal without columns


@dataclass(frozen=True)
class OnlineAnswer:
    """An answer to a counting query.

    Attributes:
        rows: The number of rows.
        within: All answers of a session are within so many rows of the truth, together with probability 1 - beta.
        hard: Whether the count was measured and paid for. An easy answer comes from the model.
    """

    rows: int
    within: int
    hard: bool


@dataclass(frozen=True)
class _Opened:
    """A gate that was charged for and is not committed yet, with what it has answered."""

    operation: Operation
    gate: Gate
    easy: dict[str, int]


class OnlineSession:
    """Private multiplicative weights with the sparse vector technique, for one run of the ledger.

    All public choices are functions of the transcript. `bounds` describes the theorem that the answers follow.
    """

    def __init__(  # noqa: PLR0913  the universe, the promise, the run, and the form of the model
        self,
        shape: tuple[int, ...],
        *,
        terms: Terms,
        ledger: Ledger,
        run_id: str,
        gatekeeper: Gatekeeper,
        begin_weights: Callable[[tuple[int, ...]], PublicWeights] = weights_for,
    ) -> None:
        """Begin a session, or continue it from its transcript. The first time, the number of rows is measured and paid for.

        Args:
            shape: The number of cells of every column of the universe.
            terms: What the session promises, and what it may spend.
            ledger: Holds the transcript.
            run_id: The session's run.
            gatekeeper: Compares and measures.
            begin_weights: Makes the uniform model, dense or factored; by default the one that suits the universe's size.

        Raises:
            UsageError: If the measured table has too few rows for the theorem. The message says what to change.
        """
        self._shape = shape
        self._terms = terms
        self._gatekeeper = gatekeeper
        self._failed = False
        self._lock = threading.Lock()
        self._opened: _Opened | None = None
        self._answers: dict[str, OnlineAnswer] = {}
        self._unmeasured: tuple[CountQuery, int] | None = None
        self._gates = self._hard = 0
        stored = {operation.step: operation.output or b"" for operation in ledger.transcript(run_id)}
        total = (
            Measurement.from_bytes(stored[TOTAL], step=TOTAL)
            if TOTAL in stored
            else gatekeeper.measure(TOTAL, _EVERYTHING, terms.total_noise)
        )
        self.bounds: Bounds = bounds_for(terms, rows=max(1, int(total.values[0])))
        self._weights = begin_weights(shape)
        self._weights.model.rescale(float(self.bounds.rows))
        self._replay(stored)

    @property
    def hard_rounds(self) -> int:
        """How many queries were hard so far: each was measured, paid for, and learned."""
        return self._hard

    @property
    def queries(self) -> int:
        """How many different queries were answered so far."""
        return len(self._answers) + (len(self._opened.easy) if self._opened else 0)

    @property
    def model(self) -> Model:
        """The public model, from which easy queries are answered."""
        return self._weights.model

    def ask(self, query: CountQuery) -> OnlineAnswer:
        """Answer a query. A repeated query gets its first answer, for nothing.

        Raises:
            UsageError: If all queries of the session are used up, or the query cannot be learned. Nothing is spent.
            RunHeld: If another worker has taken over the session.
        """
        if not isinstance(query, CountQuery) or not query.fits(self._shape):
            raise UsageError(
                "a query must be a CountQuery with columns and cells of this universe; make it with count_query"
            )
        with self._lock:
            if repeated := self._answered(query.key):
                return repeated
            self._weights.check(query)
            self._require_open()
            with self._fails_for_good():
                return self._compared(query)

    def suspend(self) -> None:
        """Store the open gate's answers, so that a resumed session repeats them. Its noise is given up: the next gate is paid for again."""
        with self._lock, self._fails_for_good():
            if self._opened and self._opened.easy and not self._failed:
                self._close(hard=None, expected=0)
            self._failed = True

    def _compared(self, query: CountQuery) -> OnlineAnswer:
        """Answer a new query: from the model if it is accurate enough, else by a count."""
        key = query.key
        self._finish_measuring()
        if key in self._answers:  # it closed the last gate, and the session was interrupted before it was measured
            return self._answers[key]
        expected = expected_rows(self._weights, query)
        if self._hard >= self.bounds.hard_rounds:
            return self._remember(key, max(0, expected), hard=False)
        opened = self._open()
        if not opened.gate.compare(query, expected=expected):
            opened.easy[key] = max(0, expected)
            return self._easy(opened.easy[key])
        self._close(hard=query, expected=expected)
        self._finish_measuring()
        return self._answers[key]

    def _require_open(self) -> None:
        """Raise if no more queries can be answered, before anything is drawn."""
        if self._failed:
            raise UsageError("the session was interrupted; open it again to resume it from its transcript")
        if self.queries >= self._terms.queries:
            raise UsageError(
                f"the session has answered its {self._terms.queries:,} queries; open another one, with more of them"
            )
        self._gatekeeper.confirm()

    @contextmanager
    def _fails_for_good(self) -> Iterator[None]:
        """End this object if anything goes wrong inside: a gate may be lost, and each opening of a session may lose only one."""
        try:
            yield
        except BaseException:
            self._failed = True
            raise

    def _answered(self, key: str) -> OnlineAnswer | None:
        if self._opened and key in self._opened.easy:
            return self._easy(self._opened.easy[key])
        return self._answers.get(key)

    def _easy(self, rows: int) -> OnlineAnswer:
        return OnlineAnswer(rows, self.bounds.within, hard=False)

    def _remember(self, key: str, rows: int, *, hard: bool) -> OnlineAnswer:
        self._answers[key] = OnlineAnswer(rows, self.bounds.count_error if hard else self.bounds.within, hard=hard)
        return self._answers[key]

    def _open(self) -> _Opened:
        """Return the open gate. Charge for a new one if there is none."""
        if self._opened is None:
            try:
                operation, gate = self._gatekeeper.open_gate(
                    _step(self._gates, "gate"), self.bounds.gate, threshold=self.bounds.threshold
                )
            except BudgetRefused as refused:
                raise self._exhausted(refused) from None
            self._opened = _Opened(operation, gate, {})
        return self._opened

    def _exhausted(self, refused: BudgetRefused) -> BudgetRefused:
        return BudgetRefused(
            f"the session was interrupted more often than the {self._terms.restarts} times that its budget allows for; end it, and open "
            "another one with more `restarts`",
            requested=refused.requested,
            remaining=refused.remaining,
        )

    def _close(self, *, hard: CountQuery | None, expected: int) -> None:
        """Commit the open gate with its answers, and with the query that closed it."""
        if self._opened is None:
            raise AssertionError("only an open gate can be closed")
        opened, self._opened = self._opened, None  # whatever happens now, its noise is not used again
        record = {"easy": opened.easy, "hard": None if hard is None else _written(hard), "expected": expected}
        self._gatekeeper.close_gate(opened.operation, json.dumps(record).encode())
        self._take(opened.easy, hard, expected)

    def _take(self, easy: dict[str, int], hard: CountQuery | None, expected: int) -> None:
        """Take over the record of a gate."""
        for key, rows in easy.items():
            self._remember(key, rows, hard=False)
        self._gates += 1
        self._unmeasured = None if hard is None else (hard, expected)

    def _finish_measuring(self) -> None:
        """Measure the query that closed the last gate, unless that was done."""
        if self._unmeasured is not None:
            query, _ = self._unmeasured
            try:
                measured = self._gatekeeper.measure(_step(self._gates - 1, "count"), query, self.bounds.noise)
            except BudgetRefused as refused:
                raise self._exhausted(refused) from None
            self._learn(measured)

    def _learn(self, measured: Measurement) -> None:
        if self._unmeasured is None:
            raise AssertionError("a count is learned for the query that closed a gate")
        (query, expected), self._unmeasured = self._unmeasured, None
        rows = int(measured.values[0])
        self._weights.learn(query, self.bounds.step(expected=expected, measured=rows))
        self._hard += 1
        self._remember(query.key, max(0, rows), hard=True)

    def _replay(self, stored: dict[str, bytes]) -> None:
        """Repeat all that the transcript holds: nothing is drawn or paid for."""
        while (step := _step(self._gates, "gate")) in stored:
            try:
                record = json.loads(stored[step])
                hard = None if record["hard"] is None else _read(record["hard"])
                self._take(record["easy"], hard, int(record["expected"]))
            except (ValueError, KeyError, TypeError):
                raise LedgerDamaged(
                    f"the stored output of step {step} is not a valid gate; restore the ledger from a backup"
                ) from None
            counted = _step(self._gates - 1, "count")
            if self._unmeasured is not None and counted in stored:
                self._learn(Measurement.from_bytes(stored[counted], step=counted))


def _step(number: int, action: str) -> str:
    """Return the name of a step in the ledger.

    >>> _step(6, "gate")
    'hard-00007/gate'
    """
    return f"hard-{number + 1:05}/{action}"


def _written(query: CountQuery) -> dict[str, object]:
    return {"axes": query.axes, "shape": query.cells.shape, "cells": np.packbits(query.cells).tobytes().hex()}


def _read(written: dict[str, list[int]]) -> CountQuery:
    shape = tuple(written["shape"])
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(str(written["cells"])), dtype=np.uint8))
    return CountQuery(tuple(written["axes"]), bits[: int(np.prod(shape))].astype(np.bool_).reshape(shape))

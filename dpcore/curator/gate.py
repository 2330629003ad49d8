"""Counting queries under the sparse vector technique: which of them a public model gets wrong, and the noisy counts of those.

Like the rest of the curator, everything here charges first, then draws, then stores the result with its charge.
"""

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from dpcore.curator.charges import Statistic, charge, charge_draw_commit
from dpcore.errors import StepFailed
from dpcore.ledger import Lease, Ledger, Operation
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes
from dpcore.mechanisms.noise import Noise
from dpcore.mechanisms.sessions import Session
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Sensitivity
from dpcore.private import Private
from dpcore.tables.histogram import Histogram

Cells = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CountQuery:
    """The number of rows in some cells of a marginal. It is public.

    Attributes:
        axes: The columns, in ascending order; () for the number of all rows.
        cells: Which cells of their marginal count.
    """

    axes: Axes
    cells: Cells

    @property
    def key(self) -> str:
        """A hash that is the same for the same columns and cells, and only for those.

        >>> CountQuery((0,), np.array([True, False])).key == CountQuery((0,), np.array([True, True])).key
        False
        """
        head = repr((self.axes, self.cells.shape)).encode()
        return sha256(head + np.packbits(self.cells).tobytes()).hexdigest()[:32]

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether it is a query about a universe of this shape."""
        whole = isinstance(self.axes, tuple) and all(type(axis) is int and 0 <= axis < len(shape) for axis in self.axes)
        if not whole or list(self.axes) != sorted(set(self.axes)) or not isinstance(self.cells, np.ndarray):
            return False
        return self.cells.dtype == np.bool_ and self.cells.shape == tuple(shape[axis] for axis in self.axes)

    def on(self, marginal: npt.NDArray[np.generic]) -> np.generic:
        """Return the sum of a marginal over the cells that count."""
        total: np.generic = marginal[self.cells].sum()
        return total


class Gate(Private):
    """Compares the errors of a public model with one noisy threshold. It is closed by its first positive answer.

    Sensitivity: the error of a count is |true - expected|, where the expected count is public and whole. By the triangle inequality it
    moves by no more than the count itself.
    """

    __slots__ = ("_histogram", "_session")

    def __init__(self, histogram: Histogram, session: Session) -> None:
        self._histogram = histogram
        self._session = session

    @property
    def is_open(self) -> bool:
        """Whether it has given no positive answer yet."""
        return self._session.positives_left > 0

    def compare(self, query: CountQuery, *, expected: int) -> bool:
        """Return whether the noisy error of an expected count reaches the noisy threshold."""
        return self._session.ask(abs(int(query.on(self._histogram.marginal(query.axes))) - expected))


class Gatekeeper:
    """Opens gates and measures counts for one run. Every gate and every count is charged before the data is used.

    A gate is one operation: it is charged when it is opened, and committed when it is closed, with a public record of its answers.
    """

    def __init__(self, *, ledger: Ledger, currency: Currency, histogram: Histogram, lease: Lease) -> None:
        self._ledger = ledger
        self._currency = currency
        self._histogram = histogram
        self._lease = lease

    def confirm(self) -> None:
        """Raise if the run was ended, or taken over by another worker."""
        self._ledger.leased(self._lease)

    def open_gate(self, step: str, mechanism: SparseVector, *, threshold: int) -> tuple[Operation, Gate]:
        """Charge for a gate and draw the noise of its threshold."""
        operation = self._charge(step, Statistic.GATE, mechanism)
        return operation, Gate(self._histogram, mechanism.begin(threshold))

    def close_gate(self, operation: Operation, record: bytes) -> None:
        """Store the public record of a gate. Its noise must not be used any more."""
        self._ledger.commit(operation, record)

    def measure(self, step: str, query: CountQuery, mechanism: Noise) -> Measurement:
        """Charge for a count, draw it, and store it."""
        _require_same(mechanism.sensitivity, self._histogram.protection.count_sensitivity)

        def draw() -> Measurement:
            true = np.array([int(query.on(self._histogram.marginal(query.axes)))], dtype=np.int64)
            noisy, noise = mechanism.draw(true), mechanism.standard_deviation
            return Measurement(step=step, axes=query.axes, cell=None, values=noisy, noise=noise)

        measurement, _ = charge_draw_commit(
            self._ledger,
            self._lease,
            step=step,
            statistic=Statistic.COUNT,
            mechanism=mechanism,
            currency=self._currency,
            draw=draw,
            keep=Measurement.to_bytes,
        )
        return measurement

    def _charge(self, step: str, statistic: Statistic, mechanism: SparseVector) -> Operation:
        _require_same(mechanism.sensitivity, self._histogram.protection.count_sensitivity.linf)
        return charge(
            self._ledger, self._lease, step=step, statistic=statistic, mechanism=mechanism, currency=self._currency
        )


def _require_same(priced: Sensitivity | int, moved: Sensitivity | int) -> None:
    """Raise unless noise is priced for how far a count of these rows moves."""
    if priced != moved:
        raise StepFailed("the noise is not for a count of these rows; report this")

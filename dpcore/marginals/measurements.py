"""The transcript: public noisy values, in the order of their charges.

Everything that is released is a function of the transcript. The ledger stores its entries as bytes, with their charges.
"""

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpcore.errors import LedgerDamaged
from dpcore.marginals.workload import Axes

Counts = npt.NDArray[np.int64]

LEAST_NOISE = 0.25
"""The least standard deviation that noise counts with: counts are whole, so nothing need be fitted more closely than this."""

EXPECTED_TOTAL = "expected-total"
"""The step that only checks the number of rows. No strategy learns from it."""

BOUGHT = "ask/"
"""How the steps begin that a session has bought. Their axes stand for classes of cells, and no strategy learns from them."""

ONE_WAY = "one-way/"
"""How the steps begin by which a strategy measures single columns."""


@dataclass(frozen=True, eq=False)
class Measurement:
    """A noisy marginal, or one noisy cell of a marginal, with the noise's standard deviation per value.

    For a whole marginal, `cell` is None and `values` has the marginal's shape. For a single cell, `cell` is its flat index and
    `values` has one element. If values have noise of different widths, `each` has their standard deviations, and `noise` is a typical one.
    """

    step: str
    axes: Axes
    cell: int | None
    values: Counts
    noise: float
    each: npt.NDArray[np.float64] | None = None

    @property
    def of_column(self) -> bool:
        """Whether a strategy has measured a single column by this, and not a tree or a round."""
        return self.step.startswith(ONE_WAY)

    @property
    def variance(self) -> float:
        """The variance that typical noise of it counts with."""
        return max(self.noise, LEAST_NOISE) ** 2

    @property
    def deviations(self) -> npt.NDArray[np.float64]:
        """The standard deviation of the noise in each value."""
        return np.full(self.values.shape, self.noise) if self.each is None else self.each

    @property
    def variances(self) -> npt.NDArray[np.float64]:
        """The variance that its noise counts with in each value."""
        return np.asarray(np.maximum(self.deviations, LEAST_NOISE) ** 2)

    def to_bytes(self) -> bytes:
        """Serialise the measurement for the ledger: a line of JSON, then little-endian 64-bit integers."""
        head = {"axes": self.axes, "cell": self.cell, "shape": self.values.shape, "noise": self.noise.hex()}
        return json.dumps(head, sort_keys=True).encode() + b"\n" + self.values.astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, stored: bytes, *, step: str) -> "Measurement":
        """Read a measurement back exactly."""
        try:
            head, body = stored.split(b"\n", 1)
            public = json.loads(head)
            values = np.frombuffer(body, dtype="<i8").astype(np.int64).reshape(public["shape"])
            return cls(
                step=step,
                axes=tuple(public["axes"]),
                cell=public["cell"],
                values=values,
                noise=float.fromhex(public["noise"]),
            )
        except (ValueError, KeyError, TypeError):
            raise LedgerDamaged(
                f"the stored output of step {step} is not a valid measurement; restore the ledger from a backup"
            ) from None


@dataclass(frozen=True)
class Selection:
    """The marginal, or the cell of a marginal, that the exponential mechanism selected, and the number of candidates."""

    axes: Axes
    cell: int | None = None
    candidates: int = 1

    def to_bytes(self) -> bytes:
        """Serialise the selection for the ledger."""
        public = {"axes": self.axes, "cell": self.cell, "candidates": self.candidates}
        return json.dumps(public, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, stored: bytes, *, step: str) -> "Selection":
        """Read a selection back."""
        try:
            public = json.loads(stored)
            return cls(axes=tuple(public["axes"]), cell=public["cell"], candidates=int(public["candidates"]))
        except (ValueError, KeyError, TypeError):
            raise LedgerDamaged(
                f"the stored output of step {step} is not a valid selection; restore the ledger from a backup"
            ) from None

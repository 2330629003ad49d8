"""The transcript: public noisy values, in the order in which they were bought.

Everything that leaves is a function of these. They are kept in the ledger as bytes, beside the charges that paid for them.
"""

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpcore.errors import LedgerDamaged
from dpcore.workload import Axes

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Measurement:
    """One noisy marginal, or one noisy cell of it: what was asked, the answer, and the noise's standard deviation per value.

    A whole marginal has `cell` None and values shaped like the marginal; a single cell has its flat index and one value.
    """

    step: str
    axes: Axes
    cell: int | None
    values: Counts
    noise: float

    def to_bytes(self) -> bytes:
        """Write the measurement in the ledger's form: a line of JSON, then little-endian 64-bit integers."""
        head = {"axes": self.axes, "cell": self.cell, "shape": self.values.shape, "noise": self.noise.hex()}
        return json.dumps(head, sort_keys=True).encode() + b"\n" + self.values.astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, stored: bytes, *, step: str) -> "Measurement":
        """Read the measurement back, bit for bit."""
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
                f"the stored output of step {step} does not read as a measurement; restore the ledger"
            ) from None


@dataclass(frozen=True)
class Selection:
    """What the exponential mechanism chose, a marginal or one cell of one, and among how many candidates."""

    axes: Axes
    cell: int | None = None
    candidates: int = 1

    def to_bytes(self) -> bytes:
        """Write the selection in the ledger's form."""
        public = {"axes": self.axes, "cell": self.cell, "candidates": self.candidates}
        return json.dumps(public, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, stored: bytes, *, step: str) -> "Selection":
        """Read the selection back."""
        try:
            public = json.loads(stored)
            return cls(axes=tuple(public["axes"]), cell=public["cell"], candidates=int(public["candidates"]))
        except (ValueError, KeyError, TypeError):
            raise LedgerDamaged(
                f"the stored output of step {step} does not read as a selection; restore the ledger"
            ) from None

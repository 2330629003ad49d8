"""What a session has bought: noisy counts over the grid of a question, and the answer that was given. The ledger stores both as one output."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from dpcore.answers.intervals import Basis, Interval, worst_of
from dpcore.answers.query import Number, Query
from dpcore.errors import LedgerDamaged
from dpcore.ledger import Operation
from dpcore.marginals.measurements import BOUGHT, Counts, Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.models.lifted import Grid
from dpcore.session.questions import Within


def digest_of(query: Query) -> str:
    """Return a name for what a query asks: its numbers, conditions and groups. Names, order and limits of the output do not matter.

    >>> from dpcore.answers.query import Count, Output
    >>> digest_of(Query((Output("a", Count()),))) == digest_of(Query((Output("b", Count()),), limit=1))
    True
    """
    asked = (query.numbers(), query.where, tuple(key.term for key in query.keys))
    return sha256(repr(asked).encode()).hexdigest()[:32]


def step_of(digest: str, purchase: int) -> str:
    """Return the name of the step that buys an answer. `purchase` counts the purchases of the same question, from 1.

    >>> step_of("9f86", 1)
    'ask/9f86/1'
    """
    return f"{BOUGHT}{digest}/{purchase}"


@dataclass(frozen=True, eq=False)
class Bought:
    """A bought measurement, with the question that it was bought for and its answer.

    Attributes:
        step: The step under which it was charged.
        question: The question's text, as it was asked.
        digest: What it asks, see `digest_of`.
        within: The accuracy that it was bought for. A share is of each number as it was expected before.
        grid: The classes of cells that were counted.
        counts: The noisy count of each class.
        noise: The standard deviation of the noise, per count.
        numbers: The answer: an interval for each number of the query, in its order.
        drawn: The noisy sums and rows as they were drawn, if sums were bought; `counts` follow from them.
    """

    step: str
    question: str
    digest: str
    within: Within
    grid: Grid
    counts: Counts
    noise: float
    numbers: tuple[Interval, ...]
    drawn: Counts | None = None

    def answer(self, query: Query) -> dict[Number, Interval]:
        """Return the intervals by the numbers of a query that asks the same."""
        return dict(zip(query.numbers(), self.numbers, strict=True))

    def measurement(self, axes: Sequence[int]) -> Measurement:
        """Return the noisy counts as a measurement over axes that stand for the classes, or under the key of their grid."""
        return Measurement(self.step, tuple(axes), None, self.counts, self.noise)

    def to_bytes(self) -> bytes:
        """Serialise for the ledger: a line of JSON, then little-endian 64-bit integers."""
        head = {
            "question": self.question,
            "digest": self.digest,
            "level": self.within.level.hex(),
            "share" if self.within.relative else "wanted": self.within.size.hex(),
            "columns": self.grid.columns,
            "groups": [classes.tolist() for classes in self.grid.groups],
            "noise": self.noise.hex(),
            "numbers": [_as_json(interval) for interval in self.numbers],
        }
        arrays = [self.counts] if self.drawn is None else [self.counts, self.drawn]
        body = b"".join(array.astype("<i8").tobytes() for array in arrays)
        return json.dumps(head, sort_keys=True).encode() + b"\n" + body

    @classmethod
    def of(cls, operation: Operation) -> "Bought":
        """Restore what an operation of the ledger has bought."""
        return cls.from_bytes(operation.output or b"", step=operation.step)

    @classmethod
    def from_bytes(cls, stored: bytes, *, step: str) -> "Bought":
        """Restore what `to_bytes` has written, bit for bit. Raise LedgerDamaged if the bytes have another form."""
        try:
            head, body = stored.split(b"\n", 1)
            public = json.loads(head)
            groups = tuple(np.array(classes, dtype=np.intp) for classes in public["groups"])
            grid, relative = Grid(tuple(public["columns"]), groups), "share" in public
            size = float.fromhex(public["share" if relative else "wanted"])
            numbers = np.frombuffer(body, dtype="<i8").astype(np.int64)
            cells = int(np.prod(grid.shape, dtype=np.int64))
            counts, drawn = numbers[:cells].reshape(grid.shape), numbers[cells:]
            return cls(
                step=step,
                question=public["question"],
                digest=public["digest"],
                within=Within(size, relative, float.fromhex(public["level"])),
                grid=grid,
                counts=counts,
                noise=float.fromhex(public["noise"]),
                numbers=tuple(map(_restored, public["numbers"])),
                drawn=drawn if drawn.size else None,
            )
        except (ValueError, KeyError, TypeError):
            raise LedgerDamaged(
                f"the stored output of step {step} is not a bought answer; restore the ledger from a backup"
            ) from None


def _as_json(interval: Interval) -> dict[str, Any]:
    ends = {"value": interval.value, "low": interval.low, "high": interval.high}
    numbers = {name: [float(number).hex() for number in numbers] for name, numbers in ends.items()}
    return numbers | {"basis": worst_of(interval.bases).value}


def _restored(stored: Mapping[str, Any]) -> Interval:
    value, low, high = (
        np.array([float.fromhex(number) for number in stored[name]]) for name in ("value", "low", "high")
    )
    return Interval(value, low, high, Basis(stored["basis"]))


def with_axes(resolutions: Resolutions, bought: Sequence[Bought]) -> tuple[Resolutions, tuple[Measurement, ...]]:
    """Return resolutions with an axis for the classes of each column of each purchase, and the purchases as measurements over them."""
    axis_of: dict[tuple[int, bytes], int] = {}
    measured = []
    for purchase in bought:
        axes = []
        for column, groups in zip(purchase.grid.columns, purchase.grid.groups, strict=True):
            name = (column, groups.tobytes())
            if name not in axis_of:
                if np.array_equal(groups, np.arange(resolutions.shape[column])):
                    axis_of[name] = column
                else:
                    resolutions, axis_of[name] = resolutions.with_grouping(column, groups)
            axes.append(axis_of[name])
        measured.append(purchase.measurement(axes))
    return resolutions, tuple(measured)

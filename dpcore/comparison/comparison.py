"""What a comparison holds: a release beside the true table. All of it is private."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from dpcore.comparison.dependence import Dependence
from dpcore.comparison.errors import Steps, WorkloadErrors
from dpcore.comparison.learning import Prediction, Recognition
from dpcore.universe import Attribute
from dpcore.universe.leaves import Fine
from dpcore.universe.temporal import CalendarColumn


class Cells(StrEnum):
    """Where the cells of a column with an order come from: a tree, the calendar, single values, or the key of the spec that declares bins."""

    TREE = "tree"
    CALENDAR = "calendar"
    VALUES = "values"
    DISCOVER = "discover"
    WIDTH = "width"
    EDGES = "edges"
    BINS = "bins"

    @classmethod
    def of(cls, attribute: Attribute, declared: Any) -> "Cells | None":
        """Return where the cells of a column, declared by a part of a spec, come from; None if they have no order."""
        if not attribute.ordered:
            return None
        if isinstance(attribute, Fine):
            return cls.TREE
        if isinstance(attribute, CalendarColumn):
            return cls.CALENDAR
        keys = (cls.DISCOVER, cls.WIDTH, cls.EDGES, cls.BINS)
        return next((key for key in keys if getattr(declared, key, None) is not None), cls.VALUES)


@dataclass(frozen=True)
class ColumnComparison:
    """One column in the true table and in the release.

    Attributes:
        name: The column.
        labels: The text of each cell.
        true: The true share of rows in each cell.
        released: The released share.
        ordered: How many cells, from the first one, have an order; 0 if none.
        cells: Where its cells come from, if they have an order: one of `Cells`.
        outside: The share of true values that lie in no declared cell, or cannot be read.
        dropped: The share of true values that drop their row.
        binning: The Kolmogorov-Smirnov distance that the cells alone cause; None if the column has no order.
        gap: The Kolmogorov-Smirnov distance between released and true values; None likewise.
    """

    name: str
    labels: Sequence[str]
    true: Sequence[float]
    released: Sequence[float]
    ordered: int
    cells: str | None
    outside: float
    dropped: float
    binning: float | None
    gap: float | None

    @property
    def distance(self) -> float:
        """The L1 distance between both, from 0 to 2."""
        return float(np.abs(np.array(self.true) - np.array(self.released)).sum())


@dataclass(frozen=True, repr=False)
class Comparison:
    """A release beside the true table. All of it is private.

    Attributes:
        dataset: The dataset.
        release: The name of the release.
        created: When the comparison was made.
        spec: The spec's path.
        epsilon: The epsilon of the release.
        delta: Its delta.
        unit: The protected unit.
        rows_per_unit: How many rows of a unit count.
        true_rows: The true number of rows in the universe and the blocks of the release, each as often as it counts.
        kept_rows: How many of them count under the limit on rows per unit.
        released_rows: The number of released rows.
        changed: Whether the table has changed since the release was made.
        errors: The error of the workload.
        steps: What each step of the run adds to it.
        columns: The columns, one by one.
        dependence: The dependence of every pair of columns.
        target: The column that the workload names as its target; None if it names none.
        predictions: Learning on the release and testing on the true table.
        recognition: How well released rows are told from true ones.
    """

    dataset: str
    release: str
    created: str
    spec: str
    epsilon: float
    delta: float
    unit: str
    rows_per_unit: int
    true_rows: float
    kept_rows: float
    released_rows: int
    changed: bool
    errors: WorkloadErrors
    steps: Steps
    columns: Sequence[ColumnComparison]
    dependence: Dependence
    target: str | None
    predictions: Sequence[Prediction]
    recognition: Recognition
    private: str = field(default="PRIVATE: computed from the true table without noise; do not publish", init=False)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain JSON values, marked as private before anything else."""
        plain = asdict(self)
        return {"private": plain.pop("private"), **plain}

"""What a release knows about its own errors: its model, a pilot, and replicates of the model, as a compact file.

A replicate is the model that the run would have fitted if the noise had been different. `replicates` makes them. Here they are stored: each
as the functions whose exponential it is, rounded to steps so small that no count moves by more than a part of its noise. A function of a
cell with many rows needs smaller steps than that of a nearly empty one. The noisy counts are public, so they tell the reader the steps.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import UsageError
from dpcore.marginals.measurements import LEAST_NOISE, Measurement
from dpcore.marginals.workload import Axes
from dpcore.models import Functions
from dpcore.models.model import Weights
from dpcore.object_store import AnyPath
from dpcore.release.integrity import open_regular, refuse_store_error
from dpcore.release.measured import writing_options
from dpcore.release.publishing import UNCERTAINTY

STEPS, FINE_STEP = (0.05, 0.1), 0.005  # of the noise: how far rounding a function may move the count of its cell
FEWEST = 4  # replicates
FINE = ("model", "pilot")  # each of their errors would be an error of all intervals
_METADATA = b"dpflow-uncertainty"


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model: its number of rows, and its functions."""

    total: float
    functions: Functions


@dataclass(frozen=True)
class Scale:
    """How large errors usually are in this release, learned from its own replicates.

    Attributes:
        curve: The coefficients of log(variance) for 1, size, size^2 and the number of columns, where size = log(expected count + 20).
        measured: Likewise for counts that measurements cover; the logarithm of their variance comes before the number of columns.
    """

    curve: tuple[float, ...]
    measured: tuple[float, ...]

    @staticmethod
    def regressors(counts: Weights, *others: Weights) -> Weights:
        """Return what a curve's coefficients are multiplied by, for counts of which these other numbers are known."""
        size = np.log(np.maximum(counts, 0.0) + 20.0)
        return np.stack(np.broadcast_arrays(np.ones(size.shape), size, size**2, *others), axis=-1)

    def usual(self, counts: Weights, *, columns: int) -> Weights:
        """Return the usual variance of counts of this size over so many columns.

        >>> Scale((0.0, 1.0, 0.0, 0.0), (0.0,) * 5).usual(np.array([0.0, 980.0]), columns=2).round(6).tolist()
        [20.0, 1000.0]
        """
        return _powers(self.curve, self.regressors(counts, np.asarray(float(columns))))

    def usual_measured(self, counts: Weights, variances: Weights, *, columns: int) -> Weights:
        """Return the usual variance of counts of this size that measurements cover with these variances.

        A count of all rows has no columns. It is taken to have one, since the curve was learned from counts of one column or more.
        """
        return _powers(self.measured, self.regressors(counts, np.log(variances), np.asarray(float(max(columns, 1)))))


def _powers(coefficients: tuple[float, ...], regressors: Weights) -> Weights:
    return np.asarray(np.exp(regressors @ np.array(coefficients)))


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """The released model, a rougher fit of the same measurements, and models fitted to fresh noise around that fit."""

    model: Fit
    pilot: Fit
    replicates: tuple[Fit, ...]
    scale: Scale

    @property
    def fits(self) -> Mapping[str, Fit]:
        """All fits by the names of their columns in the file."""
        replicates = {f"replicate_{number:02}": fit for number, fit in enumerate(self.replicates, start=1)}
        return {"model": self.model, "pilot": self.pilot, **replicates}


def uncertainty_table(
    uncertainty: Uncertainty, measurements: Sequence[Measurement], *, most_bytes: int | None = None
) -> pa.Table:
    """Return the file's table: a row for each cell of each function, and a column for each fit, in whole steps.

    Args:
        uncertainty: What is written.
        measurements: Those of the release.
        most_bytes: If the file were larger, replicates are rounded to larger steps, or some are left out.
    """
    replicates = uncertainty.replicates
    for count, step in product(range(len(replicates), min(FEWEST, len(replicates)) - 1, -1), STEPS):
        table = _table(replace(uncertainty, replicates=replicates[:count]), measurements, step=step)
        if most_bytes is None or file_size(table) <= most_bytes:
            break
    return table


def file_size(table: pa.Table) -> int:
    """Return the size of a table as a file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", **writing_options(table))
    return int(sink.getvalue().size)


def _table(uncertainty: Uncertainty, measurements: Sequence[Measurement], *, step: float) -> pa.Table:
    shapes = {axes: function.shape for axes, function in uncertainty.model.functions.items()}
    columns = {}
    for name, fit in uncertainty.fits.items():
        steps = _steps(shapes, measurements, step=FINE_STEP if name in FINE else step)
        parts = [_whole(fit.functions[axes], steps[axes]) for axes in shapes]
        columns[name] = np.concatenate([np.zeros(0, dtype=np.uint32), *parts])  # a model may have learned nothing
    public = {
        "sets": [{"axes": axes, "shape": shape} for axes, shape in shapes.items()],
        "totals": {name: fit.total.hex() for name, fit in uncertainty.fits.items()},
        "curve": [coefficient.hex() for coefficient in uncertainty.scale.curve],
        "measured": [coefficient.hex() for coefficient in uncertainty.scale.measured],
        "step": step.hex(),
    }
    metadata = {_METADATA: json.dumps(public, separators=(",", ":")).encode()}
    schema = pa.schema([(name, pa.uint32()) for name in columns], metadata=metadata)
    return pa.table([pa.array(values) for values in columns.values()], schema=schema)


def read_uncertainty(path: AnyPath, measurements: Sequence[Measurement]) -> Uncertainty:
    """Restore what `uncertainty_table` has written.

    Raises:
        UsageError: If the file cannot be read, or does not suit the measurements.
    """
    try:
        with open_regular(path) as opened:
            return restored(pq.read_table(opened), measurements)
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError, RecursionError) as error:
        refuse_store_error(path, error)
        raise UsageError(f"{UNCERTAINTY} cannot be read; copy the release again") from None


def restored(table: pa.Table, measurements: Sequence[Measurement]) -> Uncertainty:
    """Return what a table of `uncertainty_table` holds. It is rounded, so answers are the same before and after it is written."""
    public = json.loads((table.schema.metadata or {})[_METADATA])
    shapes = {tuple(marginal["axes"]): tuple(marginal["shape"]) for marginal in public["sets"]}
    fits = {}
    for name, total in public["totals"].items():
        steps = _steps(shapes, measurements, step=FINE_STEP if name in FINE else float.fromhex(public["step"]))
        fits[name] = Fit(float.fromhex(total), _functions(table[name].to_numpy(), shapes, steps))
    curve, measured = (tuple(map(float.fromhex, public[name])) for name in ("curve", "measured"))
    return Uncertainty(fits.pop("model"), fits.pop("pilot"), tuple(fits.values()), Scale(curve, measured))


def _steps(sets: Iterable[Axes], measurements: Sequence[Measurement], *, step: float) -> dict[Axes, Weights | float]:
    """Return the step to which each function is rounded, for every cell."""
    first = {measured.axes: measured for measured in reversed(measurements) if measured.cell is None}
    steps: dict[Axes, Weights | float] = dict.fromkeys(sets, 1e-4)  # unless its marginal was measured as a whole
    for axes in steps.keys() & first.keys():
        noise = max(first[axes].noise, LEAST_NOISE)
        part = FINE_STEP if len(axes) == 1 else step
        steps[axes] = part * noise / np.maximum(first[axes].values, noise)
    return steps


def _whole(function: Weights, step: Weights | float) -> npt.NDArray[np.uint32]:
    """Return a function in whole steps, with the sign as the last bit.

    >>> _whole(np.array([0.0, 1.0, -2.0]), 1.0).tolist()
    [0, 2, 3]
    """
    largest = np.iinfo(np.int32).max
    steps = np.clip(np.rint(function / step), -largest, largest).astype(np.int64).ravel()
    return ((steps << 1) ^ (steps >> 63)).astype(np.uint32)


def _functions(
    stored: npt.NDArray[np.uint32], shapes: Mapping[Axes, tuple[int, ...]], steps: Mapping[Axes, Weights | float]
) -> dict[Axes, Weights]:
    numbers = stored.astype(np.int64)
    whole = ((numbers >> 1) ^ -(numbers & 1)).astype(np.float64)
    sizes = [math.prod(shape) for shape in shapes.values()]
    if sum(sizes) != len(stored):
        raise ValueError
    parts = iter(np.split(whole, np.cumsum(sizes)))
    return {axes: next(parts).reshape(shape) * steps[axes] for axes, shape in shapes.items()}

"""What a release knows about its own errors: its model, a pilot, and replicates of the model, as a compact file.

A replicate is the model that the run would have fitted if the noise had been different. `replicates` makes them. Here they are stored: each
as the functions whose exponential it is, rounded to steps so small that no count moves by more than a part of its noise. A function of a
cell with many rows needs smaller steps than that of a nearly empty one. The noisy counts are public, so they tell the reader the steps.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import UsageError
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes
from dpcore.models import Functions
from dpcore.models.evidence import LEAST_NOISE
from dpcore.models.model import Weights
from dpcore.object_store import AnyPath
from dpcore.release.integrity import open_regular, refuse_store_error
from dpcore.release.publishing import UNCERTAINTY

STEPS, FINE_STEP = (0.05, 0.1), 0.005  # of the noise: how far rounding a function may move the count of its cell
FEW_ROWS = 20.0
FEWEST = 4  # replicates
FINE = ("model", "pilot")  # each of their errors would be an error of all intervals
SINGLE_STEP = 1e-4  # of a function whose marginal was not measured as a whole
_METADATA = b"dpflow-uncertainty"
_LARGEST = 2**31 - 1
_NOTHING = np.zeros(0, dtype=np.uint32)  # of a model that has learned nothing, and so has no functions


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model: its number of rows, and its functions."""

    total: float
    functions: Functions


@dataclass(frozen=True)
class Scale:
    """How large errors usually are in this release, learned from its own replicates and rounds.

    Attributes:
        curve: The coefficients of log(variance) for 1, size, size^2 and the number of columns, where size = log(expected count + 20).
        measured: Likewise for counts that measurements cover; the logarithm of their variance comes before the number of columns.
        unmeasured: The variance of a count of n among N rows whose columns were never measured together, as a multiple of n (1 - n / N).
    """

    curve: tuple[float, ...]
    measured: tuple[float, ...]
    unmeasured: float = 0.0

    @staticmethod
    def regressors(counts: Weights, *others: Weights) -> Weights:
        """Return what a curve's coefficients are multiplied by, for counts of which these other numbers are known."""
        size = np.log(np.maximum(counts, 0.0) + FEW_ROWS)
        return np.stack(
            [np.ones(size.shape), size, size**2, *(np.broadcast_to(each, size.shape) for each in others)], axis=-1
        )

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
    found: Weights = np.exp(regressors @ np.array(coefficients))
    return found


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
        named = {f"replicate_{number:02}": each for number, each in enumerate(self.replicates, start=1)}
        return {"model": self.model, "pilot": self.pilot, **named}


def uncertainty_table(
    found: Uncertainty, measurements: Sequence[Measurement], *, most_bytes: int | None = None
) -> pa.Table:
    """Return the file's table: a row for each cell of each function, and a column for each fit, in whole steps.

    Args:
        found: What is written.
        measurements: Those of the release.
        most_bytes: If the file were larger, replicates are rounded to larger steps, or some are left out.
    """
    for count, step in product(range(len(found.replicates), min(FEWEST, len(found.replicates)) - 1, -1), STEPS):
        table = _table(replace(found, replicates=found.replicates[:count]), measurements, step=step)
        if most_bytes is None or file_size(table) <= most_bytes:
            break
    return table


def writing_options(table: pa.Table) -> dict[str, Any]:
    """Return the options for a small file: the upper bytes of the numbers are mostly zero, so they are kept apart."""
    return {"use_dictionary": False, "column_encoding": dict.fromkeys(table.column_names, "BYTE_STREAM_SPLIT")}


def file_size(table: pa.Table) -> int:
    """Return the size of a table as a file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", **writing_options(table))
    return int(sink.getvalue().size)


def _table(found: Uncertainty, measurements: Sequence[Measurement], *, step: float) -> pa.Table:
    axes = tuple(found.model.functions)
    steps = {name: _steps(axes, measurements, step=FINE_STEP if name in FINE else step) for name in found.fits}
    columns = {
        name: np.concatenate([_NOTHING, *(_whole(fit.functions[each], steps[name][each]) for each in axes)])
        for name, fit in found.fits.items()
    }
    public = {
        "sets": [{"axes": each, "shape": found.model.functions[each].shape} for each in axes],
        "totals": {name: fit.total.hex() for name, fit in found.fits.items()},
        "curve": [each.hex() for each in found.scale.curve],
        "measured": [each.hex() for each in found.scale.measured],
        "unmeasured": found.scale.unmeasured.hex(),
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
    shapes = {tuple(each["axes"]): tuple(each["shape"]) for each in public["sets"]}
    fits = {}
    for name, total in public["totals"].items():
        step = FINE_STEP if name in FINE else float.fromhex(public["step"])
        steps = _steps(tuple(shapes), measurements, step=step)
        functions = _functions(table[name].to_numpy(), shapes, steps)
        fits[name] = Fit(float.fromhex(total), functions)
    curve, measured = (tuple(float.fromhex(each) for each in public[name]) for name in ("curve", "measured"))
    scale = Scale(curve, measured, float.fromhex(public["unmeasured"]))
    return Uncertainty(fits.pop("model"), fits.pop("pilot"), tuple(fits.values()), scale)


def _steps(sets: Iterable[Axes], measurements: Sequence[Measurement], *, step: float) -> dict[Axes, Weights | float]:
    """Return the step to which each function is rounded, for every cell."""
    whole: dict[Axes, Measurement] = {}
    for each in measurements:
        if each.cell is None:
            whole.setdefault(each.axes, each)
    found: dict[Axes, Weights | float] = {}
    for axes in sets:
        if (measured := whole.get(axes)) is None:
            found[axes] = SINGLE_STEP
            continue
        noise = max(measured.noise, LEAST_NOISE)
        part = FINE_STEP if len(axes) == 1 else step
        found[axes] = part * noise / np.maximum(measured.values, noise)
    return found


def _whole(function: Weights, step: Weights | float) -> npt.NDArray[np.uint32]:
    """Return a function in whole steps, with the sign as the last bit.

    >>> _whole(np.array([0.0, 1.0, -2.0]), 1.0).tolist()
    [0, 2, 3]
    """
    steps = np.clip(np.rint(function / step), -_LARGEST, _LARGEST).astype(np.int64).ravel()
    return np.where(steps < 0, -2 * steps - 1, 2 * steps).astype(np.uint32)


def _functions(
    stored: npt.NDArray[np.uint32], shapes: Mapping[Axes, tuple[int, ...]], steps: Mapping[Axes, Weights | float]
) -> dict[Axes, Weights]:
    numbers = stored.astype(np.int64)
    whole = np.where(numbers % 2, -(numbers // 2) - 1, numbers // 2).astype(np.float64)
    found, start = {}, 0
    for axes, shape in shapes.items():
        size = int(np.prod(shape, dtype=np.int64))
        found[axes] = whole[start : start + size].reshape(shape) * steps[axes]
        start += size
    if start != len(stored):
        raise ValueError
    return found

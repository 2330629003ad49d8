"""The noisy measurements as a table, and back. They are more accurate than the synthetic rows.

The file's metadata says what each measurement is of. With the rows' noisy counts, in their order, every measurement is restored exactly.
"""

import json
import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import UsageError
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.object_store import AnyPath
from dpcore.release.integrity import open_regular, refuse_store_error
from dpcore.release.keys import Keys, key_fields
from dpcore.universe import Universe

MEASUREMENTS = "measurements.parquet"
ROWS_PER_GROUP = 1 << 18
_METADATA = b"dpflow-measurements"
_FIELDS = (
    pa.field("step", pa.dictionary(pa.int32(), pa.string())),
    pa.field("attributes", pa.list_(pa.string())),
    pa.field("noisy_count", pa.int64()),
    pa.field("noise_standard_deviation", pa.float64()),
)
_NAMES = tuple(each.name for each in _FIELDS)


def measurement_schema(universe: Universe, measurements: Sequence[Measurement], resolutions: Resolutions) -> pa.Schema:
    """Return the schema: the step, the attributes, the noisy count and its noise, and the keys of every column of the universe."""
    versions = [
        {"column": resolutions.column(axis), "groups": _runs(resolutions.groups(resolutions.column(axis), axis))}
        | ({} if resolutions.is_version(axis) else {"apart": True})
        for axis in range(resolutions.columns, len(resolutions.shape))
    ]
    told = [
        {
            "step": each.step,
            "axes": each.axes,
            "cell": each.cell,
            "shape": each.values.shape,
            "noise": each.noise.hex(),
        }
        for each in measurements
    ]
    public = {"shape": resolutions.shape[: resolutions.columns], "versions": versions, "measurements": told}
    metadata = {_METADATA: json.dumps(public, separators=(",", ":")).encode()}
    return pa.schema([*_FIELDS, *key_fields(universe, taken=_NAMES)], metadata=metadata)


def measurement_tables(
    universe: Universe, measurements: Sequence[Measurement], resolutions: Resolutions
) -> Iterator[pa.Table]:
    """Yield the measurements in their order, with one row for each noisy count, several measurements in a table."""
    keys = Keys(universe, resolutions, taken=_NAMES)
    schema = pa.schema([*_FIELDS, *key_fields(universe, taken=_NAMES)])
    waiting: list[pa.Table] = []
    for measurement in measurements:
        waiting.append(_table(measurement, universe, resolutions, keys, schema))
        if sum(each.num_rows for each in waiting) >= ROWS_PER_GROUP:
            yield pa.concat_tables(waiting).unify_dictionaries().combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).unify_dictionaries().combine_chunks()


def _table(
    measurement: Measurement, universe: Universe, resolutions: Resolutions, keys: Keys, schema: pa.Schema
) -> pa.Table:
    count, shape = measurement.values.size, resolutions.shape_of(measurement.axes)
    cells = np.arange(count) if measurement.cell is None else np.array([measurement.cell])
    codes = np.unravel_index(cells, shape) if shape else ()
    names = [universe.names[resolutions.column(axis)] for axis in measurement.axes]
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * len(names))
    columns: dict[str, pa.Array] = {
        "step": pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, dtype=np.int32)), pa.array([measurement.step])),
        "attributes": pa.ListArray.from_arrays(offsets, pa.array(names * count, pa.string())),
        "noisy_count": pa.array(measurement.values.ravel()),
        "noise_standard_deviation": pa.array(np.full(count, measurement.noise)),
    }
    for axis, code in zip(measurement.axes, codes, strict=True):
        columns |= {name: each.take(pa.array(code)) for name, each in keys.of_axis(axis).items()}
    return pa.table(
        [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema],
        schema=schema,
    )


def read_measurements(path: AnyPath) -> tuple[Resolutions, tuple[Measurement, ...]]:
    """Restore the measurements of a release, and the resolutions that their axes refer to.

    Raises:
        UsageError: If the file cannot be read, or was not written by `measurement_tables`.
    """
    try:
        with open_regular(path) as opened, pq.ParquetFile(opened) as file:
            public = json.loads((file.schema_arrow.metadata or {})[_METADATA])
            counts = file.read(columns=["noisy_count"])["noisy_count"].to_numpy()
        resolutions = Resolutions(public["shape"])
        for version in public["versions"]:
            if version.get("apart"):
                resolutions, _ = resolutions.with_grouping(version["column"], _expanded(version["groups"]))
            else:
                resolutions.coarsen(version["column"], _expanded(version["groups"]))
        return resolutions, tuple(_measurements(public["measurements"], counts))
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError, RecursionError) as error:
        refuse_store_error(path, error)
        raise UsageError(f"{MEASUREMENTS} cannot be read; copy the release again") from None


def _measurements(told: Sequence[Any], counts: npt.NDArray[np.int64]) -> Iterator[Measurement]:
    start = 0
    for each in told:
        size = math.prod(each["shape"])
        values = counts[start : start + size].reshape(each["shape"])
        start += size
        noise = float.fromhex(each["noise"])
        yield Measurement(each["step"], tuple(each["axes"]), cell=each["cell"], values=values, noise=noise)
    if start != len(counts):
        raise ValueError


def _runs(groups: Sequence[int] | npt.NDArray[np.intp]) -> str:
    """Write the groups of cells, with the length of each run of equal ones.

    >>> _runs([0, 0, 0, 1, 2, 2])
    '0x3 1 2x2'
    """
    runs = [(group, len(list(run))) for group, run in groupby(map(int, groups))]
    return " ".join(f"{group}x{length}" if length > 1 else str(group) for group, length in runs)


def _expanded(runs: str) -> npt.NDArray[np.int64]:
    pairs = [(*map(int, run.split("x")), 1)[:2] for run in runs.split()]
    return np.repeat([group for group, _ in pairs], [length for _, length in pairs])

"""What restores a release's model, as files and back: the noisy measurements, which are more accurate than the rows, and the model's start.

The file's metadata says what each measurement is of. With the rows' noisy counts, in their order, every measurement is restored exactly.
The start is the functions of a public table, from which the weights have started. Nobody could restore the model without it, since the
functions in `uncertainty.parquet` are relative to the start.
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
from dpcore.models.start import Start
from dpcore.object_store import AnyPath
from dpcore.release.integrity import MALFORMED, open_regular, refuse_store_error
from dpcore.release.keys import keyed_schema, keyed_table, keys_by_axis
from dpcore.universe import Universe

MEASUREMENTS = "measurements.parquet"
ROWS_PER_GROUP = 1 << 18
_METADATA = b"dpflow-measurements"
START = "start.parquet"
_START_METADATA = b"dpflow-start"
_FIELDS = (
    pa.field("step", pa.dictionary(pa.int32(), pa.string())),
    pa.field("attributes", pa.list_(pa.string())),
    pa.field("noisy_count", pa.int64()),
    pa.field("noise_standard_deviation", pa.float64()),
)
_NAMES = tuple(field.name for field in _FIELDS)


def measurement_schema(universe: Universe, measurements: Sequence[Measurement], resolutions: Resolutions) -> pa.Schema:
    """Return the schema: the step, the attributes, the noisy count and its noise, and the keys of every column of the universe."""
    versions = [
        {"column": resolutions.column(axis), "groups": _runs(resolutions.groups(resolutions.column(axis), axis))}
        | ({} if resolutions.is_version(axis) else {"apart": True})
        for axis in range(resolutions.columns, len(resolutions.shape))
    ]
    stated = [
        {
            "step": measurement.step,
            "axes": measurement.axes,
            "cell": measurement.cell,
            "shape": measurement.values.shape,
            "noise": measurement.noise.hex(),
        }
        | ({} if measurement.each is None else {"each": True})
        for measurement in measurements
    ]
    public = {"shape": resolutions.shape[: resolutions.columns], "versions": versions, "measurements": stated}
    metadata = {_METADATA: json.dumps(public, separators=(",", ":")).encode()}
    return keyed_schema(_FIELDS, universe).with_metadata(metadata)


def measurement_tables(
    universe: Universe, measurements: Sequence[Measurement], resolutions: Resolutions
) -> Iterator[pa.Table]:
    """Yield the measurements in their order, with one row for each noisy count, several measurements in a table."""
    keys, schema = keys_by_axis(universe, resolutions, taken=_NAMES), keyed_schema(_FIELDS, universe)
    waiting: list[pa.Table] = []
    for number, measurement in enumerate(measurements, start=1):
        count = measurement.values.size
        names = [universe.names[resolutions.column(axis)] for axis in measurement.axes]
        step = pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), pa.array([measurement.step]))
        offsets = pa.array(np.arange(count + 1, dtype=np.int32) * len(names))
        columns: dict[str, pa.Array] = {
            "step": step,
            "attributes": pa.ListArray.from_arrays(offsets, pa.array(names * count, pa.string())),
            "noisy_count": pa.array(measurement.values.ravel()),
            "noise_standard_deviation": pa.array(measurement.deviations.ravel()),
        }
        shape = resolutions.shape_of(measurement.axes)
        cells = np.arange(count) if measurement.cell is None else np.array([measurement.cell])
        codes = np.unravel_index(cells, shape) if shape else ()
        for axis, code in zip(measurement.axes, codes, strict=True):
            columns |= {name: key.take(pa.array(code)) for name, key in keys(axis).items()}
        waiting.append(keyed_table(columns, schema, count=count))
        if sum(table.num_rows for table in waiting) >= ROWS_PER_GROUP or number == len(measurements):
            yield pa.concat_tables(waiting).unify_dictionaries().combine_chunks()
            waiting = []


def read_measurements(path: AnyPath) -> tuple[Resolutions, tuple[Measurement, ...]]:
    """Restore the measurements of a release, and the resolutions that their axes refer to.

    Raises:
        UsageError: If the file cannot be read, or was not written by `measurement_tables`.
    """
    try:
        with open_regular(path) as opened, pq.ParquetFile(opened) as file:
            public = json.loads((file.schema_arrow.metadata or {})[_METADATA])
            counts = file.read(columns=["noisy_count"])["noisy_count"].to_numpy()
            differ = any(measurement.get("each") for measurement in public["measurements"])
            column = "noise_standard_deviation"
            deviations = file.read(columns=[column])[column].to_numpy() if differ else None
        resolutions = Resolutions(public["shape"])
        for version in public["versions"]:
            if version.get("apart"):
                resolutions, _ = resolutions.with_grouping(version["column"], _expanded(version["groups"]))
            else:
                resolutions.coarsen(version["column"], _expanded(version["groups"]))
        return resolutions, tuple(_measurements(public["measurements"], counts, deviations))
    except (OSError, pa.ArrowException, *MALFORMED) as error:
        refuse_store_error(path, error)
        raise UsageError(f"{MEASUREMENTS} cannot be read; copy the release again") from None


def _measurements(
    stated: Sequence[Any], counts: npt.NDArray[np.int64], deviations: npt.NDArray[np.float64] | None
) -> Iterator[Measurement]:
    start = 0
    for measurement in stated:
        shape, noise = measurement["shape"], float.fromhex(measurement["noise"])
        place = slice(start, start := start + math.prod(shape))
        differ = deviations is not None and measurement.get("each")
        yield Measurement(
            measurement["step"],
            tuple(measurement["axes"]),
            cell=measurement["cell"],
            values=counts[place].reshape(shape),
            noise=noise,
            each=deviations[place].reshape(shape) if differ and deviations is not None else None,
        )
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


def start_table(start: Start) -> pa.Table:
    """Return the file's table: a row for each cell of each function."""
    public = {
        "sets": [{"axes": axes, "shape": function.shape} for axes, function in start.functions.items()],
        "news": start.news.hex(),
    }
    values = np.concatenate([function.ravel() for function in start.functions.values()]).astype(np.float32)
    metadata = {_START_METADATA: json.dumps(public, separators=(",", ":")).encode()}
    return pa.table([pa.array(values)], schema=pa.schema([("logarithm", pa.float32())], metadata=metadata))


def writing_options(table: pa.Table) -> dict[str, Any]:
    """Return the options for a small file: the bytes of numbers with four bytes are kept apart, and all else has a dictionary."""
    numbers = [field.name for field in table.schema if field.type in {pa.float32(), pa.uint32()}]
    others = [name for name in table.column_names if name not in numbers]
    return {"use_dictionary": others, "column_encoding": dict.fromkeys(numbers, "BYTE_STREAM_SPLIT")}


def read_start(path: AnyPath) -> Start:
    """Restore the start that `start_table` has written.

    Raises:
        UsageError: If the file cannot be read.
    """
    try:
        with open_regular(path) as opened:
            table = pq.read_table(opened)
        public = json.loads((table.schema.metadata or {})[_START_METADATA])
        values = table["logarithm"].to_numpy().astype(np.float64)
        functions, begin = {}, 0
        for marginal in public["sets"]:
            size = int(np.prod(marginal["shape"], dtype=np.int64))
            functions[tuple(marginal["axes"])] = values[begin : begin + size].reshape(marginal["shape"])
            begin += size
        return Start(functions, float.fromhex(public["news"]))
    except (OSError, pa.ArrowException, *MALFORMED) as error:
        refuse_store_error(path, error)
        raise UsageError(f"{START} cannot be read; copy the release again") from None

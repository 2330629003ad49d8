"""The noisy measurements as a table. They are more accurate than the synthetic rows."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.measurements import Measurement
from dpcore.resolutions import Resolutions
from dpcore.universe import Universe


def measurement_schema() -> pa.Schema:
    """Return the schema: the step, the attributes, the cell's label on each attribute, the noisy count and its noise."""
    return pa.schema(
        [
            ("step", pa.dictionary(pa.int32(), pa.string())),
            ("attributes", pa.list_(pa.string())),
            ("cell", pa.list_(pa.string())),
            ("noisy_count", pa.int64()),
            ("noise_standard_deviation", pa.float64()),
        ]
    )


def measurement_tables(
    universe: Universe, measurements: Sequence[Measurement], resolutions: Resolutions
) -> Iterator[pa.Table]:
    """Yield one table for each measurement, with one row for each noisy count."""
    labels = [_labels(universe, resolutions, axis) for axis in range(len(resolutions.shape))]
    for measurement in measurements:
        count = measurement.values.size
        shape = resolutions.shape_of(measurement.axes)
        cells = np.arange(count) if measurement.cell is None else np.array([measurement.cell])
        codes = np.unravel_index(cells, shape) if shape else ()
        cell_labels = np.array(
            [labels[axis][code] for axis, code in zip(measurement.axes, codes, strict=True)], dtype=object
        )
        width = len(measurement.axes)
        offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width)
        names = [universe.names[resolutions.column(axis)] for axis in measurement.axes]
        yield pa.table(
            [
                pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, dtype=np.int32)), pa.array([measurement.step])),
                pa.ListArray.from_arrays(offsets, pa.array(names * count, pa.string())),
                pa.ListArray.from_arrays(offsets, pa.array(cell_labels.T.ravel().tolist(), pa.string())),
                pa.array(measurement.values.ravel()),
                pa.array(np.full(count, measurement.noise)),
            ],
            schema=measurement_schema(),
        )


def _labels(universe: Universe, resolutions: Resolutions, axis: int) -> npt.NDArray[np.object_]:
    """Return a label for each cell of an axis. A group is labelled with all its cells; consecutive cells with the first and the last."""
    attribute = universe.attributes[universe.names[resolutions.column(axis)]]
    own, in_order = attribute.labels, attribute.cells if attribute.ordered else 0
    groups = resolutions.groups(resolutions.column(axis), axis)
    order = np.argsort(groups, kind="stable")
    members = np.split(order, np.searchsorted(groups[order], np.arange(1, resolutions.shape[axis])))
    return np.array([_label(cells.tolist(), own, in_order=in_order) for cells in members], dtype=object)


def _label(cells: Sequence[int], labels: Sequence[str], *, in_order: int) -> str:
    """Return the label of a group. `cells` must be ascending. Only the first `in_order` cells of the column have an order."""
    runs: list[list[int]] = []
    for cell in cells:
        if runs and cell == runs[-1][-1] + 1 and cell < in_order:
            runs[-1].append(cell)
        else:
            runs.append([cell])
    return " or ".join(f"{labels[run[0]]} to {labels[run[-1]]}" if len(run) > 1 else labels[run[0]] for run in runs)

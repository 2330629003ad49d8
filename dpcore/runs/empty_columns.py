"""Warn about a column whose declared values many rows do not have, because the table writes them in another way than the spec, or has others.

Such values count as `missing` or `other`, without an error, and the number of rows stays right. The decision uses noisy counts and the
spec, never the data, and costs nothing: it is post-processing.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes
from dpcore.models import Evidence
from dpcore.runs.causes import causes_of_column
from dpcore.runs.expected_rows import NoisyTotal, margin_of
from dpcore.universe import Attribute, Universe

NAMED_SHARE = 0.05
"""The least share of the rows without a declared value for which a warning names `missing` or `other`."""
MOST_OTHER = 0.2
"""The largest share of the rows in `other` that deserves no warning."""


def empty_column_warnings(
    universe: Universe, measurements: Sequence[Measurement], *, total: NoisyTotal, discovered: Collection[str] = ()
) -> dict[str, str]:
    """Return a warning for each column in which `missing` or `other` has practically all rows, or `other` many of them.

    Args:
        universe: The columns.
        measurements: What was measured of them.
        total: The noisy number of rows.
        discovered: The columns whose values were found in the data.
    """
    warnings = {}
    for axis, (name, attribute) in enumerate(universe.attributes.items()):
        cells = undeclared_cells(attribute)
        if not 0 < len(cells) < attribute.size:
            continue
        for counts in _noisy_counts(measurements, axis, shape=universe.shape):
            undeclared = {label: counts[cell] for label, cell in cells.items() if cell in counts}
            in_other = undeclared.get("other")
            is_category = "other" in cells and cells["other"] < attribute.cells  # a declared one of this name
            if _practically_all(undeclared, total):
                warnings[name] = _sentence(name, attribute, undeclared)
            elif in_other is not None and not is_category and _is_much(in_other, total):
                warnings[name] = _other_sentence(
                    name, attribute, in_other.rows / total.rows, discovered=name in discovered
                )
    return warnings


def undeclared_cells(attribute: Attribute) -> dict[str, int]:
    """Return the cells of a column in which values that are not declared are counted, by name."""
    cells = {"other": attribute.other_cell, "missing": attribute.missing_cell}
    return {label: cell for label, cell in cells.items() if cell is not None}


def _noisy_counts(
    measurements: Sequence[Measurement], axis: int, *, shape: Sequence[int]
) -> Iterator[dict[int, NoisyTotal]]:
    """Yield noisy counts of a column's cells: its own marginal, or without one what was measured of each larger marginal.

    A strategy that measures single cells, such as pmw, leaves others out. A count that is a sum of them is then a lower bound.
    """
    evidence, single = Evidence(), defaultdict[Axes, defaultdict[int, list[Measurement]]](lambda: defaultdict(list))
    for measurement in measurements:
        if measurement.axes == (axis,) and measurement.cell is None:
            evidence.add(measurement)
        elif axis in measurement.axes and measurement.cell is not None:
            single[measurement.axes][measurement.cell].append(measurement)
    for _, target in evidence:
        counted = zip(target.counts.tolist(), target.variance.tolist(), strict=True)
        yield {cell: NoisyTotal(count, math.sqrt(variance)) for cell, (count, variance) in enumerate(counted)}
    if not evidence.axes:
        for axes, cells in single.items():
            yield _summed(cells, axes.index(axis), shape=[shape[place] for place in axes])


def _summed(cells: Mapping[int, list[Measurement]], place: int, *, shape: Sequence[int]) -> dict[int, NoisyTotal]:
    """Sum measured cells of a marginal by their cell in one of its columns. A cell that was measured again is averaged."""
    parts = defaultdict[int, list[NoisyTotal]](list)
    for cell, measured in cells.items():
        mean = NoisyTotal.of([replace(measurement, cell=None) for measurement in measured])
        parts[int(np.unravel_index(cell, shape)[place])].append(mean)
    return {cell: _sum(part) for cell, part in parts.items()}


def _sum(parts: Collection[NoisyTotal]) -> NoisyTotal:
    return NoisyTotal(math.fsum(part.rows for part in parts), math.hypot(*(part.noise for part in parts)))


def _practically_all(undeclared: Mapping[str, NoisyTotal], total: NoisyTotal) -> bool:
    """Tell whether undeclared values make up all rows, as far as the noise lets one see.

    The declared values are what the total has more. This has less noise than their own counts, of which there may be many.
    """
    rest = _sum(undeclared.values())
    return not rest.is_faint and total.rows - rest.rows <= margin_of(math.hypot(total.noise, rest.noise))


def _is_much(in_other: NoisyTotal, total: NoisyTotal) -> bool:
    """Tell whether more than `MOST_OTHER` of the rows are in `in_other`, allowing for the noise."""
    return not in_other.is_faint and in_other.rows - in_other.margin > MOST_OTHER * (total.rows + total.margin)


def _sentence(name: str, attribute: Attribute, undeclared: Mapping[str, NoisyTotal]) -> str:
    rows = math.fsum(count.rows for count in undeclared.values())
    named = [f"`{label}`" for label, count in undeclared.items() if count.rows > NAMED_SHARE * rows]
    return (
        f"practically all rows have {' or '.join(named)} in `{name}`: its declared values do not stand out of the noise; "
        f"likely causes: {'; '.join(causes_of_column(attribute))}; or the column holds nothing else; correct the spec and run again, or leave "
        "the column out"
    )


def _other_sentence(name: str, attribute: Attribute, share: float, *, discovered: bool) -> str:
    if discovered:
        why = "only values that stood out of the noise were found; give its `discover` a larger `share` or `most`, or list the values"
    else:
        why = f"likely causes: {'; '.join(causes_of_column(attribute))}; or many rows have values that the spec does not declare; correct the spec and run again"
    return f"about {100 * share:.0f} % of the rows have `other` in `{name}`: {why}"

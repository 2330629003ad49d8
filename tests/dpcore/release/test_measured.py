"""The table of noisy measurements: what groups of cells are called."""

import numpy as np
import pytest

from dpcore.measurements import Measurement
from dpcore.release.measured import measurement_tables
from dpcore.resolutions import Resolutions
from dpcore.universe import Categorical, Integer, Number, Outside, Universe

UNIVERSE = Universe(
    {
        "age": Integer(minimum=0, maximum=5, outside=Outside.OTHER, missing=True),
        "city": Categorical(("north", "south", "west"), missing=True),
        "income": Number((0, 10, 20, 40)),
    }
)


def labels(column: int, groups: list[int]) -> list[str]:
    """Return what the groups of a column are called."""
    resolutions = Resolutions(UNIVERSE.shape)
    axis = resolutions.coarsen(column, groups)
    size = resolutions.shape[axis]
    measurement = Measurement(step="m", axes=(axis,), cell=None, values=np.arange(size), noise=1.0)
    (table,) = measurement_tables(UNIVERSE, [measurement], resolutions)
    assert table["noisy_count"].to_pylist() == list(range(size))
    return [cell for (cell,) in table["cell"].to_pylist()]


@pytest.mark.parametrize(
    ("column", "groups", "expected"),
    [
        (0, [0, 0, 0, 1, 2, 2, 3, 4], ["0 to 2", "3", "4 to 5", "other", "missing"]),
        (0, [0, 0, 0, 1, 1, 1, 2, 2], ["0 to 2", "3 to 5", "other or missing"]),
        (0, [0, 0, 0, 1, 1, 1, 1, 0], ["0 to 2 or missing", "3 to 5 or other"]),
        (0, [0, 0, 0, 1, 1, 2, 2, 2], ["0 to 2", "3 to 4", "5 or other or missing"]),
        (0, [0, 0, 1, 1, 0, 0, 2, 2], ["0 to 1 or 4 to 5", "2 to 3", "other or missing"]),
        (0, [0, 0, 0, 0, 0, 0, 0, 1], ["0 to 5 or other", "missing"]),
        (1, [0, 1, 0, 1], ["north or west", "south or missing"]),
        (1, [1, 0, 0, 0], ["south or west or missing", "north"]),
        (2, [0, 0, 1], ["[0, 10) to [10, 20)", "[20, 40]"]),
    ],
)
def test_only_neighbours_are_called_by_their_first_and_last_cell(
    column: int, groups: list[int], expected: list[str]
) -> None:
    assert labels(column, groups) == expected

"""Which rows of a batch count, and as what: told by each row alone."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from dpcore.privacy.protection import Neighbours, Protection
from dpcore.tables.ingest.coding import Coding, read_weights
from dpcore.tables.ingest.draws import Draws
from dpcore.universe import Integer, Outside, Universe

UNIVERSE = Universe({"age": Integer(minimum=0, maximum=99, outside=Outside.DROP)})
BY_ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
WEIGHED = Protection(unit="who", rows_per_unit=2, neighbours=Neighbours.REPLACE_ONE, weight="w", row_weight=5)
KEY = b"k" * 32


@dataclass(frozen=True)
class Even:
    """A window of the rows with an even day."""

    columns: tuple[str, ...] = ("day",)

    def keeps(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        return batch.column("day").to_numpy() % 2 == 0


def test_only_what_is_needed_is_read() -> None:
    assert Coding(universe=UNIVERSE, protection=BY_ROW, window=None).columns == ("age",)
    everything = Coding(universe=UNIVERSE, protection=WEIGHED, window=Even())  # type: ignore[arg-type]
    assert everything.columns == ("age", "who", "w", "day")
    shared = Coding(universe=UNIVERSE, protection=BY_ROW, window=Even(("age",)))  # type: ignore[arg-type]
    assert shared.columns == ("age",)


def test_a_row_counts_if_window_universe_id_and_weight_let_it_and_keeps_its_own_draw() -> None:
    batch = pa.record_batch(
        {
            "age": [1, 2, 3, 4, 500, 6, 7, 8],
            "who": ["a", "a", None, "b", "b", "", "c", "d"],
            "w": [1, 2, 3, 4, 5, 6, 0, 8],
            "day": [0, 1, 0, 0, 0, 0, 0, 0],
        }
    )
    coding, draws = Coding(universe=UNIVERSE, protection=WEIGHED, window=Even()), Draws(KEY)  # type: ignore[arg-type]
    coded = coding.code(batch, draws=draws, piece=3, start=5000)
    rows = [0, 3, 7]
    assert coded.codes[0].tolist() == [1, 4, 8]
    assert coded.weights.tolist() == [1, 4, 5]
    assert coded.draws.tolist() == draws.words(3, 5000, 8)[rows].tolist()
    assert len(np.unique(coded.ids, axis=0)) == 3
    one_by_one = [coding.code(batch.slice(row, 1), draws=draws, piece=3, start=5000 + row) for row in range(8)]
    for whole, *parts in zip(coded.columns(), *(one.columns() for one in one_by_one), strict=True):
        assert whole.tolist() == np.concatenate(parts).tolist()
        assert all(part.dtype == whole.dtype for part in parts)


def test_rows_of_a_table_without_units_or_weights_have_none() -> None:
    coded = Coding(universe=UNIVERSE, protection=BY_ROW, window=None).code(
        pa.record_batch({"age": [1, 200]}), draws=Draws(KEY), piece=0, start=0
    )
    assert (coded.codes[0].tolist(), coded.weights, coded.ids, coded.draws) == ([1], None, None, None)


WEIGHTS = [
    (pa.array([0, 1, 5, 6, -3, None]), [0, 1, 5, 5, 0, 0]),
    (pa.array([0.99, 1.01, 5.5, np.inf, -np.inf, np.nan]), [0, 1, 5, 5, 0, 0]),
    (pa.array(["1e0", " 2 ", "9" * 400, "-1", "three", ""]), [1, 2, 5, 0, 0, 0]),
    (pa.array([b"\xff", b"4"]), [0, 4]),
    (pa.array([2**63, 3], pa.uint64()), [5, 3]),
    (pa.array([True, False, None]), [1, 0, 0]),
    (pa.nulls(2), [0, 0]),
    (pa.array([[1], [2]]), [0, 0]),
    (pa.array(["2", "x"]).dictionary_encode(), [2, 0]),
]


@pytest.mark.parametrize(("column", "weights"), WEIGHTS, ids=lambda value: str(getattr(value, "type", "")))
def test_a_weight_is_a_whole_number_from_zero_to_the_most_whatever_stands_there(
    column: pa.Array, weights: list[int]
) -> None:
    assert read_weights(column, protection=WEIGHED).tolist() == weights


def test_the_sensitivity_is_k_rows_of_the_most_weight() -> None:
    assert (WEIGHED.sensitivity.l1, WEIGHED.sensitivity.l2_squared, WEIGHED.sensitivity.linf) == (20, 200, 10)
    assert (WEIGHED.count_sensitivity.l1, WEIGHED.count_sensitivity.l2_squared) == (10, 100)

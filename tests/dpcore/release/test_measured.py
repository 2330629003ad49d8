"""The table of noisy measurements: its keys, and how measurements are restored from it."""

import datetime as dt
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore.errors import UsageError
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.release.measured import measurement_schema, measurement_tables, read_measurements
from dpcore.universe import Boolean, Categorical, Date, Every, Integer, Number, Outside, Universe

UNIVERSE = Universe(
    {
        "age": Integer(minimum=0, maximum=5, outside=Outside.OTHER, missing=True),
        "city": Categorical(("north", "south", "west"), missing=True),
        "income": Number((0, 10, 20, 40)),
        "smoker": Boolean(),
        "day": Date(minimum=dt.date(2025, 1, 15), maximum=dt.date(2025, 3, 9), every=Every.MONTH),
        "age_low": Categorical((1, 2.0), outside=Outside.OTHER),
    }
)


def keys(column: int, groups: list[int] | None = None) -> list[tuple[object, ...]]:
    """Return the keys of a column, or of its groups."""
    resolutions = Resolutions(UNIVERSE.shape)
    axis = column if groups is None else resolutions.coarsen(column, groups)
    size = resolutions.shape[axis]
    measurement = Measurement(step="m", axes=(axis,), cell=None, values=np.arange(size), noise=1.0)
    (table,) = measurement_tables(UNIVERSE, [measurement], resolutions)
    assert table["noisy_count"].to_pylist() == list(range(size))
    own = [name for name in table.column_names[4:] if table[name].null_count < size]
    return list(zip(*(table[name].to_pylist() for name in own), strict=True))


@pytest.mark.parametrize(
    ("column", "groups", "expected"),
    [
        (
            0,
            [0, 0, 0, 1, 2, 2, 3, 4],
            [(0, 3, False), (3, 4, False), (4, 6, False), (None, None, True), (None, None, True)],
        ),
        (0, [0, 0, 0, 1, 1, 1, 1, 0], [(0, 3, True), (3, 6, True)]),
        (0, [0, 0, 1, 1, 0, 0, 2, 2], [(None, None, False), (2, 4, False), (None, None, True)]),  # no interval
        (1, None, [(["north"], False), (["south"], False), (["west"], False), ([], True)]),
        (1, [0, 1, 0, 1], [(["north", "west"], False), (["south"], True)]),
        (2, [0, 0, 1], [(0.0, 20.0), (20.0, 40.0)]),
        (3, None, [([False],), ([True],)]),
        (4, [0, 1, 1], [(dt.date(2025, 1, 15), dt.date(2025, 2, 1)), (dt.date(2025, 2, 1), dt.date(2025, 3, 10))]),
        (5, None, [(["1"],), (["2"],), (["other"],)]),
    ],
)
def test_keys_are_typed(column: int, groups: list[int] | None, expected: list[tuple[object, ...]]) -> None:
    assert keys(column, groups) == expected


def measured() -> tuple[Resolutions, list[Measurement]]:
    resolutions, rng = Resolutions(UNIVERSE.shape), np.random.default_rng(1)
    coarse = resolutions.coarsen(0, [0, 0, 0, 1, 2, 2, 3, 3])
    coarser = resolutions.coarsen(0, [0, 0, 0, 0, 1, 1, 2, 2])
    sets = [(0,), (0,), (1, coarse), (3, coarser), (1, 2, 3)]
    made = [
        Measurement(f"step {at}", axes, None, rng.integers(-9, 99, resolutions.shape_of(axes)), noise=rng.random())
        for at, axes in enumerate(sets)
    ]
    made[2] = replace(made[2], each=rng.random(made[2].values.shape))  # counts that were corrected
    total = Measurement("total", (), cell=None, values=np.array(7, dtype=np.int64), noise=0.1)
    cell = Measurement("cell", (1, 3), cell=5, values=np.array([-3]), noise=1e-300)
    return resolutions, [total, *made, cell]


def written(folder: Path, *, metadata: bool = True) -> Path:
    resolutions, measurements = measured()
    schema = measurement_schema(UNIVERSE, measurements, resolutions)
    table = pa.concat_tables(measurement_tables(UNIVERSE, measurements, resolutions))
    pq.write_table(
        table.replace_schema_metadata(schema.metadata if metadata else None), folder / "measurements.parquet"
    )
    return folder / "measurements.parquet"


def test_every_measurement_is_restored_exactly(tmp_path: Path) -> None:
    resolutions, measurements = measured()
    restored, found = read_measurements(written(tmp_path))
    assert restored.shape == resolutions.shape
    assert [resolutions.versions(column) for column in range(6)] == [restored.versions(column) for column in range(6)]
    assert np.array_equal(restored.groups(0, 7), resolutions.groups(0, 7))
    assert [each.to_bytes() for each in found] == [each.to_bytes() for each in measurements]
    assert [each.step for each in found] == [each.step for each in measurements]
    assert [each.deviations.tolist() for each in found] == [each.deviations.tolist() for each in measurements]
    assert [each.each is None for each in found].count(False) == 1


def test_a_file_that_does_not_say_what_it_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"measurements\.parquet cannot be read"):
        read_measurements(written(tmp_path, metadata=False))
    (tmp_path / "measurements.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(UsageError, match="copy the release again"):
        read_measurements(tmp_path / "measurements.parquet")
    with pytest.raises(UsageError, match="copy the release again"):
        read_measurements(tmp_path / "nothing.parquet")


def test_duckdb_joins_counts_with_rows_by_their_keys(tmp_path: Path) -> None:
    path = written(tmp_path)
    rows = pa.table({"age": [0, 3, 5, None], "city": ["north", None, "west", "south"]})
    connection = duckdb.connect()
    connection.register("rows", rows)
    joined = connection.execute(
        f"""select r.age, r.city, count(*) from rows r join '{path}' m
        on (r.age >= m.age_low and r.age < m.age_high or (m.age_null and r.age is null))
        and (list_contains(m.city_values, r.city) or (m.city_null and r.city is null))
        where m.step = 'step 2' group by all order by all"""
    ).fetchall()
    assert joined == [(0, "north", 1), (3, None, 1), (5, "west", 1), (None, "south", 1)]

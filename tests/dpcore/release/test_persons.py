"""Rows with ids: a person's constant values are drawn once, ids go on from chunk to chunk, and readers are warned."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from dpcore.models.persons import NoisyPersons, PersonSizes
from dpcore.release.draft import Persons, SyntheticRows
from dpcore.release.persons import PersonRows
from dpcore.universe import Number, Universe

UNIVERSE = Universe({name: Number(edges=tuple(float(edge) for edge in range(51))) for name in ("born", "cost")})


def persons(*numbers: int, noise: float = 1.0) -> Persons:
    sizes = NoisyPersons(numbers, noise=noise)
    return Persons("who", ("born",), PersonSizes(sizes, sizes), spent=0.1, seed=1)


def written(of: Persons, *, cells: int, chunks: int = 2, rows: int = 1000) -> tuple[PersonRows, pa.Table]:
    codes = [
        [np.random.default_rng([seed, axis]).integers(0, cells, rows) for axis in (0, 1)] for seed in range(chunks)
    ]
    made = PersonRows(of, UNIVERSE)
    tables = made.tables(SyntheticRows(chunks * rows, lambda: iter(codes)), np.random.default_rng(1), most_rows=300)
    return made, pa.concat_tables(tables)


def test_a_constant_value_is_drawn_once_for_a_person_even_across_tables() -> None:
    made, table = written(persons(100, 100, 100), cells=5)
    frame = table.to_pandas()
    by_person = frame.groupby("who")
    assert (by_person["born"].nunique() == 1).all()
    assert (by_person["cost"].nunique() == by_person.size()).all()
    assert frame["born"].nunique() == made.number == frame["who"].max()
    assert table.schema == made.schema
    assert list(made.warnings()) == []


def test_sizes_that_the_constant_columns_do_not_allow_are_warned_about() -> None:
    made, _ = written(persons(0, 0, 300), cells=50, rows=60)
    (warning,) = made.warnings()
    assert "so many combinations of values" in warning


def test_sizes_that_too_few_rows_do_not_allow_are_not_blamed_on_constant_columns() -> None:
    made, _ = written(replace(persons(0, 0, 300), constant=()), cells=50, rows=2, chunks=1)
    (warning,) = made.warnings()
    assert "the release has too few rows to give each who as many rows as were learned; publish more rows" in warning


def test_numbers_of_persons_that_are_mostly_noise_are_warned_about() -> None:
    made, _ = written(persons(10, 10, 10, noise=20.0), cells=2)
    (warning,) = made.warnings()
    assert "the noisy number of persons is 30, which is small compared with its noise of 34.6" in warning


def test_a_manifest_tells_how_to_divide_rows_again() -> None:
    of = persons(100, 50, 30)
    made, _ = written(of, cells=5)
    assert Persons.read({"persons": made.to_json()}, seed=1) == of
    assert Persons.read({}, seed=1) is None


def test_persons_with_one_row_have_no_measurement_in_the_manifest() -> None:
    of = Persons("who", ("born",), PersonSizes.of_one(), spent=0.0, seed=1)
    made, table = written(of, cells=5)
    assert made.number == table.num_rows == 2000
    assert made.to_json()["measured"] is None
    assert Persons.read({"persons": made.to_json()}, seed=1) == of
    assert list(made.warnings()) == []

"""Rows of a kind: each satisfies its condition, and their shares are those that the model has under the condition."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore import open_release, sample
from dpcore.answers import boxes
from dpcore.answers import sample as sampling
from dpcore.answers.evaluate import Prepared
from dpcore.answers.release import Release
from dpcore.answers.sql import QueryError, parse
from dpcore.errors import UsageError
from dpcore.models.projection import projected
from tests.dpcore.answers.releases import DENSE, make_release
from tests.dpcore.cli.ledgers import dpflow

ROWS = 4000
CONDITIONS = (
    "age >= 65",
    "cost = 12.34",
    "hours = 40 and cost < 12.34",
    "income > 3.5 and income < 5",
    '"at" >= \'2025-02-01 09:00:00\' and hour("at") = 17',
    "day between '2025-02-03' and '2025-04-16' or day > '2025-11-05'",
    "seen < '2025-01-02 03:30:00'",
    "born is null and grade = '3.5'",
    "sex = 'F' or smoker",
    "age is null or cost > 20 or hours between 3 and 17",
    "not (sex = 'M' or hours between 3 and 17) and city like '%o%'",
    "weight > 63 and weight < 71 or children in (1, 2) and city = 'north'",
    "(sex = 'F' or hours < 10) and (smoker or cost < 5)",
)
ASKED = ("sex = 'F'", "age >= 40", "cost < 20", "hours = 40", "smoker", "income > 12", "day < '2025-06-01'")


def drawn(release: Release | Path, where: str | None, *, rows: int = ROWS, seed: int = 1) -> pa.Table:
    return pa.concat_tables(sample(release, rows=rows, where=where, seed=seed))


def count(rows: pa.Table, condition: str) -> int:
    with duckdb.connect() as connection:
        connection.register("drawn", rows)
        return int(connection.sql(f"select count(*) from drawn where {condition}").fetchall()[0][0])


def worst(release: Release, table: pa.Table, where: str) -> float:
    """Return how far shares of the rows are from those of the model, in standard deviations of independent rows."""
    shares = []
    for asked in ASKED:
        query = parse(f"select count(*) filter (where {asked}) / count(*) from release where {where}", release.universe)
        project = partial(projected, release.model)
        (share,) = (float(values[0]) for values in Prepared(query, release.universe).evaluate(project).values())
        deviation = max(np.sqrt(share * (1 - share) / table.num_rows), 1 / table.num_rows)
        shares.append(abs(count(table, asked) / table.num_rows - share) / deviation)
    assert len(shares) > 3
    return max(shares)


@pytest.mark.parametrize("where", CONDITIONS)
def test_every_row_satisfies_the_condition_and_shares_are_the_models(kinds: Release, where: str) -> None:
    table = drawn(kinds, where)
    assert table.num_rows == ROWS == count(table, where)
    assert table.schema.equals(kinds.universe.schema)
    assert worst(kinds, table, where) < 6  # independent rows would exceed it with probability 2e-9; the seed is fixed


def test_without_a_condition_rows_are_those_of_a_release(kinds: Release) -> None:
    assert worst(kinds, drawn(kinds, None), "true") < 6


@pytest.mark.parametrize("strategy", ["{name: mwem, rounds: 3}", "{name: pmw, rounds: 7}"])
def test_dense_models_are_restricted_alike(tmp_path: Path, strategy: str) -> None:
    release = open_release(make_release(tmp_path, DENSE.replace("STRATEGY", strategy), rows=1000))
    where = "age between 10 and 30 and income > 3 or sex = 'F' and smoker is null"
    table = drawn(release, where)
    assert count(table, where) == ROWS
    for asked in ("sex = 'F'", "age < 20", "income < 10"):
        query = parse(f"select count(*) filter (where {asked}) / count(*) from release where {where}", release.universe)
        (share,) = (
            values[0]
            for values in Prepared(query, release.universe).evaluate(partial(projected, release.model)).values()
        )
        assert abs(count(table, asked) / ROWS - share) < 6 * np.sqrt(share * (1 - share) / ROWS)


def whole_cells(_column: object, _pieces: object, values: pa.ChunkedArray, _rng: object) -> pa.ChunkedArray:
    """The planted defect: a value is drawn from its whole cell."""
    return values


def any_part(column: boxes.Column, allowed: boxes.Pieces) -> np.ndarray:
    """The planted defect: a cell counts fully as soon as a part of it is allowed."""
    return (np.bincount(column.cell, weights=allowed, minlength=column.attribute.size) > 0).astype(float)


def test_planted_defects_are_noticed(kinds: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as planted:
        planted.setattr(sampling, "within", whole_cells)
        assert count(drawn(kinds, "age >= 65"), "age >= 65") < ROWS
    where = "age < 51 or cost > 20"
    with monkeypatch.context() as planted:
        planted.setattr(sampling, "weights_of", any_part)
        assert worst(kinds, drawn(kinds, where), where) > 6


def test_a_seed_repeats_the_rows_and_another_does_not(kinds: Release) -> None:
    where = "sex = 'F' or age > 60"
    first = drawn(kinds, where, rows=100)
    assert first.equals(drawn(kinds, where, rows=100))
    assert not first.equals(drawn(kinds, where, rows=100, seed=2))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("age >=", r"line 1, column 5: this is not SQL near '>='; for example: age >= 65"),
        ("sex = 'F'\n and agee > 3", "line 2, column 6: there is no column 'agee'; did you mean age"),
        ("age > 3 group by sex", "write a condition only"),
        ("age > 3 limit 5", "write a condition only"),
        ("  ", "the condition is empty"),
        ("age > 3; drop table release", "more than one statement"),
        ("age > hours", "a column can only be compared with a constant"),
    ],
)
def test_a_condition_that_is_none_is_refused_with_its_place(kinds: Release, where: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        drawn(kinds, where)


@pytest.mark.parametrize("where", ["false", "age > 1000", "sex = 'F' and sex = 'M'", "income = 5"])
def test_what_the_model_has_no_rows_of_is_refused(kinds: Release, where: str) -> None:
    with pytest.raises(UsageError, match="the release has no rows that satisfy this condition"):
        drawn(kinds, where)


@pytest.mark.parametrize(("rows", "seed"), [(0, 1), (-5, 1), (10**9 + 1, 1), (True, 1), (5, -1)])
def test_numbers_out_of_range_are_refused(kinds: Release, rows: int, seed: int) -> None:
    with pytest.raises(UsageError, match=r"must be"):
        sample(kinds, rows=rows, seed=seed)


def test_the_verb_writes_a_file_that_says_where_it_comes_from(
    kinds: Release, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, where = tmp_path / "more" / "old.parquet", "age >= 65"
    arguments = ["sample", str(kinds.folder), "--rows", "500", "--where", where, "--seed", "7", "--output", str(file)]
    assert dpflow(*arguments) == 0
    assert "wrote 500 rows" in capsys.readouterr().out
    table = pq.read_table(file)
    assert count(table, where) == 500
    assert table.equals(drawn(kinds, where, rows=500, seed=7))
    notes = {name: json.loads(note) for name, note in table.schema.metadata.items() if name.startswith(b"dpflow")}
    assert notes[b"dpflow"] == kinds.manifest["privacy"]
    expected = {"release": kinds.manifest["release"], "rows": 500, "where": where, "seed": 7}
    assert notes[b"dpflow-sample"] == expected
    assert dpflow(*arguments, "--json") == 0
    answered = json.loads(capsys.readouterr().out)
    query = parse(f"select count(*) from release where {where}", kinds.universe)
    (number,) = Prepared(query, kinds.universe).evaluate(partial(projected, kinds.model)).values()
    assert answered["expected"] == pytest.approx(number[0])


def csv(text: str) -> list[tuple[object, ...]]:
    return [tuple(line.split(",")[:1]) for line in text.splitlines()]


def objects(text: str) -> list[tuple[object, ...]]:
    return [("sex",), *((f'"{row["sex"]}"' if row["sex"] else "",) for row in json.loads(text))]


@pytest.mark.parametrize(("option", "read"), [([], csv), (["--json"], objects)])
def test_without_a_file_rows_are_printed(
    kinds: Release,
    capsys: pytest.CaptureFixture[str],
    option: list[str],
    read: Callable[[str], list[tuple[object, ...]]],
) -> None:
    assert dpflow("sample", str(kinds.folder), "--rows", "5", "--seed", "7", *option) == 0
    table = drawn(kinds, None, rows=5, seed=7)
    expected = [f'"{sex}"' if sex else "" for sex in table.column("sex").to_pylist()]
    assert [sex for (sex,) in read(capsys.readouterr().out)][1:] == expected


def test_rows_that_the_release_hardly_has_come_with_a_warning(
    kinds: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    for where, warned in (("age >= 65", False), ("age >= 98 and sex is null and hours < 0", True)):
        assert dpflow("sample", str(kinds.folder), "--rows", "3", "--where", where) == 0
        assert ("such rows, which is too few to know much about them" in capsys.readouterr().err) is warned


def test_a_file_that_is_not_parquet_is_refused(kinds: Release, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow("sample", str(kinds.folder), "--rows", "5", "--output", "rows.csv") == 2
    assert "does not end with .parquet" in capsys.readouterr().err

"""Ranges and steps without bins: full resolution, and mistakes in them."""

from fractions import Fraction
from pathlib import Path

import pytest

from dpcore.errors import SpecError
from dpcore.spec import Declaration, load_spec
from dpcore.spec.shares import Early
from dpcore.universe import Date, Integer
from dpcore.universe.fine_days import FineDate, FineDatetime
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.leaves import Fine

SPEC = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: row, neighbours: add-remove, epsilon: 1.0, delta: 1e-9}
universe:
  sex: {type: categorical, values: [F, M]}
  COLUMN
workload: {marginals: WAYS}
"""


@pytest.fixture
def load(tmp_path: Path):
    def loaded(*columns: str, ways: int = 2, **changes: str) -> Declaration:
        text = SPEC.replace("COLUMN", "\n  ".join(columns)).replace("WAYS", str(ways))
        for old, new in changes.items():
            text = text.replace(old, new)
        path = tmp_path / "spec.yaml"
        path.write_text(text, encoding="utf-8")
        return load_spec(path)

    return loaded


@pytest.mark.parametrize(
    ("column", "kind", "places"),
    [
        ("{type: integer, min: 0, max: 99999}", FineInteger, 100_000),
        ("{type: number, min: 0, max: 10000, step: 0.01}", FineNumber, 1_000_001),
        ("{type: number, min: -1.5, max: 1.5, step: 0.5}", FineNumber, 7),
        ("{type: date, min: 2025-01-01, max: 2025-12-31}", FineDate, 365),
        ("{type: datetime, min: 2025-01-01T08:00:00, max: 2025-12-31T20:00:00, step: minute}", FineDatetime, 365),
    ],
)
def test_without_bins_a_column_has_full_resolution(load, column: str, kind: type[Fine], places: int) -> None:
    declaration = load(f"x: {column}")
    attribute = declaration.universe.attributes["x"]
    assert isinstance(attribute, kind)
    assert attribute.places == places
    assert declaration.fine == ("x",)
    assert list(declaration.descents()) == ["x"]


@pytest.mark.parametrize(
    "column",
    [
        "{type: integer, min: 0, max: 31}",
        "{type: integer, min: 0, max: 99999, width: 1}",
        "{type: number, min: 0, max: 100, bins: 10}",
        "{type: date, min: 2025-01-01, max: 2025-12-31, every: day}",
    ],
)
def test_declared_bins_and_few_values_are_cells_and_cost_nothing_to_find(load, column: str) -> None:
    declaration = load(f"x: {column}")
    assert not isinstance(declaration.universe.attributes["x"], Fine)
    assert declaration.share(Early.DISCOVERY) == 0


def test_a_width_changes_the_meaning_of_a_spec_and_few_values_do_not(load) -> None:
    few, one = load("x: {type: integer, min: 0, max: 9}"), load("x: {type: integer, min: 0, max: 9, width: 1}")
    assert few.universe == one.universe
    many, each = load("x: {type: integer, min: 0, max: 99}"), load("x: {type: integer, min: 0, max: 99, width: 1}")
    assert many.digest != each.digest
    assert type(each.universe.attributes["x"]) is Integer


@pytest.mark.parametrize(
    ("column", "position", "message"),
    [
        ("{type: number, min: 0, max: 1, step: 0.3}", "6:3", "`step` does not divide the range"),
        ("{type: number, min: 0, max: 1e18, step: 1}", "6:3", "too many steps to be exact"),
        ("{type: number, min: 0, max: 1.0e-310, step: 1.0e-315}", "6:3", "at most 22 decimal places"),
        ("{type: integer, min: 0, max: 1000000000000000000}", "6:30", "must be <= 9007199254740992"),
        ("{type: integer, min: 0, max: 100, step: 5}", "6:40", "write `type: number` for larger steps"),
        ("{type: date, min: 2025-01-01, max: 2025-12-31, step: day}", "6:53", "dates have steps of a day"),
        ("{type: integer, min: 9, max: 0}", "6:30", "is below `min`; swap them"),
        ("{type: number, min: 9, max: 0, step: 1}", "6:29", "is below `min`; swap them"),
        ("{type: number, min: 0, max: 9, step: 0}", "6:37", "must be > 0"),
        ("{type: number, min: 0, max: 9}", "6:3", "and `step` for full resolution"),
        ("{type: number, min: 0, max: 9, step: 1, bins: 3}", "6:3", "keep one of the two"),
        ("{type: date, min: 2025-02-30, max: 2025-12-31}", "6:19", "is no day of the calendar"),
        ("{type: date, min: 2025-12-31, max: 2025-01-01}", "6:36", "is below `min`; swap them"),
        ("{type: datetime, min: 2025-01-01T00:00:00, max: 2025-12-31T00:00:00}", "6:3", "needs either `step: minute`"),
        (
            "{type: datetime, min: 2025-01-01T00:30:00, max: 2025-12-31T00:00:00, step: hour}",
            "6:3",
            "write them to the hour",
        ),
        ("{type: integer, min: 0, max: 9, share: 0.1}", "6:3", "has a `share`, which is for full resolution"),
        ("{type: date, min: 2025-01-01, max: 2025-12-31, every: day, share: 0.1}", "6:3", "has a `share`"),
        ("{type: integer, min: 0, max: 99, share: 1.5}", "6:39", "must be <= 0.9"),
    ],
)
def test_a_mistake_has_its_place_and_its_remedy(load, column: str, position: str, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        load(f"x: {column}")
    first = str(refused.value).splitlines()[0]
    assert f"spec.yaml:{position}: " in first
    assert message in first


def test_shares_follow_from_the_columns_unless_the_spec_gives_them(load) -> None:
    fine = "{type: integer, min: 0, max: 9999}"
    alone = load(f"x: {fine}", ways=1, **{"  sex: {type: categorical, values: [F, M]}\n": ""})
    assert alone.share(Early.DISCOVERY) == Fraction(9, 10)
    one, five = load(f"x: {fine}"), load(*(f"x{number}: {fine}" for number in range(5)))
    assert 0.1 < one.share(Early.DISCOVERY) < 0.5
    assert five.share(Early.DISCOVERY) <= Fraction(1, 2)
    assert len({descent.share for descent in five.descents().values()}) == 1
    given = load("x: {type: integer, min: 0, max: 9999, share: 0.07}")
    assert given.share(Early.DISCOVERY) == Fraction(7, 100)
    with pytest.raises(SpecError, match=r"add up to 1\.2; reduce them"):
        load(*(f"x{number}: {{type: integer, min: 0, max: 9999, share: 0.6}}" for number in range(2)))


@pytest.mark.parametrize(("last", "is_fine"), [("2025-01-01", False), ("2025-02-01", False), ("2025-02-02", True)])
def test_few_days_are_cells(load, last: str, is_fine: bool) -> None:
    declared = load(f"x: {{type: date, min: 2025-01-01, max: {last}}}")
    assert isinstance(declared.universe.attributes["x"], FineDate) == is_fine
    assert bool(declared.share(Early.DISCOVERY)) == is_fine
    if not is_fine:
        with pytest.raises(SpecError, match="has a `share`"):
            load(f"x: {{type: date, min: 2025-01-01, max: {last}, share: 0.1}}")


def test_trees_get_a_larger_share_if_few_rows_are_expected(load) -> None:
    columns = [f"x{number}: {{type: integer, min: 0, max: 9999}}" for number in range(5)]

    def share(expected: str, *, epsilon: float = 1.0, delta: str = "1e-9") -> Fraction:
        privacy = f"epsilon: {epsilon}, delta: {delta}, expect_rows: {expected}"
        return load(*columns, **{"epsilon: 1.0, delta: 1e-9": privacy}).share(Early.DISCOVERY)

    usual = load(*columns).share(Early.DISCOVERY)
    assert share("[500000, 2000000]") == usual
    assert usual < share("[3000, 12000]") < share("[2000, 8000]") == Fraction(1, 2)
    assert share("[30000, 120000]", epsilon=0.1) > usual  # a tenth of the budget is like a tenth of the rows
    assert share("[3000, 12000]", delta="0") == Fraction(1, 2)


def test_a_column_of_days_is_narrowed_to_the_blocks_of_a_run(load) -> None:
    declaration = load(
        "day: {type: date, min: 2025-01-01, max: 2025-12-31}",
        **{"workload:": "blocks: {column: day, every: month}\nworkload:"},
    )
    narrow = declaration.covering(["2025-02", "2025-03"])
    assert isinstance(narrow.universe.attributes["day"], Date)
    timed = load(
        "day: {type: datetime, min: 2025-01-01T00:00:00, max: 2025-12-31T23:00:00, step: hour}",
        **{"workload:": "blocks: {column: day, every: month}\nworkload:"},
    )
    assert isinstance(timed.covering(["2025-02"]).descents()["day"].candidates, FineDatetime)
    descent = narrow.descents()["day"].candidates
    assert isinstance(descent, FineDate)
    assert descent.places == 59

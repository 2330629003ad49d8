"""`persons` in a spec: what does not fit the unit or the universe is reported at its place."""

from fractions import Fraction
from pathlib import Path

import pytest

from dpcore.errors import SpecError
from dpcore.spec import load_spec
from dpcore.spec.shares import Early

SPEC = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: person, max_rows_per_unit: 4, neighbours: add-remove, epsilon: 1.0, delta: 1e-9}
persons: {rows_of: person, constant: [sex]}
universe:
  sex: {type: categorical, values: [F, M]}
  age: {type: integer, min: 0, max: 99, width: 10}
"""


def written(folder: Path, *changes: tuple[str, str]) -> Path:
    text = SPEC
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_persons_take_a_tenth_of_the_budget_unless_the_spec_says_otherwise(tmp_path: Path) -> None:
    declaration = load_spec(written(tmp_path))
    assert (declaration.share(Early.PERSONS), declaration.taken_before(Early.DISCOVERY), declaration.constant) == (
        Fraction(1, 10),
        Fraction(11, 100),
        ("sex",),
    )
    smaller = load_spec(written(tmp_path, ("[sex]", "[sex], share: 0.02")))
    assert smaller.share(Early.PERSONS) == Fraction(1, 50)
    assert smaller.digest != declaration.digest
    none = load_spec(written(tmp_path, ("persons: {rows_of: person, constant: [sex]}\n", "")))
    assert (none.share(Early.PERSONS), none.constant) == (0, ())


@pytest.mark.parametrize(
    ("change", "place", "said"),
    [
        (("rows_of: person", "rows_of: patient"), "4:11", "must name the unit, which is `person`"),
        (("unit: person, max_rows_per_unit: 4", "unit: row"), "4:11", "write `unit: person` and `max_rows_per_unit`"),
        (("max_rows_per_unit: 4", "max_rows_per_unit: 1"), "3:25", "there is nothing to keep together"),
        (("max_rows_per_unit: 4", "max_rows_per_unit: 300"), "3:25", "at most 256 rows of a person"),
        (("[sex]", "[sexx]"), "4:39", "`sexx` is not in the universe; did you mean `sex`?"),
        (("[sex]", "[sex, sex]"), "4:28", "names `sex` twice"),
        (("epsilon: 1.0", "weight: {column: w, max: 3}, epsilon: 1.0"), "4:1", "rows with a `weight`"),
        (("rows_of: person, ", ""), "4:1", "`rows_of` is missing; write `rows_of: patient_id`"),
        (("constant", "constants"), "4:28", "did you mean `constant`?"),
        (("[sex]", "[sex], share: 2"), "4:45", "`share` must be <= 0.9"),
    ],
)
def test_a_mistake_is_reported_at_its_place(tmp_path: Path, change: tuple[str, str], place: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(written(tmp_path, change))
    assert said in str(caught.value)
    assert f"spec.yaml:{place}: " in str(caught.value)


def test_shares_that_leave_too_little_for_the_release_are_refused(tmp_path: Path) -> None:
    found = "age: {type: integer, min: 0, max: 99, discover: {bins: 5, share: 0.85}}"
    with pytest.raises(SpecError, match=r"together take 0\.95 of the budget; write a smaller `share`"):
        load_spec(written(tmp_path, ("age: {type: integer, min: 0, max: 99, width: 10}", found)))

"""Constraints: which combinations of codes they allow."""

from datetime import date

import numpy as np
import pytest

from dpcore.errors import SpecError
from dpcore.universe import Boolean, Categorical, Date, Every, Integer, Number, Outside, Universe
from dpcore.universe.constraints import Condition, Implication, Listed, Violations

DROP = Violations.DROP
SEX = Categorical(("F", "M"), missing=True, outside=Outside.OTHER)
AGE = Integer(minimum=0, maximum=99, width=10, missing=True)
MONTH = Date(minimum=date(2025, 1, 15), maximum=date(2025, 4, 30), every=Every.MONTH)


def test_a_condition_on_values_takes_them_by_their_canonical_text() -> None:
    assert Condition("sex", ("M", None)).cells(SEX).tolist() == [False, True, False, True]
    assert Condition("sex", ("other",)).cells(SEX).tolist() == [False, False, True, False]
    assert Condition("grade", (1.0,)).cells(Categorical((1, 2))).tolist() == [True, False]
    assert Condition("smoker", (True,)).cells(Boolean()).tolist() == [False, True]


def test_a_range_takes_whole_bins_and_no_nulls() -> None:
    assert np.flatnonzero(Condition("age", low=20, high=39).cells(AGE)).tolist() == [2, 3]
    assert np.flatnonzero(Condition("age", high=9).cells(AGE)).tolist() == [0]
    assert np.flatnonzero(Condition("age", low=90).cells(AGE)).tolist() == [9]
    assert np.flatnonzero(Condition("at", low="2025-02-01", high="2025-03-31").cells(MONTH)).tolist() == [1, 2]
    assert np.flatnonzero(Condition("x", low=1, high=2).cells(Number((0, 1, 2, 3)))).tolist() == [1]
    assert Condition("n", (3,)).cells(Integer(minimum=2, maximum=4)).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("condition", "attribute", "told"),
    [
        (Condition("sex", ("X",)), SEX, "`sex` has no value 'X'; its values are 'F', 'M', 'other'"),
        (Condition("smoker", (None,)), Boolean(), "`smoker` has no nulls; write `missing: true`"),
        (Condition("age", low=15), AGE, r"the range of `age` cuts its bin \[10, 20\) in two"),
        (Condition("age", (15,)), AGE, "cuts its bin"),
        (Condition("age", ("old",)), AGE, "'old' is not a number; write a number such as 17"),
        (Condition("at", low="2025-02-10"), MONTH, "cuts its bin 2025-02"),
        (Condition("at", low=5), MONTH, "5 is not a date; write one such as 2025-01-31"),
        (Condition("sex", low=3), SEX, "no order"),
    ],
)
def test_a_condition_that_does_not_suit_its_column_is_refused(
    condition: Condition, attribute: Integer, told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        condition.cells(attribute)


def test_an_implication_has_a_table_for_each_consequence() -> None:
    wife = Implication(
        when=(Condition("relation", ("wife",)),),
        then=(Condition("sex", ("F",)), Condition("married", (True,))),
        violations=DROP,
    )
    attributes = {"sex": SEX, "married": Boolean(), "relation": Categorical(("wife", "own"))}
    tables = dict(wife.tables(attributes))
    assert tables["relation", "sex"].tolist() == [[True, False, False, False], [True] * 4]
    assert tables["relation", "married"].tolist() == [[False, True], [True, True]]
    assert wife.columns == ("relation", "sex", "married")


def test_a_universe_joins_the_tables_of_the_same_columns_in_its_own_order() -> None:
    attributes = {"a": Boolean(), "b": Boolean()}
    first = Implication(when=(Condition("b", (True,)), Condition("a", (False,))), violations=DROP)
    second = Listed(listed=("b", "a"), rows=(((False,), (False, True)), ((True,), (True, False))), violations=DROP)
    universe = Universe(attributes, (first, second))
    assert {axes: table.tolist() for axes, table in universe.possible.items()} == {
        (0, 1): [[True, False], [True, True]]
    }
    assert universe != Universe(attributes)
    assert universe.with_attributes({"a": Boolean(missing=True)}).constraints == universe.constraints


def test_a_constraint_on_too_many_cells_is_refused() -> None:
    wide = Categorical(tuple(f"v{number}" for number in range(3000)))
    listed = Listed(listed=("a", "b"), rows=((("v0",), ("v0",)),), violations=DROP)
    with pytest.raises(SpecError, match="`a` and `b` have 9,000,000 combinations of cells"):
        list(listed.tables({"a": wide, "b": wide}))

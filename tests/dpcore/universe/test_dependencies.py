"""Columns that determine others: the function that noisy counts suggest, what it excludes, and what it leaves open."""

from datetime import date
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import SpecError
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.zeros import Zeros
from dpcore.universe import Boolean, Categorical, Date, Every, Integer, Outside, Universe
from dpcore.universe.constraints import Condition, Constraint, Implication, Violations
from dpcore.universe.dependencies import UNDETERMINED, Depends

COLUMNS = {
    "city": Categorical(("Austin", "Boston", "Reno"), outside=Outside.OTHER, missing=True),
    "capital": Boolean(),
    "state": Categorical(("MA", "NV", "TX"), missing=True),
}
COUNTS = np.array([[1, 0, 80, 5], [90, 3, -2, 99], [0, 2, 1, 0], [30, 30, 30, 0], [9, 1, 4, 0]])


def depends(*columns: str) -> Depends:
    return Depends(given=columns[:-1], determined=columns[-1], share=Fraction(1, 20), violations=Violations.DROP)


def test_each_value_determines_the_most_frequent_one_and_nulls_and_other_determine_nothing() -> None:
    learned = depends("city", "state").learned(COUNTS, None, COLUMNS)
    assert learned.codes == (2, 0, 1)
    assert learned.rows(COLUMNS) == (("Austin", "TX"), ("Boston", "MA"), ("Reno", "NV"))
    assert learned.restored(learned.rows(COLUMNS), COLUMNS) == learned
    (axes, possible), *_ = Universe(COLUMNS, (learned,)).possible.items()
    assert axes == (0, 2)
    assert possible.astype(int).tolist() == [[0, 0, 1, 1], [1, 0, 0, 1], [0, 1, 0, 1], [1] * 4, [1] * 4]


def test_before_it_is_learned_everything_is_possible() -> None:
    ((_, possible),) = Universe(COLUMNS, (depends("city", "state"),)).possible.items()
    assert possible.all()


def test_the_counts_that_stand_out_clearly_are_counted() -> None:
    dependency = depends("city", "state")
    assert dependency.clear(COUNTS, None, COLUMNS, noise=10.0) == 2
    assert dependency.clear(COUNTS, None, COLUMNS, noise=50.0) == 0
    possible = np.ones(COUNTS.shape, dtype=np.bool_)
    possible[0] = False  # no row has this city, so nothing is told about it
    possible[2, 1:] = False  # only one state is left
    assert dependency.clear(COUNTS, possible, COLUMNS, noise=10.0) == 2
    assert len(dependency.learned(COUNTS, possible, COLUMNS).rows(COLUMNS)) == 2


def test_several_columns_determine_one_in_any_order_of_the_universe() -> None:
    counts = np.zeros((2, 5, 4), dtype=np.int64)
    counts[1, :, 0], counts[0, :, 2] = 50, 40
    learned = depends("capital", "city", "state").learned(counts, None, COLUMNS)
    assert learned.codes == (2, 2, 2, 0, 0, 0)
    ((axes, possible),) = Universe(COLUMNS, (learned,)).possible.items()
    assert axes == (0, 1, 2)
    assert possible[0].astype(int).tolist() == [[0, 0, 1, 1], [1, 0, 0, 1]]
    assert possible[3:].all()


def test_a_function_takes_only_what_other_constraints_allow() -> None:
    fact = Implication(when=(Condition("city", ("Austin",)), Condition("state", ("TX",))), violations=Violations.DROP)
    never = Implication(when=(Condition("city", ("Reno",)),), violations=Violations.DROP)
    universe = Universe(COLUMNS, (fact, never))
    possible = Zeros(universe.possible).support((0, 2), Resolutions(universe.shape))
    assert depends("city", "state").learned(COUNTS, possible, COLUMNS).codes == (0, 0, UNDETERMINED)


def test_the_determined_column_has_one_value_in_each_cell() -> None:
    with pytest.raises(SpecError, match="the bins of `x` have several values"):
        _ = Universe({**COLUMNS, "x": Integer(minimum=0, maximum=9, width=5)}, (depends("city", "x"),)).possible
    months = Date(minimum=date(2025, 1, 1), maximum=date(2025, 3, 31), every=Every.MONTH)
    for column in (months, Integer(minimum=0, maximum=9)):  # of a month, only the first day is released
        assert Universe({**COLUMNS, "x": column}, (depends("city", "x"),)).possible[0, 3].all()


@pytest.mark.parametrize("circle", [("ab", "ba"), ("ab", "bc", "ca"), ("ab", "cd", "da", "bc")])
def test_dependencies_form_no_circle(circle: tuple[str, ...]) -> None:
    columns = dict.fromkeys("abcd", Boolean())
    with pytest.raises(SpecError, match="form a circle; remove one of them"):
        _ = Universe(columns, tuple(depends(*each) for each in circle)).possible
    _ = Universe(columns, tuple(depends(*each) for each in circle[:-1])).possible


@pytest.mark.parametrize(
    "others",
    [
        [depends("b", "c")],
        [depends("a", "c")],
        [Implication(when=(Condition("c", (True,)), Condition("d", (True,))), violations=Violations.DROP)],
    ],
    ids=["determined twice", "declared twice", "in a fact"],
)
def test_a_determined_column_is_in_no_other_constraint_unless_it_determines_one(others: list[Constraint]) -> None:
    columns = dict.fromkeys("abcd", Boolean())
    with pytest.raises(SpecError, match=r"`c` is determined by `.`, so it cannot be in another constraint"):
        _ = Universe(columns, (depends("a", "c"), *others)).possible
    _ = Universe(columns, (depends("a", "c"), depends("c", "d"), depends("a", "b"))).possible

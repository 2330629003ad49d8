"""Columns of several releases together: no row is lost, and each goes to the cell that has its value."""

from datetime import date

import numpy as np
import pytest

from dpcore.answers.joined import joined_attribute, moved
from dpcore.errors import UsageError
from dpcore.universe import Attribute, Boolean, Categorical, Date, Every, Integer
from dpcore.universe.attribute import Outside
from dpcore.universe.fine_days import FineDate
from dpcore.universe.fine_numbers import FineInteger
from dpcore.universe.leaves import Leaves


def month(number: int, **more: object) -> Date:
    return Date(minimum=date(2026, number, 1), maximum=date(2026, number, 28), every=Every.WEEK, **more)  # type: ignore[arg-type]


def fine(starts: tuple[int, ...], leaves: Leaves) -> FineInteger:
    return FineInteger(minimum=10, maximum=109).cut_at(starts, leaves=leaves)


def fine_month(number: int) -> FineDate:
    column = FineDate(minimum=date(2026, number, 1), maximum=date(2026, number, 28))
    return column.cut_at((14,), leaves=Leaves((0, 7, 14), (1000, 0, 3000), 28))


COLUMNS: dict[str, list[Attribute]] = {
    "categories": [
        Categorical(("a", "b"), missing=True, outside=Outside.OTHER),
        Categorical(("c", "b"), missing=True, outside=Outside.OTHER),
    ],
    "weeks": [month(2, missing=True), month(3, missing=True)],
    "numbers": [
        fine((5, 50), Leaves((0, 5, 50), (1000, 2000, 0), 100)),
        fine((20,), Leaves((0, 20, 60), (500, 500, 1000), 100)),
    ],
    "days": [fine_month(1), fine_month(2)],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_every_cell_of_every_release_lies_in_the_sum_as_a_whole(name: str) -> None:
    together = joined_attribute(name, COLUMNS[name])
    for attribute in COLUMNS[name]:
        parts = moved(attribute, to=together)
        assert parts.shape == (together.size, attribute.size)
        assert (parts >= 0).all()
        assert parts.sum(axis=0) == pytest.approx(np.ones(attribute.size))


def test_categories_keep_their_values_and_other_and_missing_stay_what_they_are() -> None:
    first, last = COLUMNS["categories"]
    together = joined_attribute("city", [first, last])
    assert isinstance(together, Categorical)
    assert together.values == ("a", "b", "c")
    assert moved(last, to=together).argmax(axis=0).tolist() == [2, 1, 3, 4]


def test_days_of_different_months_lie_one_after_the_other() -> None:
    together = joined_attribute("day", COLUMNS["weeks"])
    first, last = (moved(attribute, to=together)[:-1, :-1] for attribute in COLUMNS["weeks"])
    assert isinstance(together, Date)
    assert (together.minimum, together.maximum) == (date(2026, 2, 1), date(2026, 3, 28))
    assert np.flatnonzero(first.any(axis=1)).max() <= np.flatnonzero(last.any(axis=1)).min()


def test_leaves_add_up_and_a_cell_is_moved_in_parts() -> None:
    together = joined_attribute("cost", COLUMNS["numbers"])
    assert isinstance(together, FineInteger)
    assert together.leaves is not None
    assert sum(together.leaves.masses) == 5000
    assert together.starts == (20,)
    # The second cell of the first release has its 2000 thousandths evenly between 5 and 50, of which a third lies below 20.
    assert moved(COLUMNS["numbers"][0], to=together)[:, 1].tolist() == pytest.approx([1 / 3, 2 / 3])


def test_leaves_of_days_are_put_where_their_month_is() -> None:
    together = joined_attribute("day", COLUMNS["days"])
    assert isinstance(together, FineDate)
    assert together.leaves is not None
    assert together.places == 59
    held = dict(zip(together.leaves.starts, together.leaves.masses, strict=True))
    assert (held[0], held[14], held[31], held[31 + 14]) == (1000, 3000, 1000, 3000)
    assert held.get(28, 0) == 0  # nobody has released the last days of January


def test_a_column_that_was_declared_otherwise_is_refused() -> None:
    for attribute in (Boolean(), Integer(minimum=0, maximum=9, missing=True)):
        with pytest.raises(
            UsageError, match=r"age was declared otherwise in some of the releases; ask about the periods before"
        ):
            joined_attribute("age", [attribute, Integer(minimum=0, maximum=9)])

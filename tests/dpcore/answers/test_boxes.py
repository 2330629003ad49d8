"""A condition is divided into disjoint boxes that together are where it is true, whatever is unknown in it."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpcore.answers import boxes
from dpcore.answers.boxes import boxes_of
from dpcore.answers.evaluate import Prepared
from dpcore.answers.query import All, AnyOf, Compare, Condition, Count, IsNull, IsTrue, Not, Output, Query, Term
from dpcore.errors import UsageError
from dpcore.universe import Boolean, Categorical, Integer, Universe
from tests.dpcore.answers.joint import truth

UNIVERSE = Universe(
    {
        "sex": Categorical(("F", "M"), missing=True),
        "age": Integer(minimum=0, maximum=19, width=5, missing=True),
        "smoker": Boolean(),
    }
)
ELEMENTARY = st.one_of(
    st.builds(lambda axis: IsNull(Term(axis)), st.integers(0, 2)),
    st.builds(lambda value: Compare(Term(0), "=", value), st.sampled_from(["F", "M"])),
    st.builds(lambda op, value: Compare(Term(1), op, value), st.sampled_from(["<", ">=", "="]), st.integers(0, 20)),
    st.just(Compare(Term(2), "=", True)),
)
CONDITIONS = st.recursive(
    ELEMENTARY,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(IsTrue, inner),
        st.builds(lambda parts: All(tuple(parts)), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: AnyOf(tuple(parts)), st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=8,
)


@given(CONDITIONS)
@example(Not(IsTrue(All((Compare(Term(0), "=", "F"), Compare(Term(1), "<", 5))))))  # unknown by its second column alone
def test_boxes_are_disjoint_and_are_where_the_condition_is_true(condition: Condition) -> None:
    prepared = Prepared(Query((Output("n", Count(condition)),)), UNIVERSE)
    columns = {axis: prepared.column(axis) for axis in range(3)}
    shape = tuple(column.pieces for column in columns.values())
    inside = np.zeros(shape, dtype=np.int64)
    for box in boxes_of(condition, prepared.column):
        allowed = [box.get(axis, np.ones(column.pieces, dtype=np.bool_)) for axis, column in columns.items()]
        inside += reduce(np.logical_and.outer, allowed)
    assert np.array_equal(inside, np.broadcast_to(truth(condition, columns) == 2, shape))


def test_a_conjunction_is_one_box_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = Universe({f"q{at}": Boolean(missing=True) for at in range(40)})
    parts = tuple(Compare(Term(at), "=", True) for at in range(40))
    assert len(boxes_of(All(parts), Prepared(Query((Output("n", Count(All(parts))),)), flags).column)) == 1
    either = AnyOf(parts)
    column = Prepared(Query((Output("n", Count(either)),)), flags).column
    assert len(boxes_of(either, column)) == 40
    assert len(boxes_of(Not(either), column)) == 1
    monkeypatch.setattr(boxes, "MOST_BOXES", 30)
    with pytest.raises(UsageError, match="joins too many columns with `or`"):
        boxes_of(either, column)

"""The universe as a whole: its shape, what it keeps of a table, and the way there and back."""

import io
import pickle
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import SpecError, UsageError
from dpcore.tables.reading.encoding import encode_rows
from dpcore.universe import Attribute, Boolean, Categorical, Date, Datetime, Every, Integer, Number, Outside, Universe

TEXT_TYPE = pa.dictionary(pa.int32(), pa.string())


def categoricals(policy):
    texts = (
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
        | st.just("other")
        | st.just("missing")
    )
    kinds = [texts, st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.booleans()]
    values = st.one_of(*(st.lists(kind, min_size=1, max_size=6, unique=True).map(tuple) for kind in kinds))
    return st.builds(Categorical, values, **policy)


@st.composite
def integers(draw, policy):
    minimum = draw(st.integers(-(2**53), 2**53 - 2000))
    span, width = draw(st.integers(0, 1999)), draw(st.integers(1, 700))
    return Integer(
        minimum=minimum, maximum=minimum + span, width=width, **{key: draw(value) for key, value in policy.items()}
    )


def numbers(policy):
    edges = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=8, unique=True)
    return st.builds(Number, edges.map(lambda found: tuple(sorted(found))), **policy)


@st.composite
def dates(draw, policy):
    every = draw(st.sampled_from([Every.DAY, Every.WEEK, Every.MONTH, Every.QUARTER, Every.YEAR]))
    minimum = draw(st.dates(max_value=date(9990, 1, 1)))
    maximum = minimum + timedelta(days=draw(st.integers(0, 900)))
    return Date(minimum=minimum, maximum=maximum, every=every, **{key: draw(value) for key, value in policy.items()})


@st.composite
def datetimes(draw, policy):
    every = draw(st.sampled_from(list(Every)))
    minimum = draw(st.datetimes(max_value=datetime(9990, 1, 1))).replace(microsecond=0)
    maximum = minimum + timedelta(seconds=draw(st.integers(0, 60_000 if every is Every.MINUTE else 3_000_000)))
    return Datetime(
        minimum=minimum, maximum=maximum, every=every, **{key: draw(value) for key, value in policy.items()}
    )


def attributes() -> st.SearchStrategy[Attribute]:
    named = {"missing": st.booleans(), "outside": st.sampled_from([Outside.OTHER, Outside.DROP])}
    ordered = {"missing": st.booleans(), "outside": st.sampled_from(list(Outside))}
    return st.one_of(
        categoricals(named),
        st.builds(Boolean, **named),
        integers(ordered),
        numbers(ordered),
        dates(ordered),
        datetimes(ordered),
    )


universes = st.lists(attributes(), min_size=1, max_size=5).map(
    lambda found: Universe({f"c{i}": a for i, a in enumerate(found)})
)


@st.composite
def coded(draw):
    universe = draw(universes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = draw(st.integers(0, 50))
    return universe, tuple(rng.integers(0, size, rows) for size in universe.shape), rng


def after_a_round_trip(attribute: Attribute, codes):
    """Where codes come back to: themselves, but that an `other` without a text was released as a null."""
    if attribute.missing and attribute.other_cell == attribute.cells and attribute.arrow_type != TEXT_TYPE:
        return np.where(codes == attribute.other_cell, attribute.missing_cell, codes)
    return codes


@settings(deadline=None)
@given(coded())
def test_what_was_decoded_encodes_to_the_same_cells(case):
    universe, codes, rng = case
    table = universe.decode(codes, rng)
    assert table.schema == universe.schema
    assert table.num_rows == len(codes[0])
    table.validate(full=True)
    found, keep = encode_rows(universe, table)
    assert keep.all()
    for attribute, before, after in zip(universe.attributes.values(), codes, found, strict=True):
        np.testing.assert_array_equal(after, after_a_round_trip(attribute, before))
        assert len(set(attribute.labels)) == len(attribute.labels) == attribute.size
    file = io.BytesIO()
    pq.write_table(table, file)
    assert pq.read_table(file).equals(table)
    copy = pickle.loads(pickle.dumps(universe))  # noqa: S301  our own bytes
    assert (copy, hash(copy)) == (universe, hash(universe))


def test_a_universe_is_the_ordered_product_of_its_columns():
    a, b = Boolean(outside=Outside.OTHER), Integer(minimum=0, maximum=999_999)
    declared = {"a": a, **{f"b{number}": b for number in range(5)}}
    universe = Universe(declared)
    declared["c"] = a
    assert universe.names == ("a", "b0", "b1", "b2", "b3", "b4")
    assert (universe.shape[:2], universe.size) == ((3, 10**6), 3 * 10**30)
    assert universe.schema == pa.schema([("a", pa.bool_()), *((f"b{number}", pa.int64()) for number in range(5))])
    assert Universe({"a": a, "b": b}) == Universe({"a": Boolean(outside=Outside.OTHER), "b": b})
    assert Universe({"a": a, "b": b}) not in (Universe({"b": b, "a": a}), "a")
    codes = [np.zeros(20, dtype=np.int64)] * 6
    first, second = (universe.decode(codes, np.random.default_rng(5)) for _ in range(2))
    assert first.equals(second)


@pytest.mark.parametrize("declared", [{}, {"": Boolean()}, {3: Boolean()}])
def test_a_universe_without_columns_or_names_is_refused(declared):
    with pytest.raises(SpecError):
        Universe(declared)


@pytest.mark.parametrize("codes", [[[0]], [[0], [0, 1]], [[0], [0], [0]]])
def test_codes_that_do_not_make_rows_are_refused(codes):
    universe = Universe({"a": Boolean(), "b": Boolean()})
    with pytest.raises(UsageError, match="2 arrays"):
        universe.decode([np.array(column) for column in codes], np.random.default_rng(0))

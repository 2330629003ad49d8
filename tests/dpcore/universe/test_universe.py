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

from dpcore.errors import SourceError, SpecError, UsageError
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
    found, keep = universe.encode_rows(table)
    assert keep.all()
    for attribute, before, after in zip(universe.attributes.values(), codes, found, strict=True):
        np.testing.assert_array_equal(after, after_a_round_trip(attribute, before))


@settings(deadline=None)
@given(coded())
def test_a_release_survives_parquet(case):
    universe, codes, rng = case
    table = universe.decode(codes, rng)
    file = io.BytesIO()
    pq.write_table(table, file)
    assert pq.read_table(file).equals(table)


@settings(deadline=None)
@given(attributes())
def test_every_code_has_its_own_label(attribute):
    assert len(attribute.labels) == attribute.size
    assert len(set(attribute.labels)) == attribute.size


@settings(deadline=None)
@given(universes)
def test_a_universe_survives_pickling(universe):
    copy = pickle.loads(pickle.dumps(universe))  # noqa: S301  our own bytes
    assert copy == universe
    assert hash(copy) == hash(universe)


CLINIC = Universe(
    {
        "sex": Categorical(("F", "M"), missing=True),
        "age": Integer(minimum=0, maximum=99, width=5),
        "cost": Number((0, 100, 500, 2000, 10000)),
        "visit": Date(minimum=date(2025, 1, 1), maximum=date(2026, 12, 31), every=Every.MONTH),
        "smoker": Boolean(outside=Outside.OTHER),
    }
)


def test_shape_and_size_count_the_cells_for_other_and_missing():
    assert CLINIC.names == ("sex", "age", "cost", "visit", "smoker")
    assert CLINIC.shape == (3, 20, 4, 24, 3)
    assert CLINIC.size == 3 * 20 * 4 * 24 * 3


def test_a_size_beyond_64_bits_is_exact():
    wide = Universe({f"c{i}": Integer(minimum=0, maximum=999_999) for i in range(5)})
    assert wide.size == 10**30


def test_the_schema_has_the_declared_types_in_order():
    assert CLINIC.schema == pa.schema(
        [
            ("sex", TEXT_TYPE),
            ("age", pa.int64()),
            ("cost", pa.float64()),
            ("visit", pa.date32()),
            ("smoker", pa.bool_()),
        ]
    )


def test_a_row_that_one_attribute_drops_is_dropped_from_all_and_from_the_mask():
    table = pa.table(
        {
            "id": [1, 2, 3, 4],
            "smoker": ["yes", "no", "perhaps", None],
            "visit": ["2025-03-01", "2025-02-28", "never", "2030-01-01"],
            "cost": [50.0, 100.0, 1.0, float("inf")],
            "age": [7, 99, 1, -3],
            "sex": ["F", "X", "M", None],
        }
    )
    codes, keep = CLINIC.encode_rows(table)
    assert keep.tolist() == [True, False, False, True]
    assert [column.tolist() for column in codes] == [[0, 2], [1, 0], [0, 3], [2, 23], [1, 2]]
    assert table.column("id").filter(pa.array(keep)).to_pylist() == [1, 4]
    for column, again in zip(codes, CLINIC.encode(table), strict=True):
        np.testing.assert_array_equal(column, again)
        assert column.dtype == np.uint8


def test_an_empty_table_encodes_to_nothing():
    codes, keep = CLINIC.encode_rows(CLINIC.schema.empty_table())
    assert [len(column) for column in codes] == [0] * 5
    assert len(keep) == 0


def test_order_is_part_of_what_a_universe_is():
    a, b = Boolean(), Integer(minimum=0, maximum=1)
    assert Universe({"a": a, "b": b}) == Universe({"a": Boolean(), "b": b})
    assert Universe({"a": a, "b": b}) != Universe({"b": b, "a": a})
    assert Universe({"a": a}) != "a"


def test_a_universe_does_not_follow_the_mapping_it_was_made_from():
    declared = {"a": Boolean()}
    universe = Universe(declared)
    declared["b"] = Boolean()
    assert universe.names == ("a",)


def test_the_same_seed_draws_the_same_rows():
    codes = [np.zeros(20, dtype=np.int64)] * 5
    first, second = (CLINIC.decode(codes, np.random.default_rng(5)) for _ in range(2))
    assert first.equals(second)


@pytest.mark.parametrize("declared", [{}, {"": Boolean()}, {3: Boolean()}])
def test_a_universe_without_columns_or_names_is_refused(declared):
    with pytest.raises(SpecError):
        Universe(declared)


@pytest.mark.parametrize("names", [["a"], ["a", "b", "b"]])
def test_a_table_without_exactly_one_of_each_column_is_refused_by_name(names):
    universe = Universe({"a": Boolean(), "b": Boolean()})
    table = pa.Table.from_arrays([pa.array(["poison"])] * len(names), names=names)
    with pytest.raises(SourceError, match="'b'") as refusal:
        universe.encode(table)
    assert "poison" not in str(refusal.value)


@pytest.mark.parametrize("codes", [[[0]], [[0], [0, 1]], [[0], [0], [0]]])
def test_codes_that_do_not_make_rows_are_refused(codes):
    universe = Universe({"a": Boolean(), "b": Boolean()})
    with pytest.raises(UsageError, match="2 arrays"):
        universe.decode([np.array(column) for column in codes], np.random.default_rng(0))

"""The policy for values without a cell, on every kind of attribute, and what decode accepts and draws."""

from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import chisquare

from dpcore.errors import SpecError, UsageError
from dpcore.universe import Boolean, Categorical, Date, Datetime, Every, Integer, Number, Outside
from dpcore.universe.attribute import MAX_CELLS

FIRST, LAST, OTHER, MISSING, DROP = "first", "last", "other", "missing", -1

# Null, below, above, alien: what becomes of them. This is the contract, written out.
POLICY = {
    (Outside.CLIP, True): (MISSING, FIRST, LAST, MISSING),
    (Outside.CLIP, False): (DROP, FIRST, LAST, DROP),
    (Outside.OTHER, True): (MISSING, OTHER, OTHER, OTHER),
    (Outside.OTHER, False): (OTHER, OTHER, OTHER, OTHER),
    (Outside.DROP, True): (MISSING, DROP, DROP, DROP),
    (Outside.DROP, False): (DROP, DROP, DROP, DROP),
}


def expected(attribute):
    meaning = {
        FIRST: 0,
        LAST: attribute.cells - 1,
        OTHER: attribute.cells,
        MISSING: attribute.size - 1,
        DROP: -1,
    }
    return [meaning[place] for place in POLICY[attribute.outside, attribute.missing]]


ORDERED = {
    "integer": lambda **policy: Integer(minimum=0, maximum=99, width=10, **policy),
    "number": lambda **policy: Number((0, 1, 50, 99), **policy),
    "date": lambda **policy: Date(minimum=date(2025, 1, 1), maximum=date(2025, 12, 31), every=Every.MONTH, **policy),
    "datetime": lambda **policy: Datetime(
        minimum=datetime(2025, 1, 1), maximum=datetime(2025, 12, 31), every=Every.WEEK, **policy
    ),
}
# Null, below, above, alien, as text and as whatever native type has all or some of them.
STRANGE = {
    "integer": [["", "-1", "100", "ten"], [None, "-1e999", "1e999", "1_0"]],
    "number": [["", "-0.1", "99.1", "ten"], ["nan", "-inf", "inf", "0x10"]],
    "date": [["", "2024-12-31", "2026-01-01", "2025-02-30"], ["NaT", "0001-01-01", "9999-12-31", "2025"]],
    "datetime": [
        ["", "2024-12-31T23:59:59", "2025-12-31T00:00:01", "2025-01-01T24:61:00"],
        [" ", "1000-01-01", "3000-01-01", "x"],
    ],
}


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("outside", list(Outside))
@pytest.mark.parametrize("kind", list(ORDERED))
def test_an_ordered_attribute_follows_the_policy(kind, outside, missing):
    attribute = ORDERED[kind](outside=outside, missing=missing)
    for values in STRANGE[kind]:
        assert attribute.encode(pa.array(values)).tolist() == expected(attribute)


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("outside", [Outside.OTHER, Outside.DROP])
@pytest.mark.parametrize("make", [lambda **policy: Categorical(("a", "b"), **policy), Boolean])
def test_an_unordered_attribute_follows_the_policy(make, outside, missing):
    attribute = make(outside=outside, missing=missing)
    null, _, _, alien = expected(attribute)
    assert attribute.encode(pa.array([None, "", "undeclared"])).tolist() == [null, null, alien]
    assert attribute.encode(pa.array([float("nan"), 7.5])).tolist() == [null, alien]


@pytest.mark.parametrize("make", [lambda **policy: Categorical(("a", "b"), **policy), Boolean])
def test_names_cannot_be_clipped(make):
    with pytest.raises(SpecError, match="other or drop"):
        make(outside=Outside.CLIP)


@pytest.mark.parametrize("kind", list(ORDERED))
def test_a_policy_that_does_not_exist_is_refused(kind):
    with pytest.raises(SpecError, match="Outside"):
        ORDERED[kind](outside="ignore")


@pytest.mark.parametrize("kind", list(ORDERED))
def test_only_bins_have_an_order(kind):
    assert ORDERED[kind]().ordered
    assert not Boolean().ordered
    assert not Categorical(("a",)).ordered


def test_codes_for_other_and_missing_follow_the_declared_cells():
    attribute = ORDERED["integer"](outside=Outside.OTHER, missing=True)
    assert (attribute.cells, attribute.other_cell, attribute.missing_cell, attribute.size) == (10, 10, 11, 12)
    assert attribute.labels[9:] == ("[90, 100)", "other", "missing")
    assert (Boolean().other_cell, Boolean().missing_cell, Boolean().size) == (None, None, 2)


@pytest.mark.parametrize("kind", list(ORDERED))
def test_other_and_missing_decode_to_null(kind):
    attribute = ORDERED[kind](outside=Outside.OTHER, missing=True)
    codes = np.array([attribute.other_cell, 0, attribute.missing_cell], dtype=np.int16)
    decoded = attribute.decode(codes, np.random.default_rng(0))
    assert decoded.is_null().to_pylist() == [True, False, True]
    assert decoded.type == attribute.arrow_type


@pytest.mark.parametrize("code", [-1, 2])
def test_decode_refuses_codes_that_are_none(code):
    for attribute in (Boolean(), Categorical(("a", "b")), Categorical((1, 2))):
        with pytest.raises(UsageError, match="0 to 1"):
            attribute.decode(np.array([0, code]), np.random.default_rng(0))


def test_nothing_decodes_to_nothing():
    for make in ORDERED.values():
        assert len(make().decode(np.array([], dtype=np.int64), np.random.default_rng(0))) == 0


@pytest.mark.parametrize("bounds", [{"maximum": MAX_CELLS}, {"maximum": 2**53}])
def test_more_cells_than_any_model_could_hold_are_refused(bounds):
    with pytest.raises(SpecError, match="wider bins"):
        Integer(minimum=0, **bounds)
    assert Integer(minimum=0, maximum=MAX_CELLS - 1).cells == MAX_CELLS


@pytest.mark.parametrize(
    ("attribute", "code", "values"),
    [
        (Integer(minimum=0, maximum=99, width=10), 3, np.arange(30, 40)),
        (Integer(minimum=0, maximum=94, width=10), 9, np.arange(90, 95)),
    ],
)
def test_values_are_drawn_uniformly_from_their_cell(attribute, code, values):
    drawn = attribute.decode(np.full(20_000, code), np.random.default_rng(1))
    counts = np.unique(drawn.to_numpy(zero_copy_only=False), return_counts=True)[1]
    assert len(counts) == len(values)
    assert chisquare(counts).pvalue > 1e-6
    skewed = counts.copy()
    skewed[0] -= counts[0] // 5  # negative control: one value drawn a fifth too rarely
    assert chisquare(skewed).pvalue < 1e-6

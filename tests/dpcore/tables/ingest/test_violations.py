"""Private rows that violate a constraint: dropped or repaired by themselves, whatever other rows hold."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.privacy.protection import Neighbours, Protection
from dpcore.tables.ingest import Coding, Draws
from dpcore.tables.ingest.violations import Rules
from dpcore.universe import Boolean, Categorical, Integer, Universe
from dpcore.universe.constraints import Condition, Constraint, Implication, Listed, Violations
from dpcore.universe.fine_numbers import FineInteger
from dpcore.universe.sums import Sum

BY_ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE, weight=None, row_weight=1)
ATTRIBUTES = {
    "sex": Categorical(("F", "M")),
    "pregnant": Boolean(missing=True),
    "relation": Categorical(("wife", "husband", "own")),
    "age": Integer(minimum=0, maximum=99, width=10),
}


def facts(policy: Violations) -> tuple[Constraint, ...]:
    return (
        Implication(when=(Condition("sex", ("M",)), Condition("pregnant", (True,))), violations=policy),
        Implication(when=(Condition("relation", ("wife",)),), then=(Condition("sex", ("F",)),), violations=policy),
        Implication(
            when=(Condition("relation", ("wife", "husband")),), then=(Condition("age", low=20),), violations=policy
        ),
        Listed(
            listed=("sex", "relation"),
            rows=((("F",), ("wife", "own")), (("M",), ("husband", "own"))),
            violations=policy,
        ),
    )


def coded(
    rows: list[tuple[object, ...]], policy: Violations, universe: Universe | None = None
) -> list[tuple[int, ...]]:
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in zip(*rows, strict=True)], names=list(ATTRIBUTES))
    whole = Universe(ATTRIBUTES, facts(policy))
    coding = Coding(universe=universe or whole, protection=BY_ROW, window=None, rules=Rules.of(whole))
    made = coding.code(batch, draws=Draws(bytes(32)), piece=0, start=0)
    return list(zip(*(each.tolist() for each in made.codes), strict=True))


ROWS = [
    ("F", True, "wife", 31),  # possible
    ("M", True, "own", 31),
    ("M", False, "wife", 31),
    ("F", None, "wife", 5),
    ("M", None, "husband", 99),  # possible
]


def test_violating_rows_are_dropped() -> None:
    assert coded(ROWS, Violations.DROP) == [(0, 1, 0, 3), (1, 2, 1, 9)]


def test_the_last_named_column_is_repaired_to_a_null_or_else_to_the_nearest_possible_cell() -> None:
    assert coded(ROWS, Violations.REPAIR) == [
        (0, 1, 0, 3),
        (1, 2, 2, 3),  # pregnant: null
        (0, 0, 0, 3),  # sex: F, since a wife is
        (0, 2, 0, 2),  # age: the nearest bin from 20 on
        (1, 2, 1, 9),
    ]


def test_a_row_whose_repair_violates_another_constraint_is_dropped() -> None:
    first = Implication(
        when=(Condition("sex", ("M",)),), then=(Condition("age", low=90),), violations=Violations.REPAIR
    )
    second = Implication(
        when=(Condition("age", low=90),), then=(Condition("sex", ("F",)),), violations=Violations.REPAIR
    )
    third = Implication(
        when=(Condition("relation", ("own",)),), then=(Condition("sex", ("M",)),), violations=Violations.REPAIR
    )
    universe = Universe(ATTRIBUTES, (first, second, third))
    batch = pa.RecordBatch.from_pydict(
        {"sex": ["M", "M"], "pregnant": [None, None], "relation": ["own", "wife"], "age": [1, 1]}
    )
    rules = Rules.of(universe)
    assert rules is not None
    codes = rules.read(batch, universe)
    assert min(codes["sex"][0], codes["age"][0], codes["relation"][0]) == -1
    assert (codes["sex"][1], codes["age"][1]) == (0, 9)


def test_rules_hold_in_a_pass_that_counts_other_columns() -> None:
    ages = Universe({"age": ATTRIBUTES["age"]})
    assert coded(ROWS, Violations.DROP, ages) == [(3,), (9,)]
    assert coded(ROWS, Violations.REPAIR, ages) == [(3,), (3,), (3,), (2,), (9,)]


ANY_ROW = st.tuples(
    st.sampled_from(["F", "M", "?", None]),
    st.sampled_from([True, False, None]),
    st.sampled_from(["wife", "husband", "own", None]),
    st.integers(-5, 120),
)


@pytest.mark.parametrize("policy", list(Violations))
@settings(deadline=None)
@given(rows=st.lists(ANY_ROW, min_size=1, max_size=8), another=ANY_ROW)
def test_a_row_becomes_at_most_one_possible_row_whatever_the_others_are(
    policy: Violations, rows: list[tuple[object, ...]], another: tuple[object, ...]
) -> None:
    alone = [coded([row], policy) for row in rows]
    together = coded([*rows, another], policy)
    assert together == [each for made in alone for each in made] + coded([another], policy)
    assert all(len(made) <= 1 for made in alone)
    universe = Universe(ATTRIBUTES, facts(policy))
    for row in together:
        assert all(table[tuple(np.array(row)[list(axes)])] for axes, table in universe.possible.items())


def test_a_universe_without_constraints_has_no_rules() -> None:
    assert Rules.of(Universe(ATTRIBUTES)) is None


@pytest.mark.parametrize(
    ("policy", "missing", "totals"),
    [
        (Violations.DROP, False, [30]),  # and what adds up within bins counts, too
        (Violations.REPAIR, False, [30, 25]),  # 70 + 80 is more than any total
        (Violations.REPAIR, True, [30, None, None]),
    ],
)
def test_rows_that_do_not_add_up_are_dropped_or_get_another_total(
    policy: Violations, missing: bool, totals: list[int | None]
) -> None:
    fine = {"minimum": 0, "maximum": 99}
    columns = {"a": FineInteger(**fine), "b": FineInteger(**fine), "c": FineInteger(**fine, missing=missing)}
    whole = Universe(columns, (Sum(total="c", terms=("a", "b"), violations=policy),))
    cells = Universe({**columns, "c": columns["c"].cut_at(range(1, 100))})  # one for each value
    batch = pa.RecordBatch.from_pydict({"a": [10, 10, 70], "b": [20, 15, 80], "c": [30, 99, 3]})
    coding = Coding(universe=cells, protection=BY_ROW, window=None, rules=Rules.of(whole))
    made = coding.code(batch, draws=Draws(bytes(32)), piece=0, start=0)
    assert [None if code == 100 else code for code in made.codes[2].tolist()] == totals


def test_rows_in_bins_add_up_if_some_values_of_their_bins_do() -> None:
    fives = Integer(minimum=0, maximum=99, width=5)
    rows = {"a": [10, 10, None], "b": [20, 15, 3], "c": [31, 60, 3]}
    for policy, codes in ((Violations.DROP, [6, 0]), (Violations.REPAIR, [6, 6, 0])):
        columns = {"a": Integer(minimum=0, maximum=99, width=5, missing=True), "b": fives, "c": fives}
        whole = Universe(columns, (Sum(total="c", terms=("a", "b"), violations=policy),))
        coding = Coding(universe=whole, protection=BY_ROW, window=None, rules=Rules.of(whole))
        made = coding.code(pa.RecordBatch.from_pydict(rows), draws=Draws(bytes(32)), piece=0, start=0)
        assert made.codes[2].tolist() == codes

"""A query that is evaluated on classes of cells has the same numbers as one that is evaluated on the cells."""

import numpy as np
import pytest

from benchmarks.questions import Generator
from dpcore import answer
from dpcore.answers.ensemble import Ensemble
from dpcore.answers.evaluate import Prepared
from dpcore.answers.merging import Merging, stacked
from dpcore.answers.release import Release
from dpcore.answers.sql import parse


def test_random_questions_have_the_same_numbers_on_classes_of_cells(kinds: Release) -> None:
    generator, known = Generator(kinds.universe, seed=3), kinds.uncertainty
    assert known is not None
    ensemble, merged = Ensemble(kinds, known), 0
    for _ in range(60):
        query = parse(generator.question().sql, kinds.universe, tables=("release",))
        plain, merging = Prepared(query, kinds.universe), Merging(query, kinds.universe)
        expected = plain.evaluate(kinds.model.marginal)
        for number, values in ensemble.evaluated(merging)[0].items():
            assert np.allclose(values, expected[number], rtol=1e-6, atol=1e-6, equal_nan=True)
        axes = (
            {axis for number in query.numbers() for axis in merging.rows(number).axes}
            if _all_aggregates(query)
            else set()
        )
        merged += any(int(merging.classes(axis).max()) + 1 < kinds.universe.shape[axis] for axis in axes)
    assert merged > 5  # otherwise nothing was tested


@pytest.mark.parametrize(
    ("condition", "cut", "classes"),
    [
        ("age >= 50", False, 3),  # true, false, null
        ("age > 49", False, 3),
        ("age < 25", False, 3),
        ("age between 50 and 74", False, 4),
        ("age >= 51", True, 4),  # the bin from 50 to 74 by itself, too
        ("age = 50", True, 3),
        ("born >= '2025-03-01'", False, 3),
        ("born > '2025-03-01'", True, 4),
    ],
)
def test_a_condition_at_the_edge_of_a_bin_cuts_no_cell(kinds: Release, condition: str, cut: bool, classes: int) -> None:
    query = parse(f"select count(*) from release where {condition}", kinds.universe, tables=("release",))
    plain, merging = Prepared(query, kinds.universe), Merging(query, kinds.universe)
    column = kinds.universe.names.index(condition.split(maxsplit=1)[0])
    assert merging.is_cut(column) == cut
    assert len(set(merging.classes(column).tolist())) == classes
    (expected,) = plain.evaluate(kinds.model.marginal).values()
    (found,) = merging.evaluate(
        lambda axes: merging.marginal(lambda *classes: stacked([kinds.model], *classes), axes)
    ).values()
    assert np.allclose(found[0], expected, rtol=1e-9)
    assert 0 < expected[0] < kinds.model.total
    (basis,) = answer(kinds, f"select count(*) from release where {condition}")["count_basis"]
    assert (basis == "measured") == (not cut)


def _all_aggregates(query: object) -> bool:
    from dpcore.answers.query import Count, Mean, Quantile, Query, Sum  # noqa: PLC0415

    return isinstance(query, Query) and all(isinstance(each, Count | Sum | Mean | Quantile) for each in query.numbers())

"""A query that is evaluated on classes of cells has the same numbers as one that is evaluated on the cells."""

import numpy as np

from benchmarks.questions import Generator
from dpcore.answers.ensemble import Ensemble
from dpcore.answers.evaluate import Prepared
from dpcore.answers.merging import Merging
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
        for number, values in ensemble.values(merging).items():
            assert np.allclose(values, expected[number], rtol=1e-6, atol=1e-6, equal_nan=True)
        axes = (
            {axis for number in query.numbers() for axis in merging.rows(number).axes}
            if _all_aggregates(query)
            else set()
        )
        merged += any(int(merging.classes(axis).max()) + 1 < kinds.universe.shape[axis] for axis in axes)
    assert merged > 5  # otherwise nothing was tested


def _all_aggregates(query: object) -> bool:
    from dpcore.answers.query import Count, Mean, Quantile, Query, Sum  # noqa: PLC0415

    return isinstance(query, Query) and all(isinstance(each, Count | Sum | Mean | Quantile) for each in query.numbers())

"""A query is evaluated on all models of a release together, as evidence, with the numbers of the joint table of each model."""

import numpy as np

from benchmarks.questions import Generator
from dpcore.answers import ensemble as module
from dpcore.answers.ensemble import Ensemble
from dpcore.answers.query import Number, Query
from dpcore.answers.release import Release
from dpcore.answers.sql import parse
from dpcore.models.model import Weights
from tests.dpcore.answers import joint

QUESTIONS = [
    "select count(*), avg(age), sum(age), median(age) from release where age > 30 group by city",
    "select sex, count(*) / sum(count(*)) over () as share, 2 as two from release where born >= '2025-03-10' group by sex",
    "select bin(age, 30), count(*) filter (where smoker or not (hours > 7 and sex = 'F')) from release group by 1",
    "select bin(cost, 10), count(*), sum(cost) from release where hours = 40 or cost < 12 group by 1",
]


def one_after_the_other(release: Release, query: Query) -> dict[Number, Weights]:
    """Evaluate a query on the joint table of each model, as its replicate distributes values within cells."""
    uncertainty, spreads = release.uncertainty, Ensemble(release, release.uncertainty)._spreads_of  # type: ignore[arg-type]
    assert uncertainty is not None
    by_number: dict[Number, list[Weights]] = {number: [] for number in query.numbers()}
    prepared = Ensemble(release, uncertainty).prepared(query)
    for at, fit in enumerate((uncertainty.model, uncertainty.pilot, *uncertainty.replicates)):
        columns = {}
        for axis, attribute in enumerate(release.universe.attributes.values()):
            column = prepared.column(axis)
            varies = column.spread is not None and module.varies(attribute, column.spread)
            own = spreads(axis)[at] if varies else None
            columns[axis] = column if own is None else column.spread_by(own)
        for number, values in joint.numbers(prepared, release.assigned(fit), columns).items():
            by_number[number].append(values)
    return {number: np.array(values) for number, values in by_number.items()}


def test_all_models_together_have_the_numbers_of_each(kinds: Release) -> None:
    assert kinds.uncertainty is not None
    generator, ensemble = Generator(kinds.universe, seed=7), Ensemble(kinds, kinds.uncertainty)
    different = 0
    for sql in [*QUESTIONS, *(generator.question().sql for _ in range(12))]:
        query = parse(sql, kinds.universe, tables=("release",))
        values, differences = ensemble.evaluated(ensemble.prepared(query))
        for number, expected in one_after_the_other(kinds, query).items():
            assert np.allclose(values[number], expected[0], rtol=1e-6, atol=1e-6, equal_nan=True), sql
            difference = expected[2:] - expected[1]
            scale = 1e-6 * (1 + np.nan_to_num(np.abs(expected)).max())
            assert np.allclose(differences[number], difference, atol=scale, equal_nan=True), sql
            different += bool(np.nan_to_num(np.abs(difference)).max() > 100 * scale)
    assert different > 10  # otherwise nothing was compared


def test_kept_marginals_give_the_same_numbers(kinds: Release) -> None:
    assert kinds.uncertainty is not None
    query = parse(QUESTIONS[0], kinds.universe, tables=("release",))
    plain, keeping = Ensemble(kinds, kinds.uncertainty), Ensemble(kinds, kinds.uncertainty)
    prepared = plain.prepared(query)
    keeping.keep({prepared.rows(number).axes for number in query.numbers()})  # type: ignore[arg-type]
    for computed, stored in zip(plain.evaluated(prepared), keeping.evaluated(keeping.prepared(query)), strict=True):
        for number, values in computed.items():
            assert np.allclose(values, stored[number], equal_nan=True)

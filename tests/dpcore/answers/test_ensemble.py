"""A query is evaluated on all models of a release together, with the same numbers as on one after the other."""

import numpy as np
import pytest

from benchmarks.questions import Generator
from dpcore.answers import ensemble as module
from dpcore.answers.ensemble import Ensemble
from dpcore.answers.evaluate import Prepared
from dpcore.answers.merging import stacked, summed
from dpcore.answers.query import Number, Query
from dpcore.answers.release import Release
from dpcore.answers.sql import parse
from dpcore.marginals.resolutions import Resolutions
from dpcore.models import FactoredModel
from dpcore.models.model import Weights

QUESTIONS = [
    "select count(*), avg(age), sum(age), median(age) from release where age > 30 group by city",
    "select sex, count(*) / sum(count(*)) over () as share, 2 as two from release where born >= '2025-03-10' group by sex",
]


def one_after_the_other(release: Release, query: Query) -> dict[Number, Weights]:
    """Evaluate a query on the cells of each model, as its replicate distributes values within them."""
    known, spreads = release.uncertainty, Ensemble(release, release.uncertainty)._spreads_of  # type: ignore[arg-type]
    assert known is not None
    found: dict[Number, list[Weights]] = {number: [] for number in query.numbers()}
    for at, fit in enumerate((known.model, known.pilot, *known.replicates)):
        prepared = Prepared(query, release.universe)
        for axis, attribute in enumerate(release.universe.attributes.values()):
            column = prepared.column(axis)
            varies = column.spread is not None and module.varies(attribute, column.spread)
            if varies and (spread := spreads(axis)[at]) is not None:
                prepared._columns[axis] = column.spread_by(spread)
        for number, values in prepared.evaluate(release.assigned(fit).marginal).items():
            found[number].append(values)
    return {number: np.array(each) for number, each in found.items()}


@pytest.mark.parametrize("at_once", [module.MOST_AT_ONCE, 1])
def test_all_models_together_have_the_numbers_of_each(
    kinds: Release, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_AT_ONCE", at_once)
    assert kinds.uncertainty is not None
    generator, ensemble = Generator(kinds.universe, seed=7), Ensemble(kinds, kinds.uncertainty)
    different = 0
    for sql in [*QUESTIONS, *(generator.question().sql for _ in range(15))]:
        query = parse(sql, kinds.universe, tables=("release",))
        values, differences = ensemble.evaluated(ensemble.merging(query))
        for number, expected in one_after_the_other(kinds, query).items():
            assert np.allclose(values[number], expected[0], rtol=1e-6, atol=1e-6, equal_nan=True), sql
            wanted = expected[2:] - expected[1]
            scale = 1e-6 * (1 + np.nan_to_num(np.abs(expected)).max())
            assert np.allclose(differences[number], wanted, atol=scale, equal_nan=True), sql
            different += bool(np.nan_to_num(np.abs(wanted)).max() > 100 * scale)
    assert different > 10  # otherwise nothing was compared


def test_kept_marginals_give_the_same_numbers(kinds: Release) -> None:
    assert kinds.uncertainty is not None
    query = parse(QUESTIONS[0], kinds.universe, tables=("release",))
    plain, keeping = Ensemble(kinds, kinds.uncertainty), Ensemble(kinds, kinds.uncertainty)
    merging = plain.merging(query)
    keeping.keep({merging.rows(number).axes for number in query.numbers()})  # type: ignore[arg-type]
    for one, other in zip(plain.evaluated(merging), keeping.evaluated(keeping.merging(query)), strict=True):
        for number, values in one.items():
            assert np.allclose(values, other[number], equal_nan=True)


def test_a_factored_model_never_computes_a_marginal_cell_by_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    model = FactoredModel(Resolutions((3, 4, 5)), total=60.0)
    model.assign({(0, 1): rng.normal(size=(3, 4)), (1, 2): rng.normal(size=(4, 5))})
    classes = [np.array([0, 1, 1]), np.array([0, -1, 0, 1, 1])]
    expected = summed(model.marginal((0, 2)), classes)

    def marginal(*_: object) -> Weights:
        raise AssertionError("a marginal of columns far apart may need large arrays")

    monkeypatch.setattr(FactoredModel, "marginal", marginal)
    assert np.allclose(stacked([model, model], (0, 2), classes), expected)

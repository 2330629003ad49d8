"""Both forms of the public model hold the multiplicative-weights distribution."""

import numpy as np
import pytest

from dpcore.curator.gate import CountQuery
from dpcore.errors import UsageError
from dpcore.textbook.online import weights
from dpcore.textbook.online.weights import DenseWeights, FactoredWeights, expected_rows, weights_for

SHAPE = (2, 3, 4)


def history(seed: int) -> list[tuple[CountQuery, float]]:
    rng = np.random.default_rng(seed)
    sets = [(0,), (1, 2), (0, 2), (0, 1, 2), ()]
    made = []
    for axes in sets + sets:
        cells = rng.random([SHAPE[axis] for axis in axes]) < 0.5
        made.append((CountQuery(axes, np.asarray(cells, dtype=np.bool_)), float(rng.normal())))
    return made


@pytest.mark.parametrize("form", [DenseWeights, FactoredWeights])
def test_learning_multiplies_the_cells_of_each_query(form: type) -> None:
    held = form(SHAPE)
    held.model.rescale(1000.0)
    plain = np.ones(SHAPE)
    for query, step in history(1):
        held.learn(query, step)
        spread = query.cells.reshape([SHAPE[axis] if axis in query.axes else 1 for axis in range(3)])
        plain = plain * np.exp(step * spread)
    plain *= 1000 / plain.sum()
    assert np.allclose(held.model.marginal((0, 1, 2)), plain)
    asked = CountQuery((1,), np.array([True, False, True]))
    assert expected_rows(held, asked) == round(plain[:, [0, 2]].sum())


def test_the_form_follows_from_the_size_of_the_universe() -> None:
    assert isinstance(weights_for(SHAPE), DenseWeights)
    assert isinstance(weights_for((1000, 1000, 1000)), FactoredWeights)


def test_a_query_that_would_make_the_model_too_large_is_refused_before_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = FactoredWeights((100,) * 20)
    pair = CountQuery((0, 1), np.ones((100, 100), dtype=np.bool_))
    held.check(pair)
    monkeypatch.setattr(weights, "FACTORED_CELLS", 5_000)
    with pytest.raises(UsageError, match="fewer columns at once"):
        held.check(pair)
    monkeypatch.setattr(weights, "QUERY_CELLS", 5_000)
    with pytest.raises(UsageError, match="fewer of its columns at once"):
        held.check(pair)
    held.check(CountQuery((), np.array(True)))
    DenseWeights(SHAPE).check(pair)

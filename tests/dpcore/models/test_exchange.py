"""Rows that exchange values: closer to the model, and nothing else changes."""

from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pytest

from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.marginals.zeros import IMPOSSIBLE
from dpcore.models import dense as dense_module
from dpcore.models import exchange as exchange_module
from dpcore.models.dense import DenseModel
from dpcore.models.exchange import random_pairs, sets_worth
from dpcore.models.factored import model as factored_module
from dpcore.models.factored.model import FactoredModel
from dpcore.models.model import Model

SHAPE = (6, 5, 4, 7)
ROWS = 4000
PAIRS = tuple(combinations(range(4), 2))
TRIPLES = tuple(combinations(range(4), 3))


def functions(*sets: Axes) -> dict[Axes, np.ndarray]:
    rng = np.random.default_rng(11)
    return {axes: rng.normal(0, 1, [SHAPE[axis] for axis in axes]) for axes in sets}


def chain() -> FactoredModel:
    """Return a model in which each column is related to the next one only."""
    model = FactoredModel(Resolutions(SHAPE), total=float(ROWS))
    model.assign(functions((0, 1), (1, 2), (2, 3)))
    return model


def dense() -> DenseModel:
    model = DenseModel(SHAPE, total=float(ROWS))
    model.assign(functions((0, 1), (1, 2), (2, 3)))
    return model


def drawn(model: Model, near: tuple[Axes, ...], *, rows: int = ROWS) -> list[np.ndarray]:
    (chunk,) = model.row_chunks(rows, rng=np.random.default_rng(3), near=near)
    return [codes.astype(np.int64) for codes in chunk]


def counts(rows: list[np.ndarray], axes: Axes) -> np.ndarray:
    shape = [SHAPE[axis] for axis in axes]
    flat = np.ravel_multi_index([rows[axis] for axis in axes], shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape)


def distance(model: Model, rows: list[np.ndarray], sets: tuple[Axes, ...]) -> float:
    return sum(float(np.abs(counts(rows, axes) - model.marginal(axes)).sum()) for axes in sets)


@pytest.mark.parametrize("model", [chain(), dense()], ids=["factored", "dense"])
def test_the_marginals_of_the_rows_come_closer_to_those_of_the_model(model: Model) -> None:
    before, after = drawn(model, ()), drawn(model, TRIPLES)
    assert distance(model, after, TRIPLES) < 0.8 * distance(model, before, TRIPLES)
    assert distance(model, after, PAIRS) < distance(model, before, PAIRS)
    for axis in range(4):
        assert (counts(after, (axis,)) == counts(before, (axis,))).all()


def test_no_clique_of_a_factored_model_changes() -> None:
    model = chain()
    before, after = drawn(model, ()), drawn(model, TRIPLES)
    for clique in ((0, 1), (1, 2), (2, 3)):
        assert (counts(after, clique) == counts(before, clique)).all()
    assert (counts(after, (0, 2)) != counts(before, (0, 2))).any()  # the control: other pairs do


def test_rows_agree_on_the_versions_of_columns_that_are_in_a_clique() -> None:
    resolutions = Resolutions(SHAPE)
    coarse = resolutions.coarsen(1, np.array([0, 0, 0, 1, 1]))
    model = FactoredModel(resolutions, total=float(ROWS))
    rng = np.random.default_rng(2)
    model.assign({(0, coarse): rng.normal(0, 1, (6, 2)), (1, 3): rng.normal(0, 1, (5, 7))})
    before, after = drawn(model, ()), drawn(model, TRIPLES)
    grouped = [[rows[0], rows[1] // 3] for rows in (before, after)]
    held = [np.bincount(np.ravel_multi_index(each, (6, 2))) for each in grouped]
    assert (held[0] == held[1]).all()
    assert (counts(after, (0, 1)) != counts(before, (0, 1))).any()


def test_nothing_impossible_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    model = dense()
    model.assign({(0, 2): np.where(np.arange(6)[:, None] % 4 == np.arange(4), IMPOSSIBLE, 0.0)})

    def wrong(rows: list[np.ndarray]) -> int:
        return int((rows[0] % 4 == rows[2]).sum())

    assert wrong(drawn(model, PAIRS)) == 0
    monkeypatch.setattr(dense_module, "AS_LIKELY", -1.0)
    weights = model.weights.copy()
    monkeypatch.setattr(DenseModel, "weights", property(lambda _: np.maximum(weights, 1e-12)))
    assert wrong(drawn(model, PAIRS)) > 0  # the control: a model that does not look


def test_many_rows_are_drawn_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "MOST_ROWS", ROWS - 1)
    for model in (chain(), dense()):
        assert all((one == other).all() for one, other in zip(drawn(model, ()), drawn(model, TRIPLES), strict=True))


def test_a_marginal_that_takes_much_memory_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Axes] = []
    marginals = FactoredModel.marginals

    def noted(self: FactoredModel, sets: Iterable[Axes]) -> dict[Axes, np.ndarray]:
        computed.extend(wanted := tuple(sets))
        return marginals(self, wanted)

    monkeypatch.setattr(FactoredModel, "marginals", noted)
    drawn(chain(), TRIPLES)
    assert set(computed) == set(TRIPLES)
    computed.clear()
    monkeypatch.setattr(factored_module, "MOST_WORK", 300)  # enough for columns with one between them
    drawn(chain(), TRIPLES)
    assert set(computed) == {(0, 2), (1, 3), (0, 1, 2), (1, 2, 3)}
    computed.clear()
    monkeypatch.setattr(factored_module, "MOST_WORK", 0)
    drawn(chain(), TRIPLES)
    assert computed == []


def test_no_rows() -> None:
    assert list(chain().row_chunks(0, rng=np.random.default_rng(1), near=PAIRS)) == []
    assert [len(codes) for codes in drawn(chain(), PAIRS, rows=1)] == [1] * 4


def test_marginals_that_take_too_much_work_are_replaced_by_their_pairs_or_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cells(axes: Axes) -> int:
        return 10 ** len(axes)

    def worth(near: tuple[Axes, ...], count: int) -> set[Axes]:
        return set(sets_worth(near, cells, lambda axes: axes != (0, 3), count=count))

    others = {pair for pair in PAIRS if pair != (0, 3)}  # an exchange changes all but one
    assert worth(TRIPLES, 1000) == set(TRIPLES)
    assert worth(TRIPLES, 999) == others
    assert worth((*TRIPLES[:1], (3, 4), (5,)), 999) == {(0, 1), (0, 2), (1, 2), (3, 4)}
    assert worth(TRIPLES, 99) == set()
    monkeypatch.setattr(exchange_module, "MOST_CELLS", 3999)
    assert worth(TRIPLES, 1000) == others
    monkeypatch.setattr(exchange_module, "MOST_WORK", 1000 * 10 - 1)
    assert worth(TRIPLES, 1000) == set()


def test_pairs_are_of_one_group_and_differ_and_no_row_is_in_two() -> None:
    rng = np.random.default_rng(5)
    groups, codes = rng.integers(0, 30, 501), rng.integers(0, 4, 501)
    one, two = random_pairs(codes, groups, rng=rng)
    assert (groups[one] == groups[two]).all()
    assert (codes[one] != codes[two]).all()
    assert len(np.unique(np.append(one, two))) == 2 * len(one)
    assert len(one) > 501 / 2 * 3 / 4 * 0.8  # nearly all rows have a partner, and three of four partners differ

"""Numbers are functions of linear forms: evidence and groups by which a model is multiplied."""

from functools import partial

import numpy as np
import pytest

from dpcore.answers.evaluate import Prepared, of_groups
from dpcore.answers.query import Mean
from dpcore.answers.sql import parse
from dpcore.models import DenseModel
from dpcore.models.projection import projected
from dpcore.universe import Boolean, Categorical, Integer, Universe
from tests.dpcore.answers import joint

UNIVERSE = Universe(
    {
        "sex": Categorical(("F", "M"), missing=True),
        "age": Integer(minimum=0, maximum=99, width=20, missing=True),
        "smoker": Boolean(),
    }
)


@pytest.fixture(scope="module")
def model() -> DenseModel:
    dense = DenseModel(UNIVERSE.shape, total=1000.0)
    dense.assign({(0, 1, 2): np.log(np.random.default_rng(1).random(UNIVERSE.shape))})
    return dense


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*), sum(age) from release",
        "select sex, count(*), sum(age) from release where age >= 65 or smoker group by sex",
        "select floor(age / 30) * 30 a, smoker, count(*) filter (where sex is null), sum(age) from release where age < 71 group by a, smoker",
    ],
)
def test_forms_have_the_numbers_of_the_joint_table(model: DenseModel, sql: str) -> None:
    prepared = Prepared(parse(sql, UNIVERSE), UNIVERSE)
    expected = joint.numbers(prepared, model, {axis: prepared.column(axis) for axis in range(3)})
    for number, values in prepared.evaluate(partial(projected, model)).items():
        assert np.allclose(values, expected[number])
        assert values.max() > 0


def test_a_cut_bin_counts_by_its_share(model: DenseModel) -> None:
    prepared = Prepared(parse("select count(*) from release where age between 65 and 84", UNIVERSE), UNIVERSE)
    (number,) = prepared.query.numbers()
    assert prepared.form(number).weights().tolist() == [0, 0, 0, 0.75, 0.25, 0]  # type: ignore[arg-type]
    assert prepared.form(number).axes == (1,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("condition", "cut", "classes"),
    [
        ("age >= 40", False, 3),  # true, false, null
        ("age > 39", False, 3),
        ("age < 25", True, 4),
        ("age between 40 and 59", False, 4),  # before and after, too
        ("age >= 51", True, 4),  # the bin from 40 to 59 by itself, too
        ("age = 40", True, 3),
    ],
)
def test_a_condition_at_the_edge_of_a_bin_cuts_no_cell(condition: str, cut: bool, classes: int) -> None:
    prepared = Prepared(parse(f"select count(*) from release where {condition}", UNIVERSE), UNIVERSE)
    assert prepared.is_cut(1) == cut
    assert len(set(prepared.classes(1).tolist())) == classes


def test_a_mean_is_the_sum_by_the_rows_with_a_value(model: DenseModel) -> None:
    prepared = Prepared(parse("select avg(age) from release where age < 30 or age is null", UNIVERSE), UNIVERSE)
    ages = model.marginal((1,))
    rows = ages[0] + ages[1] / 2
    (numbers,) = prepared.evaluate(partial(projected, model)).values()
    assert numbers == pytest.approx((9.5 * ages[0] + 24.5 * ages[1] / 2) / rows)
    assert prepared.rows(Mean(1)).totals(partial(projected, model)) == pytest.approx(rows)


def test_one_preparation_serves_every_model(model: DenseModel) -> None:
    prepared = Prepared(
        parse("select sex, avg(age), count(*) / sum(count(*)) over () from release group by 1", UNIVERSE), UNIVERSE
    )
    uniform = DenseModel(UNIVERSE.shape, total=10.0)
    for own in (model, uniform):
        mean, share = prepared.evaluate(partial(projected, own)).values()
        assert share == pytest.approx(own.marginal((0,)) / own.total)
        assert mean.shape == (3,)
    assert mean == pytest.approx(49.5)


def test_merged_cells_count_as_the_query_treats_each_of_their_cells() -> None:
    prepared = Prepared(parse("select count(*) from release where age >= 40 and age < 80", UNIVERSE), UNIVERSE)
    (number,) = prepared.query.numbers()
    noisy, pairs = np.array([[1.0, 10.0, 100.0, 1000.0], [2.0, 20.0, 200.0, 2000.0]]), np.array([0, 0, 1, 1, 2, 3])
    project = of_groups(noisy, (2, 1), [np.arange(2), pairs])
    assert prepared.form(number).totals(project).tolist() == [30.0]  # type: ignore[arg-type]

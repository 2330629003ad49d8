"""Numbers are functions of linear forms, which can be looked at one by one."""

import numpy as np
import pytest

from dpcore.answers.evaluate import Prepared
from dpcore.answers.query import Count, Mean, Sum
from dpcore.answers.sql import parse
from dpcore.models import DenseModel
from dpcore.universe import Boolean, Categorical, Integer, Universe

UNIVERSE = Universe(
    {
        "sex": Categorical(("F", "M"), missing=True),
        "age": Integer(minimum=0, maximum=99, width=20, missing=True),
        "smoker": Boolean(),
    }
)


@pytest.fixture(scope="module")
def model() -> DenseModel:
    made = DenseModel(UNIVERSE.shape, total=1000.0)
    made.multiply((0, 1, 2), np.random.default_rng(1).random(UNIVERSE.shape))
    return made


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*), sum(age) from release",
        "select sex, count(*), sum(age) from release where age >= 65 or smoker group by sex",
        "select floor(age / 30) * 30 a, smoker, count(*) filter (where sex is null), sum(age) from release where age < 71 group by a, smoker",
    ],
)
def test_a_form_of_each_group_has_its_weights_on_cells(model: DenseModel, sql: str) -> None:
    prepared = Prepared(parse(sql, UNIVERSE), UNIVERSE)
    found = prepared.evaluate(model.marginal)
    for number in found:
        assert isinstance(number, Count | Sum)
        forms = [prepared.form(number).linear(group) for group in range(prepared.groups)]
        assert all(form.weights.shape == model.marginal(form.axes).shape for form in forms)
        assert np.allclose([form.on(model.marginal) for form in forms], found[number])
        assert found[number].max() > 0


def test_a_cut_bin_counts_by_its_share(model: DenseModel) -> None:
    prepared = Prepared(parse("select count(*) from release where age between 65 and 84", UNIVERSE), UNIVERSE)
    (number,) = prepared.evaluate(model.marginal)
    assert prepared.form(number).linear(0).weights.tolist() == [0, 0, 0, 0.75, 0.25, 0]
    assert prepared.form(number).axes == (1,)


def test_a_mean_is_the_sum_by_the_rows_with_a_value(model: DenseModel) -> None:
    prepared = Prepared(parse("select avg(age) from release where age < 30 or age is null", UNIVERSE), UNIVERSE)
    ages = model.marginal((1,))
    rows = ages[0] + ages[1] / 2
    (found,) = prepared.evaluate(model.marginal).values()
    assert found == pytest.approx((9.5 * ages[0] + 24.5 * ages[1] / 2) / rows)
    assert prepared.rows(Mean(1)).totals(model.marginal) == pytest.approx(rows)


def test_one_preparation_serves_every_model(model: DenseModel) -> None:
    prepared = Prepared(
        parse("select sex, avg(age), count(*) / sum(count(*)) over () from release group by 1", UNIVERSE), UNIVERSE
    )
    other = DenseModel(UNIVERSE.shape, total=10.0)
    for each in (model, other):
        mean, share = prepared.evaluate(each.marginal).values()
        assert share == pytest.approx(each.marginal((0,)) / each.total)
        assert mean.shape == (3,)
    assert mean == pytest.approx(49.5)

"""Evidence: repeated measurements are worth their precision, and the total is agreed on by all of them."""

import numpy as np

from dpcore.marginals.measurements import Measurement
from dpcore.models import Evidence


def measured(axes: tuple[int, ...], values: list[int], noise: float) -> Measurement:
    return Measurement(step="m", axes=axes, cell=None, values=np.array(values), noise=noise)


def test_a_marginal_measured_twice_is_averaged_by_precision() -> None:
    evidence = Evidence()
    evidence.add(measured((0,), [10, 20], 1.0))
    evidence.add(measured((0,), [20, 40], 2.0))
    ((axes, target),) = evidence
    assert axes == (0,)
    np.testing.assert_allclose(target.counts, [12.0, 24.0])
    np.testing.assert_allclose(target.variance, 0.8)


def test_the_total_trusts_precise_and_small_marginals_more() -> None:
    evidence = Evidence()
    evidence.add(measured((0,), [60, 40], 1.0))
    evidence.add(measured((0, 1), [50] * 4, 100.0))
    assert abs(evidence.total - 100) < 0.1


def test_the_total_is_at_least_one() -> None:
    evidence = Evidence()
    evidence.add(measured((0,), [-500, 3], 10.0))
    assert evidence.total == 1.0

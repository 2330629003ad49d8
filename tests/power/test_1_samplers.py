"""Integer noise has the distribution that it is charged for, at narrow and wide scales, and not one that is 3 % wider.

A sound sampler fails one of these checks with a probability of about 1e-9.
"""

import math
from bisect import bisect_right

import mpmath
import numpy as np
import pytest

from dpcore.audit.cases.noise import GAUSSIAN, LAPLACE, ROUNDED, Family
from dpcore.audit.goodness import chi_square_p
from dpcore.mechanisms.sampling.inversion import inversion_table
from dpcore.mechanisms.sampling.thresholds import Shape

DRAWS = 1_000_000
SCALES = [0.7, 2.0, 40.0, 1000.0]
FAMILIES = {"laplace": LAPLACE, "gaussian": GAUSSIAN, "rounded": ROUNDED}
SURE = 1e-9


@pytest.fixture(params=list(FAMILIES))
def family(request) -> Family:
    return FAMILIES[request.param]


def agreement(family: Family, noise: np.ndarray, scale: float) -> float:
    """The probability of an agreement this bad with the noise's formula."""
    reach = int(30 * scale) + 30
    weights = family.weights(np.arange(-reach, reach + 1), scale)
    observed = np.bincount(np.clip(noise, -reach, reach) + reach, minlength=2 * reach + 1)
    return chi_square_p(observed, weights / weights.sum() * noise.size)


def noise_of(family: Family, scale: float, *, draws: int = DRAWS) -> np.ndarray:
    return family.at(scale).draw(np.zeros(draws, dtype=np.int64))


@pytest.mark.parametrize("scale", SCALES)
def test_the_noise_has_its_distribution_and_not_one_three_percent_wider(family: Family, scale: float) -> None:
    draws = 2 * DRAWS
    assert agreement(family, noise_of(family, scale, draws=draws), scale) > SURE
    assert agreement(family, noise_of(family, scale * 1.03, draws=draws), scale) < SURE


@pytest.mark.parametrize("scale", SCALES)
def test_its_variance_is_the_stated_one_and_not_that_of_another_scale(family: Family, scale: float) -> None:
    squares = noise_of(family, scale).astype(np.float64) ** 2
    deviations = squares.std() / math.sqrt(squares.size)
    assert abs(squares.mean() - family.at(scale).standard_deviation ** 2) < 6 * deviations
    assert abs(squares.mean() - family.at(scale * 1.03).standard_deviation ** 2) > 6 * deviations


@pytest.mark.parametrize(("family_name", "scale"), [("laplace", 1e5), ("gaussian", 1e5)])
def test_noise_that_is_too_wide_for_a_table_has_its_distribution_too(family_name: str, scale: float) -> None:
    """Told in 40 intervals of equal length and the rest; in these the continuous formula differs by less than 1e-8."""
    family, draws = FAMILIES[family_name], 400_000

    def p(drawn_at: float) -> float:
        edges = np.linspace(-4, 4, 41) * scale
        if family is LAPLACE:
            below = np.where(edges < 0, np.exp(edges / scale) / 2, 1 - np.exp(-edges / scale) / 2)
        else:
            below = np.array([math.erfc(-edge / (scale * math.sqrt(2))) / 2 for edge in edges])
        masses = np.diff(np.concatenate([[0.0], below, [1.0]]))
        noise = noise_of(family, drawn_at, draws=draws) - 0.5
        return chi_square_p(np.bincount(np.searchsorted(edges, noise), minlength=42), masses * draws)

    assert p(scale) > SURE
    assert p(scale * 1.03) < SURE


@pytest.mark.parametrize(
    ("shape", "scale"), [(Shape.LAPLACE, 0.7), (Shape.LAPLACE, 5.0), (Shape.GAUSSIAN, 0.7), (Shape.GAUSSIAN, 12.5)]
)
def test_every_threshold_of_a_table_is_that_of_its_formula_at_60_digits(shape: Shape, scale: float) -> None:
    table = inversion_table(shape, scale)
    edges = [int(high) << 64 | int(low) for high, low in zip(table.high, table.low, strict=True)]
    with mpmath.workdps(60):
        width = mpmath.mpf(scale)
        exponents = [
            abs(k) / width if shape is Shape.LAPLACE else k * k / (2 * width * width)
            for k in range(-table.reach, table.reach + 1)
        ]
        weights = [mpmath.exp(-exponent) for exponent in exponents]
        total, running, wrong = mpmath.fsum(weights), mpmath.mpf(0), 0
        for edge, weight in zip(edges, weights, strict=False):
            running += weight
            wrong += abs(edge - int(mpmath.floor(mpmath.ldexp(running / total, 128)))) > 1
        wider = mpmath.fsum(mpmath.exp(-exponent / mpmath.mpf("1.03")) for exponent in exponents)
    assert wrong == 0
    assert (
        abs(edges[table.reach] - edges[table.reach - 1] - int(mpmath.ldexp(1 / wider, 128))) > 2**100
    )  # the same check, 3 % wider
    assert bisect_right(edges, 1 << 127) == table.reach  # the median is 0

"""The way down a declared tree: a function of noisy counts alone, with as few false finds as promised."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.descent import Descent, PrefixDescent, threshold
from dpcore.descent.descent import FALSE_FINDS
from dpcore.descent.prefixes import MOST_CANDIDATES, depths
from dpcore.errors import SpecError
from dpcore.mechanisms import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from dpcore.privacy.protection import Sensitivity
from dpcore.spec.discover import DiscoverBins, DiscoverValues
from dpcore.tables.reading.encoding import encode
from dpcore.universe import Attribute, Categorical, Integer, Number, Outside
from dpcore.universe.numeric import UnevenInteger

ONE = Sensitivity(l1=1, l2_squared=1, linf=1)
SHARE = Fraction(1, 10)
MECHANISMS = {
    "laplace": DiscreteLaplace(scale=20.0, sensitivity=ONE),
    "small laplace": DiscreteLaplace(scale=0.5, sensitivity=ONE),
    "gaussian": DiscreteGaussian(scale=20.0, sensitivity=ONE),
    "rounded": RoundedGaussian(scale=20.0, sensitivity=ONE),
}


def counts_of(attribute: Attribute, column: pa.Array) -> npt.NDArray[np.int64]:
    return np.bincount(encode(attribute, column), minlength=attribute.size).astype(np.int64)


def descend(descent: Descent, column: pa.Array, *, least: int = 1) -> Attribute:
    """Go down by exact counts."""
    levels = 0
    while (candidates := descent.candidates) is not None:
        descent.take(counts_of(candidates, column), least=least, noise=1.0)
        levels += 1
    assert levels <= descent.levels
    return descent.found()


def prefixes(most: int = 20, length: int = 6, alphabet: str = "0123456789.EV", **policy: object) -> PrefixDescent:
    template = Categorical(tuple(f"value {n}" for n in range(most)), **{"outside": Outside.OTHER, **policy})
    return PrefixDescent(template, length=length, alphabet=alphabet, share=SHARE)


@pytest.mark.parametrize("name", MECHANISMS)
def test_of_candidates_without_rows_as_few_stand_out_as_promised(name: str) -> None:
    mechanism, candidates, levels = MECHANISMS[name], 1000, 400
    noise, laplace = mechanism.standard_deviation, isinstance(mechanism, DiscreteLaplace)
    least = threshold(candidates, noise=noise, laplace=laplace)
    drawn = mechanism.draw(np.zeros(candidates * levels, dtype=np.int64))
    false = int((drawn >= least).sum())
    assert false < FALSE_FINDS * levels + 5 * np.sqrt(FALSE_FINDS * levels)
    # the control: with a threshold lower by three tenths, many more do
    lower = threshold(candidates, noise=0.7 * noise, laplace=laplace)
    assert lower < least
    assert int((drawn >= lower).sum()) > FALSE_FINDS * levels + 5 * np.sqrt(FALSE_FINDS * levels)


@pytest.mark.parametrize("scale", [0.05, 0.15, 0.2, 0.3, 0.5, 0.8, 1.5, 1.99])
@pytest.mark.parametrize("kind", [DiscreteLaplace, DiscreteGaussian, RoundedGaussian])
def test_noise_that_is_almost_never_there_gets_no_more_false_finds(kind: type, scale: float) -> None:
    mechanism = kind(scale=scale, sensitivity=ONE)
    candidates, levels = 10_000, 40
    least = threshold(candidates, noise=mechanism.standard_deviation, laplace=kind is DiscreteLaplace)
    drawn = mechanism.draw(np.zeros(candidates * levels, dtype=np.int64))
    assert (drawn >= least).sum() < FALSE_FINDS * levels + 5 * np.sqrt(FALSE_FINDS * levels)


@pytest.mark.parametrize("laplace", [True, False])
def test_the_threshold_rises_with_noise_and_candidates_and_is_at_least_one_row(laplace: bool) -> None:
    assert threshold(10, noise=0.0, laplace=laplace) == threshold(10**6, noise=1e-30, laplace=laplace) == 1
    assert threshold(10, noise=5.0, laplace=laplace) < threshold(10**5, noise=5.0, laplace=laplace)
    assert threshold(10, noise=5.0, laplace=laplace) < threshold(10, noise=50.0, laplace=laplace)


@given(st.integers(1, 900), st.integers(1, 30), st.integers(1, 100))
def test_no_level_has_more_candidates_than_there_may_be(most: int, length: int, alphabet: int) -> None:
    reached = depths(most=most, length=length, alphabet=alphabet)
    assert reached[-1] == length
    for before, after in zip((0, *reached), reached, strict=False):
        stems = min(most, alphabet**before)
        assert after > before
        assert stems * sum(alphabet**letters for letters in range(after - before + 1)) <= MOST_CANDIDATES


def test_a_tree_too_broad_to_descend_is_refused() -> None:
    with pytest.raises(SpecError, match="smaller alphabet"):
        depths(most=10_000, length=3, alphabet=95)


def test_all_values_are_found_where_there_is_no_noise() -> None:
    values = ["2", "250", "250.13", "25", "V27", "E812.4"]
    found = descend(prefixes(), pa.array(values * 3))
    assert isinstance(found, Categorical)
    assert found.values == tuple(sorted(values))
    assert found.outside is Outside.OTHER


def test_longer_values_and_other_letters_are_not_found() -> None:
    found = descend(prefixes(length=5), pa.array(["250", "250.13", "25x", "é", "", None]))
    assert found.labels == ("250", "other")


def test_the_largest_are_kept_where_there_are_more_than_may_be() -> None:
    column = pa.array([str(number) for number in range(10, 60) for _ in range(number)])
    assert descend(prefixes(most=3), column).labels == ("57", "58", "59", "other")


def test_where_nothing_stands_out_everything_is_other_and_nothing_more_is_asked() -> None:
    descent = prefixes(outside=Outside.DROP)
    found = descend(descent, pa.array(["250"] * 9), least=10)
    assert (found.labels, found.size) == (("other",), 1)
    assert encode(found, pa.array(["250", "V"])).tolist() == [0, 0]


def test_a_text_that_counts_as_null_is_never_found_and_what_begins_with_it_is() -> None:
    descent = prefixes(alphabet="NAB", length=6, missing=True, nulls=("NA",))
    assert descend(descent, pa.array(["NA"] * 50 + ["NAB"] * 5)).labels == ("NAB", "other", "missing")


@given(st.lists(st.text("ab", max_size=4), max_size=60), st.integers(1, 5))
def test_what_is_found_has_enough_rows_and_nothing_that_has_is_missed(texts: list[str], least: int) -> None:
    descent = DiscoverValues(most=40, length=4, alphabet="ab", share=0.1).descent(
        Categorical(tuple(f"value {n}" for n in range(40)), outside=Outside.OTHER)
    )
    expected = {text for text in texts if text and texts.count(text) >= least}
    assert set(descend(descent, pa.array(texts, pa.string()), least=least).labels) - {"other"} == expected


def bins_of(
    values: npt.NDArray[np.generic], template: Attribute, *, bins: int, finest: float | None = None
) -> Attribute:
    wanted = DiscoverBins(bins=bins, finest=finest, share=0.1)
    provisional = wanted.provisional(template)
    found = descend(wanted.descent(provisional), pa.array(values), least=1)
    assert found.cells <= provisional.cells <= bins
    return found


def test_bins_of_numbers_have_about_equal_mass() -> None:
    values = np.random.default_rng(1).lognormal(4, 1.5, 20_000)
    found = bins_of(values, Number((0, 10_000)), bins=10)
    counts = counts_of(found, pa.array(values))
    assert found.cells == 10
    assert 0.75 * 2000 < counts.min() <= counts.max() < 1.25 * 2000
    # the control: bins of equal width
    even = Number(tuple(np.linspace(0, 10_000, 11).tolist()))
    assert counts_of(even, pa.array(values)).max() > 0.9 * 20_000


def test_a_value_that_most_rows_have_gets_a_bin_of_its_own() -> None:
    rng = np.random.default_rng(1)
    gains = np.where(rng.random(20_000) < 0.9, 0, rng.integers(1, 99_999, 20_000))
    found = bins_of(gains, Integer(minimum=0, maximum=99_999), bins=8)
    counts = counts_of(found, pa.array(gains))
    assert found.labels[0] == "0"
    assert counts[1:].max() < 3 * counts[1:].min()


@given(st.lists(st.integers(-10, 30), max_size=50), st.integers(2, 40), st.integers(0, 25))
def test_whole_numbers_are_never_split(values: list[int], bins: int, maximum: int) -> None:
    found = bins_of(np.array(values, dtype=np.int64), Integer(minimum=0, maximum=maximum), bins=bins)
    assert isinstance(found, UnevenInteger)
    assert (found.minimum, found.maximum) == (0, maximum)


def test_no_bin_is_narrower_than_the_finest() -> None:
    found = bins_of(np.full(1000, 3.1416), Number((0, 10)), bins=10, finest=0.5)
    assert isinstance(found, Number)
    widths = np.diff(found.edges)
    assert widths.min() >= 0.5
    assert (3.0, 3.5) in list(zip(found.edges, found.edges[1:], strict=False))


@given(st.lists(st.integers(-1000, 1000), min_size=1), st.randoms(use_true_random=False))
def test_whatever_the_noise_says_there_is_an_answer(noise: list[int], chance: object) -> None:
    for descent in (
        prefixes(most=3, length=3, alphabet="ab"),
        DiscoverBins(bins=4, share=0.1).descent(Number((0, 1, 2, 3, 4))),
        DiscoverBins(bins=4, share=0.1).descent(UnevenInteger(minimum=0, maximum=10**6, cuts=(1, 2, 3))),
    ):
        before = descent.found().size if descent.candidates is None else 6
        while (candidates := descent.candidates) is not None:
            drawn = np.array([chance.choice(noise) for _ in range(candidates.size)], dtype=np.int64)  # type: ignore[attr-defined]
            descent.take(drawn, least=20, noise=5.0)
        assert 1 <= descent.found().size <= before


def test_edges_are_found_for_numbers_only() -> None:
    with pytest.raises(SpecError, match="numbers only"):
        DiscoverBins(bins=4, share=0.1).provisional(Categorical(("a",)))

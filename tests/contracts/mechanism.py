"""What every mechanism must keep: a test class inherits it and says which mechanism it is about."""

import json
import math
from dataclasses import FrozenInstanceError, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from dpcore.audit import Tally, bounds, chi_square_p
from dpcore.errors import UsageError
from dpcore.mechanisms import KINDS, from_description
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Sensitivity

MISS = 1e-4
"""Of each bound of a probability."""


def probability_bounds(events: np.ndarray) -> tuple[float, float]:
    """Clopper-Pearson bounds of an event's probability."""
    return bounds.probability_bounds(Tally.of(events), miss=MISS)


def at_least(currency: Currency, events: np.ndarray, neighbours_events: np.ndarray) -> float:
    """An amount that the mechanism certainly exceeds, if the event is likelier here than on the neighbour."""
    return bounds.at_least(Tally.of(events), Tally.of(neighbours_events), currency=currency, miss=2 * MISS)


epsilon_at_least = partial(at_least, Currency.PURE)
rho_at_least = partial(at_least, Currency.ZCDP)
mu_squared_at_least = partial(at_least, Currency.GDP)

AT_LEAST = {Currency.PURE: epsilon_at_least, Currency.ZCDP: rho_at_least, Currency.GDP: mu_squared_at_least}
"""What an event shows of the privacy loss, in each currency."""

__all__ = [
    "AT_LEAST",
    "MechanismContract",
    "NoiseContract",
    "chi_square_p",
    "epsilon_at_least",
    "mu_squared_at_least",
    "probability_bounds",
    "recorded_words",
    "rho_at_least",
]


def recorded_words(seed: int) -> Any:
    """A stream of words that is the same each time it is started."""
    generator = np.random.default_rng(seed)
    return lambda count: generator.integers(0, 2**64, size=count, dtype=np.uint64)


class MechanismContract:
    """Prices, descriptions and calibration."""

    kind: ClassVar[Any]
    sensitivity: ClassVar[Any]
    currencies: ClassVar[tuple[Currency, ...]]
    kinds: ClassVar[tuple[type[Any], ...]] = KINDS
    less_noise: ClassVar[tuple[str, float]]
    """The parameter that sets the noise, and the direction in which there is less of it."""

    def bought(self, amount: int, currency: Currency) -> Any:
        return self.kind.for_amount(amount, currency=currency, sensitivity=self.sensitivity)

    @pytest.fixture(params=[10**6, 123_456_789, 10**11, 3 * 10**12])
    def amount(self, request):
        return request.param

    def test_an_amount_buys_a_mechanism_that_costs_no_more(self, amount):
        for currency in self.currencies:
            price = self.bought(amount, currency).price(currency)
            assert isinstance(price, int)
            assert amount * (1 - 1e-9) - 1 <= price <= amount

    def test_no_mechanism_with_less_noise_can_be_had_for_the_amount(self, amount):
        name, direction = self.less_noise
        for currency in self.currencies:
            bought = self.bought(amount, currency)
            better = replace(bought, **{name: math.nextafter(getattr(bought, name), direction)})
            assert better.price(currency) > amount

    def test_more_budget_never_buys_more_noise(self):
        name, direction = self.less_noise
        for currency in self.currencies:
            noises = [getattr(self.bought(amount, currency), name) for amount in (10**7, 10**9, 10**11, 10**13, 10**17)]
            assert noises == sorted(noises, reverse=direction < noises[0])

    @pytest.mark.parametrize("amount", [0, -1, True, 1.0, None])
    def test_no_amount_buys_nothing(self, amount):
        with pytest.raises(UsageError, match="at least 1"):
            self.bought(amount, self.currencies[0])

    def test_a_description_survives_json_and_is_priced_the_same(self, amount):
        for currency in self.currencies:
            mechanism = self.bought(amount, currency)
            read_back = from_description(json.loads(json.dumps(mechanism.describe())), kinds=self.kinds)
            assert read_back == mechanism
            assert read_back.price(currency) == mechanism.price(currency)

    def test_a_description_that_was_changed_is_refused(self):
        description = self.bought(10**11, self.currencies[0]).describe()
        for key in description:
            with pytest.raises(UsageError):
                from_description({**description, key: None}, kinds=self.kinds)
            with pytest.raises(UsageError):
                from_description(
                    {other: value for other, value in description.items() if other != key}, kinds=self.kinds
                )
        with pytest.raises(UsageError, match="does not match its parameters"):
            from_description({**description, "seed": 1}, kinds=self.kinds)

    def test_a_mechanism_does_not_change(self):
        mechanism = self.bought(10**11, self.currencies[0])
        with pytest.raises(FrozenInstanceError):
            setattr(mechanism, self.less_noise[0], 1.0)


class NoiseContract(MechanismContract):
    """What integer noise on counts must keep as well."""

    sensitivity = Sensitivity(l1=2, l2_squared=2, linf=1)
    draws = 1_000_000

    def weight(self, k: np.ndarray, scale: float) -> np.ndarray:
        """The probability of each k, up to a factor, by its formula."""
        raise NotImplementedError

    def at(self, scale: float, sensitivity: Sensitivity | None = None) -> Any:
        return self.kind(**{self.less_noise[0]: scale}, sensitivity=sensitivity or self.sensitivity)

    def noise(self, scale: float, count: int | None = None) -> np.ndarray:
        return self.at(scale).draw(np.zeros(count or self.draws, dtype=np.int64))

    def agreement(self, noise: np.ndarray, scale: float) -> float:
        """The probability of noise that fits its formula so badly; tests/power asks for it at every scale."""
        reach = int(30 * scale) + 30
        weights = self.weight(np.arange(-reach, reach + 1), scale)
        observed = np.bincount(np.clip(noise, -reach, reach) + reach, minlength=2 * reach + 1)
        return chi_square_p(observed, weights / weights.sum() * noise.size)

    def test_noise_too_wide_for_a_table_is_drawn_too(self):
        scale = 1e6
        squares = self.noise(scale, count=4000).astype(np.float64) ** 2
        deviations = squares.std() / math.sqrt(squares.size)
        assert abs(squares.mean() - self.at(scale).standard_deviation ** 2) < 6 * deviations
        assert abs(squares.mean() - self.at(scale * 1.3).standard_deviation ** 2) > 6 * deviations

    def test_the_noise_comes_from_the_entropy_stream_and_never_depends_on_the_counts(self, monkeypatch):
        counts = np.arange(30_000, dtype=np.int64).reshape(30, -1)

        def draw(seed: int, counts: np.ndarray) -> np.ndarray:
            monkeypatch.setattr(entropy, "random_words", recorded_words(seed))
            return self.at(12.5).draw(counts) - counts

        first = draw(1, counts)
        assert first.shape == counts.shape
        assert first.dtype == np.int64
        assert np.array_equal(draw(1, counts * 1000 - 7), first)
        assert not np.array_equal(draw(2, counts), first)

    def test_the_counts_are_left_as_they_were(self):
        counts = np.zeros(10, dtype=np.int64)
        counts.flags.writeable = False
        assert self.at(100.0).draw(counts).any()
        assert not counts.any()

    def test_a_count_at_the_end_of_64_bits_wraps_around_and_raises_nothing(self):
        ends = np.array([2**63 - 1, -(2**63)] * 200, dtype=np.int64)
        assert np.abs(self.at(50.0).draw(ends) - ends).max() < 5000

    def test_an_empty_vector_stays_empty(self):
        assert self.at(3.0).draw(np.zeros((0, 4), dtype=np.int64)).shape == (0, 4)

    @pytest.mark.parametrize("counts", [np.zeros(3), np.zeros(3, dtype=np.int32), [1, 2], np.zeros(3, dtype=np.uint64)])
    def test_counts_that_are_not_64_bit_integers_are_refused(self, counts):
        with pytest.raises(UsageError, match="64-bit"):
            self.at(3.0).draw(counts)

    @pytest.mark.parametrize("scale", [0, 0.0, -1.0, 1e-9, 1e13, math.nan, math.inf, -math.inf, True, "1", None])
    def test_a_scale_that_means_nothing_is_refused(self, scale):
        with pytest.raises(UsageError, match="noise scale"):
            self.at(scale)

    @pytest.mark.parametrize(
        "norms", [(0, 0, 0), (1, 1, 0), (1, 2, 2), (2, 1, 2), (2, 5, 2), (1.0, 1.0, 1.0), (-1, 1, -1), (True, 1, 1)]
    )
    def test_a_sensitivity_that_no_movement_has_is_refused(self, norms):
        with pytest.raises(UsageError, match="sensitivity"):
            self.at(1.0, Sensitivity(*norms))

    def test_less_sensitivity_costs_less(self):
        for currency in self.currencies:
            charges = [self.at(10.0, Sensitivity(k, k * k, k)).price(currency) for k in (1, 2, 3, 10)]
            assert charges == sorted(set(charges))

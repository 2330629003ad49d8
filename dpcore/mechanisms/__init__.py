"""The mechanisms: what turns private counts into noisy public ones. Each states its price apart from its draw."""

from collections.abc import Mapping
from typing import Protocol

from dpcore.accounting import Currency
from dpcore.errors import UsageError
from dpcore.mechanisms.descriptions import Description
from dpcore.mechanisms.exponential import ExponentialMechanism, Flavour
from dpcore.mechanisms.gaussian import DiscreteGaussian
from dpcore.mechanisms.laplace import DiscreteLaplace
from dpcore.mechanisms.rounded import RoundedGaussian

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "ExponentialMechanism",
    "Flavour",
    "Mechanism",
    "RoundedGaussian",
    "from_description",
]


class Mechanism(Protocol):
    """What a ledger needs to know of a mechanism before it may draw."""

    def charge(self, currency: Currency) -> int:
        """Return the price of one draw, in units of the currency, rounded up."""

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can account again."""


def from_description(description: Mapping[str, object]) -> Mechanism:
    """Return the mechanism that a ledger row describes, to price it again.

    >>> row = {"name": "discrete-laplace", "scale": "2.0", "l1": 1, "l2_squared": 1, "linf": 1}
    >>> from_description(row).charge(Currency.PURE)
    500000000000
    """
    for kind in (DiscreteLaplace, DiscreteGaussian, RoundedGaussian, ExponentialMechanism):
        if description.get("name") == kind.name:
            mechanism: Mechanism = kind.from_description(description)
            if mechanism.describe() != dict(description):
                raise UsageError(
                    "this mechanism's description holds more or other than its parameters; do not trust it"
                )
            return mechanism
    raise UsageError("this mechanism is not known here; account for it with the version that recorded it")

"""The mechanisms, which turn private counts into noisy public ones. Each keeps its price separate from its draw."""

from collections.abc import Iterable, Mapping

from dpcore.errors import UsageError
from dpcore.mechanisms.bounded_mean import BoundedMean
from dpcore.mechanisms.bounded_sum import BoundedSum
from dpcore.mechanisms.counts_above import CountsAbove
from dpcore.mechanisms.declared import DECLARED
from dpcore.mechanisms.exponential import ExponentialMechanism, Flavour, ReportNoisyMax
from dpcore.mechanisms.mechanism import Mechanism
from dpcore.mechanisms.noise import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from dpcore.mechanisms.noisy_choice import NoisyChoice, Wanted
from dpcore.mechanisms.noisy_count import NoisyCount
from dpcore.mechanisms.noisy_histogram import NoisyHistogram
from dpcore.mechanisms.noisy_quantiles import NoisyQuantiles
from dpcore.mechanisms.noisy_value import NoisyValue
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.mechanisms.top_categories import TopCategories

__all__ = [
    "DECLARED",
    "KINDS",
    "BoundedMean",
    "BoundedSum",
    "CountsAbove",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "ExponentialMechanism",
    "Flavour",
    "Mechanism",
    "NoisyChoice",
    "NoisyCount",
    "NoisyHistogram",
    "NoisyQuantiles",
    "NoisyValue",
    "ReportNoisyMax",
    "RoundedGaussian",
    "SparseVector",
    "TopCategories",
    "Wanted",
    "from_description",
]


KINDS: tuple[type[Mechanism], ...] = (
    DiscreteLaplace,
    DiscreteGaussian,
    RoundedGaussian,
    ExponentialMechanism,
    ReportNoisyMax,
    SparseVector,
    NoisyCount,
    NoisyValue,
    BoundedSum,
    BoundedMean,
    NoisyHistogram,
    NoisyQuantiles,
    TopCategories,
    NoisyChoice,
    CountsAbove,
)
"""All mechanisms of ours that a ledger row may describe. The guarantees that callers state for their own code are in `DECLARED`."""


def from_description(
    description: Mapping[str, object], *, kinds: Iterable[type[Mechanism]] = (*KINDS, *DECLARED)
) -> Mechanism:
    """Rebuild the mechanism that a ledger row describes, to recompute its price.

    >>> from dpcore.privacy.accounting import Currency
    >>> row = {"name": "discrete-laplace", "scale": "2.0", "l1": 1, "l2_squared": 1, "linf": 1}
    >>> from_description(row).price(Currency.PURE)
    500000000000
    """
    for kind in kinds:
        if description.get("name") == kind.name:
            mechanism = kind.from_description(description)
            if mechanism.describe() != dict(description):
                raise UsageError("this mechanism's description does not match its parameters exactly; do not trust it")
            return mechanism
    raise UsageError("this version does not know this mechanism; account for it with the version that recorded it")

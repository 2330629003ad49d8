"""Strategies, which improve a public model by noisy answers."""

from dpcore.errors import SpecError
from dpcore.marginals.zeros import Zeros
from dpcore.spec import Declaration
from dpcore.spec.release import AdaptiveSpec, PmwSpec
from dpcore.strategies.adaptive import Adaptive, has_levels
from dpcore.strategies.by_rounds import Column
from dpcore.strategies.mwem import Mwem
from dpcore.strategies.pmw import Pmw
from dpcore.strategies.strategy import EarlyCounts, Outline, Strategy, step_name
from dpcore.strategies.whole import Counted

__all__ = [
    "Adaptive",
    "Column",
    "EarlyCounts",
    "Mwem",
    "Outline",
    "Pmw",
    "Strategy",
    "has_levels",
    "step_name",
    "strategy_for",
]


def strategy_for(declaration: Declaration, *, early_counts: EarlyCounts | None = None) -> Strategy:
    """Build the strategy that a spec names. Raise for a universe that it cannot handle, before anything is read or spent.

    Args:
        declaration: The declaration, before or after discovery.
        early_counts: The counts that discovery has bought; None for a plan, before they are known.
    """
    if early_counts is None:
        early_counts = EarlyCounts({declaration.universe.names.index(name): None for name in declaration.fine})
    universe, workload, chosen = declaration.universe, declaration.workload, declaration.strategy
    zeros = Zeros(universe.possible)
    if isinstance(chosen, PmwSpec):
        if declaration.spec.prior is not None:
            raise SpecError("strategy pmw starts from equal weights and cannot use a `prior`; use mwem or adaptive")
        return Pmw(universe.shape, workload, rounds=chosen.rounds, alpha=chosen.alpha, zeros=zeros)
    pure = declaration.spec.privacy.delta == 0
    sizes = declaration.sizes
    counted = None if sizes is None else Counted(sizes, limit=declaration.protection.rows_per_unit)
    columns = [Column.of(name, attribute) for name, attribute in universe.attributes.items()]
    if isinstance(chosen, AdaptiveSpec):
        return Adaptive(
            columns,
            workload,
            rounds=chosen.rounds,
            pure=pure,
            model_mb=chosen.max_model_mb,
            early_counts=early_counts,
            zeros=zeros,
            counted=counted,
        )
    return Mwem(
        columns,
        workload,
        rounds=chosen.rounds,
        pure=pure,
        early_counts=early_counts,
        zeros=zeros,
        counted=counted,
    )

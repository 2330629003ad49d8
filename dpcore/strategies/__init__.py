"""Strategies, which improve a public model by noisy answers."""

from dpcore.errors import SpecError
from dpcore.marginals.zeros import Zeros
from dpcore.spec import Declaration
from dpcore.spec.release import AdaptiveSpec, PmwSpec
from dpcore.strategies.adaptive import Adaptive, Column, has_levels
from dpcore.strategies.mwem import Mwem
from dpcore.strategies.pmw import Pmw
from dpcore.strategies.strategy import Given, Outline, Strategy, step_name

__all__ = [
    "Adaptive",
    "Column",
    "Given",
    "Mwem",
    "Outline",
    "Pmw",
    "Strategy",
    "has_levels",
    "step_name",
    "strategy_for",
]


def strategy_for(declaration: Declaration, *, given: Given | None = None) -> Strategy:
    """Build the strategy that a spec names. Raise for a universe that it cannot handle, before anything is read or spent.

    Args:
        declaration: The declaration, before or after discovery.
        given: The counts that discovery has bought; None for a plan, before they are known.
    """
    if given is None:
        given = Given({declaration.universe.names.index(name): None for name in declaration.fine})
    universe, workload, chosen = declaration.universe, declaration.workload, declaration.strategy
    zeros = Zeros(universe.possible)
    if isinstance(chosen, PmwSpec):
        if declaration.spec.prior is not None:
            raise SpecError("strategy pmw starts from equal weights and cannot use a `prior`; use mwem or adaptive")
        return Pmw(universe.shape, workload, rounds=chosen.rounds, alpha=chosen.alpha, zeros=zeros)
    pure = declaration.spec.privacy.delta == 0
    if isinstance(chosen, AdaptiveSpec):
        columns = [
            Column(name, each.size, each.ordered, apart=each.size - each.cells)
            for name, each in universe.attributes.items()
        ]
        return Adaptive(
            columns, workload, rounds=chosen.rounds, pure=pure, model_mb=chosen.max_model_mb, given=given, zeros=zeros
        )
    rounds, orders = chosen.rounds, universe.orders
    return Mwem(
        universe.names, universe.shape, workload, rounds=rounds, pure=pure, orders=orders, given=given, zeros=zeros
    )

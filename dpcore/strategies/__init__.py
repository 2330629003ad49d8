"""Strategies, which improve a public model by noisy answers."""

import numpy as np

from dpcore.errors import SpecError
from dpcore.marginals.zeros import Zeros
from dpcore.spec import Declaration
from dpcore.spec.release import AdaptiveSpec, PmwSpec
from dpcore.strategies.adaptive import Adaptive, Column, has_levels
from dpcore.strategies.mwem import Mwem
from dpcore.strategies.pmw import Pmw
from dpcore.strategies.strategy import Given, Outline, Strategy, step_name
from dpcore.universe import Attribute
from dpcore.universe.extremes import bin_extremes

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


def _middles(attribute: Attribute) -> tuple[float, ...]:
    """Return the values in the middle of the cells of a column; none if it has no order."""
    return tuple(np.mean(bin_extremes(attribute), axis=0).tolist()) if attribute.ordered else ()


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
            Column(name, each.size, each.ordered, apart=each.size - each.cells, values=_middles(each))
            for name, each in universe.attributes.items()
        ]
        return Adaptive(
            columns, workload, rounds=chosen.rounds, pure=pure, model_mb=chosen.max_model_mb, given=given, zeros=zeros
        )
    rounds, orders = chosen.rounds, universe.orders
    return Mwem(
        universe.names, universe.shape, workload, rounds=rounds, pure=pure, orders=orders, given=given, zeros=zeros
    )

"""How a release is made: strategies that improve a public model by noisy answers."""

from dpcore.spec import Declaration
from dpcore.spec.release import PmwSpec
from dpcore.strategies.mwem import Mwem
from dpcore.strategies.pmw import Pmw
from dpcore.strategies.strategy import Strategy, step_name

__all__ = ["Mwem", "Pmw", "Strategy", "step_name", "strategy_for"]


def strategy_for(declaration: Declaration) -> Strategy:
    """Build the strategy that a spec names; a universe it cannot work on is refused here, before anything is read or spent."""
    universe, workload, chosen = declaration.universe, declaration.workload, declaration.spec.strategy
    if isinstance(chosen, PmwSpec):
        return Pmw(universe.shape, workload, rounds=chosen.rounds, alpha=chosen.alpha)
    pure = declaration.spec.privacy.delta == 0
    return Mwem(universe.names, universe.shape, workload, rounds=chosen.rounds, pure=pure)

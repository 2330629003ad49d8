"""Learn the functions of dependencies such as `city -> state`, before the strategy begins.

Each function costs one charged measurement of its columns, with the price of any other marginal. What follows from the noisy counts is
post-processing. How rows are read never depends on it: rows that contradict a learned function count like all others.
"""

from dpcore.curator.curator import Curator
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.zeros import Zeros
from dpcore.mechanisms.pricing import marginal_noise
from dpcore.privacy.accounting import Currency
from dpcore.spec import Declaration
from dpcore.strategies.strategy import column_name
from dpcore.universe.dependencies import Depends, LearnedFunction


def learn_functions(
    declaration: Declaration, curator: Curator, *, reserved: int
) -> tuple[Declaration, tuple[LearnedFunction, ...]]:
    """Buy noisy counts of the columns of each dependency, and return the declaration with their functions.

    The functions are learned one after the other. Every combination on the left keeps a possible row, whatever the noise is: its determined
    column is in no other constraint, but that it may determine a further column.

    Args:
        declaration: The declaration, after discovery.
        curator: Charges and draws. It holds the counts of the declaration's universe, or all answers.
        reserved: The budget of the run.
    """
    taken, functions = declaration.checking + declaration.discovering, []
    for number, dependency in enumerate(declaration.dependencies, start=1):
        universe = declaration.universe
        places = [universe.names.index(column) for column in dependency.columns]
        axes = tuple(sorted(places))
        turn = [axes.index(place) for place in places]
        step = f"depends/{number}-{column_name(places[-1], dependency.determined)}"
        measured = curator.measure_marginal(step, axes, share=dependency.share / (1 - taken))
        taken += dependency.share
        counts = measured.values.reshape([universe.shape[axis] for axis in axes]).transpose(turn)
        possible = Zeros(universe.possible).support(axes, Resolutions(universe.shape))
        allowed = None if possible is None else possible.transpose(turn)
        learned = dependency.learned(counts, allowed, universe.attributes)
        functions.append(
            LearnedFunction(
                given=dependency.given,
                determined=dependency.determined,
                rows=learned.rows(universe.attributes),
                clear=dependency.clear(counts, allowed, universe.attributes, noise=measured.noise),
                noise=measured.noise,
                spent=curator.price([step]) / reserved,
            )
        )
        declaration = declaration.related(dependency, learned)
    return declaration, tuple(functions)


def function_noise(declaration: Declaration, dependency: Depends, *, currency: Currency, amount: int) -> float:
    """Return the standard deviation of the noise in the counts of a dependency, for a run that may spend `amount`."""
    bought = int(amount * dependency.share)
    return marginal_noise(bought, currency=currency, protection=declaration.protection).standard_deviation

"""Learn how many rows persons have, for a release that keeps the rows of one synthetic person together.

Persons are counted twice, for half the share of the budget each: by the number of their rows, up to the limit on rows per unit, and by
classes of such numbers. In both, each person adds one to one count.
"""

import numpy as np

from dpcore.curator.curator import Curator
from dpcore.marginals.measurements import Measurement
from dpcore.mechanisms.pricing import marginal_noise
from dpcore.models.persons import NoisyPersons, PersonSizes, size_ends
from dpcore.privacy.accounting import Currency
from dpcore.runs.expected_rows import open_universe
from dpcore.runs.reading import Reading
from dpcore.spec import Declaration

STEPS = ("rows-of-persons/by-size", "rows-of-persons/by-class")
"""The steps that buy the numbers of persons."""


def learn_sizes(declaration: Declaration, curator: Curator, reading: Reading | None) -> PersonSizes:
    """Buy the numbers of persons. Numbers in the transcript need no data.

    Args:
        declaration: The granted declaration, with its limit on rows per unit. Values that are not discovered yet count as if they were declared.
        curator: Charges and draws.
        reading: Reads the table; None if the run is settled and only replayed.
    """
    limit = declaration.protection.rows_per_unit
    if limit == 1:  # the run has chosen to keep one row of each person
        return PersonSizes.of_one()
    if reading is not None and not all(map(curator.answered, STEPS)):
        edges = tuple(range(1, limit))
        curator.receive(reading.tally(open_universe(declaration), edges=edges), lease=reading.lease)
        curator.coarsen(0, np.searchsorted(size_ends(limit), np.arange(1, limit + 1)))
    taken, bought = declaration.limiting + declaration.losing + declaration.totalling, []
    for axis, step in enumerate(STEPS):
        share = declaration.grouping / len(STEPS)
        bought.append(_noisy(curator.measure_marginal(step, (axis,), share=share / (1 - taken))))
        taken += share
    return PersonSizes(*bought)


def _noisy(measurement: Measurement) -> NoisyPersons:
    return NoisyPersons(tuple(map(int, measurement.values.ravel())), noise=measurement.noise)


def size_noise(declaration: Declaration, *, currency: Currency, amount: int) -> float:
    """Return the standard deviation of the noise of these numbers, for a run that may spend `amount`."""
    bought = int(amount * declaration.grouping / len(STEPS))
    protection = declaration.protection.of_one_answer
    return marginal_noise(bought, currency=currency, protection=protection).standard_deviation

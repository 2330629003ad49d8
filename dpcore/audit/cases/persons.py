"""Audit of what is learned about persons with several rows: a canary person of many rows shows no more than one person was charged for."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa

from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import event
from dpcore.audit.checks import Counts, Draw, EventCheck
from dpcore.mechanisms.noise import Noise
from dpcore.mechanisms.pricing import marginal_noise
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.tables.ingest import Coding, Draws, Source, ingest
from dpcore.tables.ingest.bounding import bound
from dpcore.tables.ingest.coded import Coded
from dpcore.tables.ingest.tally import bucketed, started, tally_universe
from dpcore.universe import Categorical, Universe

LIMIT = 4
EDGES = tuple(range(1, LIMIT))
"""Persons are counted by 1, 2, 3 and more rows, as `dpcore.runs.early` counts them."""

PERSONS = 60
"""The other persons. Each has two rows that contradict each other in the constant column, one of either value."""

DRAWS, FEWER_DRAWS = 40_000, 4_000
UNIVERSE = Universe({"sex": Categorical(("F", "M"))})
PROTECTION = Protection(unit="person", rows_per_unit=LIMIT, neighbours=Neighbours.ADD_REMOVE)
WORDS = bytes(32)  # the same draws for both neighbours: which rows are kept must not depend on another person

Counting = Callable[[pa.Table], Counts]


def person_rows() -> Case:
    """Return the audit of the counts behind `persons: {rows_of: ...}`."""
    sizes, rows = _noise(PROTECTION.of_one_answer), _noise(PROTECTION)
    by_size, by_value = "persons by size, a canary of 8 rows", "a constant column, a canary of 8 rows"
    return Case(
        name="person-rows",
        theorem=(
            "A person adds one to one count of persons, and at most as many rows as are kept to counts of rows, whatever the person's rows hold "
            "and however others contradict themselves."
        ),
        reference="Dwork, McSherry, Nissim and Smith 2006",
        prices=dict.fromkeys(Currency, "the price of the noise, for one person with at most the kept rows"),
        checks=(
            _check(by_size, sizes, _by_size, draws=DRAWS),
            _check(by_value, rows, _by_value, draws=DRAWS),
        ),
        bugs=(
            Bug(
                name="rows counted as persons",
                how="each row counts as a person of its own, for the price of one person",
                check=_check(by_size, sizes, _rows_by_size, draws=FEWER_DRAWS),
            ),
            Bug(
                name="rows charged as one row",
                how="all kept rows of a person are counted for the price of one row",
                check=_check(by_value, sizes, _by_value, draws=FEWER_DRAWS),
            ),
            Bug(
                name="constants by majority",
                how="persons who contradict themselves take the value that most rows of the table have",
                check=_check(by_value, rows, _by_majority, draws=FEWER_DRAWS),
            ),
        ),
    )


def _noise(protection: Protection) -> Noise:
    return marginal_noise(AMOUNT_OF_ONE, currency=Currency.PURE, protection=protection)


def _check(setting: str, noise: Noise, count: Counting, *, draws: int) -> EventCheck:
    tables = without, with_canary = count(_table(canary=False)), count(_table(canary=True))
    direction = np.sign(with_canary - without)

    def summed(counts: Counts) -> Draw:
        """Return draws of the noisy counts, added up in the direction in which the neighbours differ: that is what tells them apart."""
        return lambda times: np.asarray(noise.draw(np.tile(counts, (times, 1))) @ direction)

    return event(setting, summed, tables=tables, paid=noise, draws=draws)


@lru_cache(maxsize=2)
def _table(*, canary: bool) -> pa.Table:
    """Return the table. The canary's rows come last, so that the draws of all others are the same with and without it."""
    names = [f"person-{number}" for number in range(PERSONS)]
    own = 2 * LIMIT if canary else 0
    return pa.table(
        {"person": names + names + ["canary"] * own, "sex": ["F"] * PERSONS + ["M"] * PERSONS + ["M"] * own}
    )


def _coding(*, tallies: bool) -> Coding:
    return Coding(
        universe=UNIVERSE,
        protection=PROTECTION,
        window=None,
        edges=EDGES if tallies else None,
        constant=() if tallies else ("sex",),
    )


def _ingested(table: pa.Table, *, tallies: bool, cells: int) -> Counts:
    """Count what the product reads."""
    read = ingest(Source.of(table), coding=_coding(tallies=tallies), draws=Draws(WORDS))
    counts = np.zeros(cells, dtype=np.int64)
    for columns, _ in read.chunks():
        counts += np.bincount(columns[0], minlength=cells)
    return counts


def _by_size(table: pa.Table) -> Counts:
    return _ingested(table, tallies=True, cells=tally_universe(EDGES).shape[0])


def _by_value(table: pa.Table) -> Counts:
    return _ingested(table, tallies=False, cells=UNIVERSE.shape[0])


def _coded(table: pa.Table) -> Coded:
    return _coding(tallies=False).code(table.combine_chunks().to_batches()[0], draws=Draws(WORDS), piece=0, start=0)


def _rows_by_size(table: pa.Table) -> Counts:
    """Count rows by size, without joining those of a person first."""
    buckets = bucketed(started(_coded(table)), edges=EDGES).codes[0]
    return np.bincount(buckets, minlength=tally_universe(EDGES).shape[0]).astype(np.int64)


def _by_majority(table: pa.Table) -> Counts:
    """Count kept rows after a vote of all rows about the constant column of persons who contradict themselves: here, all but the canary."""
    codes = bound(_coded(table), rows_per_unit=LIMIT).codes[0]
    votes = np.bincount(codes, minlength=UNIVERSE.shape[0])
    counts = np.zeros(UNIVERSE.shape[0], dtype=np.int64)
    counts[int(votes.argmax())] = 2 * PERSONS
    counts[1] += len(codes) - 2 * PERSONS
    return counts

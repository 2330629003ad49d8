"""Audit of counts by norm: a canary person with as many rows as are read shows no more than noise for the stated norm was charged for."""

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
from dpcore.tables.counting import count_by_norm
from dpcore.tables.histogram import LocalHistogram
from dpcore.tables.ingest import Coding, Draws, Records, Source, ingest
from dpcore.universe import Categorical, Universe

NORM = 3
PERSONS = 40
"""The other persons. Each has one row, of either value."""

LETTERS = tuple("abcdefghijkl")
DRAWS, FEWER_DRAWS = 40_000, 4_000
UNIVERSE = Universe({"letter": Categorical(LETTERS)})
PROTECTION = Protection(unit="person", rows_per_unit=NORM, neighbours=Neighbours.ADD_REMOVE)
WORDS = bytes(32)  # the same draws for both neighbours: which rows count must not depend on another person
CANARIES = {"in one cell": ("a",) * 2 * NORM**2, "in different cells": LETTERS}

Counting = Callable[[pa.Table], Counts]


def person_norms() -> Case:
    """Return the audit of the counts of `max_rows_per_unit: auto`."""
    return Case(
        name="person-norms",
        theorem=(
            "Of a person as many rows count as keep the norm of its counts within the limit, whatever the person's rows hold. So noise for that norm "
            "hides the person."
        ),
        reference="Dong, Roth and Su 2022, Theorem 1",
        prices={Currency.GDP: "the price of Gaussian noise, for one person of the stated norm"},
        checks=tuple(_check(f"a canary {where}", _counted, rows, draws=DRAWS) for where, rows in CANARIES.items()),
        bugs=(
            Bug(
                name="rows instead of squares",
                how="a person's rows count up to the square of the limit, also if they lie in one cell",
                check=_check("a canary in one cell", _by_rows, CANARIES["in one cell"], draws=FEWER_DRAWS),
            ),
            Bug(
                name="norm of the batch",
                how="rows count as far as the norm of all persons together allows, so that one person takes the room of others",
                check=_check("a canary in one cell", _of_all, CANARIES["in one cell"], draws=FEWER_DRAWS),
            ),
        ),
    )


def _noise() -> Noise:
    return marginal_noise(AMOUNT_OF_ONE, currency=Currency.GDP, protection=PROTECTION, by_norm=True)


def _check(setting: str, count: Counting, rows: tuple[str, ...], *, draws: int) -> EventCheck:
    noise, tables = _noise(), (count(_table(())), count(_table(rows)))
    direction = tables[1] - tables[0]

    def summed(counts: Counts) -> Draw:
        """Return draws of the noisy counts, weighted by how the neighbours differ: that is what tells them apart."""
        return lambda times: np.asarray(noise.draw(np.tile(counts, (times, 1))) @ direction)

    return event(setting, summed, tables=tables, paid=noise, draws=draws, currency=Currency.GDP)


@lru_cache(maxsize=4)
def _table(rows: tuple[str, ...]) -> pa.Table:
    """Return the table. The canary's rows come last, so that the draws of all others are the same with and without it."""
    names = [f"person-{number}" for number in range(PERSONS)]
    letters = [LETTERS[number % len(LETTERS)] for number in range(PERSONS)]
    return pa.table({"person": [*names, *["canary"] * len(rows)], "letter": [*letters, *rows]})


def _read(table: pa.Table) -> Records:
    coding = Coding(universe=UNIVERSE, protection=PROTECTION, window=None, ends=(1, 4))
    return ingest(Source.of(table), coding=coding, draws=Draws(WORDS))


def _counted(table: pa.Table) -> Counts:
    """Count what the product counts."""
    return LocalHistogram.count(_read(table), UNIVERSE).contributions((0,), by_class=False, by_norm=True)


def _by_rows(table: pa.Table) -> Counts:
    """Count rows up to the square of the limit."""
    counts = np.zeros(len(LETTERS), dtype=np.int64)
    for columns, ranks in _read(table).ranked_chunks():
        counts += np.bincount(columns[0][ranks < NORM**2], minlength=len(LETTERS))
    return counts


def _of_all(table: pa.Table) -> Counts:
    """Count rows as if all were of one person, those of persons with many rows first."""
    counts = np.zeros(len(LETTERS), dtype=np.int64)
    for columns, ranks in _read(table).ranked_chunks():
        order = np.argsort(ranks, kind="stable")[::-1]
        everybody = [((columns[0][order],), np.arange(len(order), dtype=np.uint32))]
        counts += count_by_norm(everybody, (0,), shape=UNIVERSE.shape, coarse=(), norm=2 * NORM)
    return counts

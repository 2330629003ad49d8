"""What analysts ask first, for `benchmarks.coverage`: the table of counts of two columns, and counts of single values of a number."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import numpy as np
import pandas as pd

from dpcore.answers.query import Cells, Compare, Count, Key, Output, Query, Term
from dpcore.answers.release import Release
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.spreading import spread_of

PAIRS, VALUES = 6, 12  # of each release, and of each column at full resolution
FEWEST, MOST = 10, 1 << 14  # rows of a cell that is asked for, and cells of a pair


def cells_of_pairs(release: Release, rng: np.random.Generator) -> Iterator[tuple[Query, Count, tuple[int, ...]]]:
    """Yield the tables of counts of random pairs of columns that were measured together, each with its columns."""
    attributes = list(release.universe.attributes.values())
    pairs = sorted(
        {
            pair
            for measured in release.measurements
            if measured.cell is None
            for pair in combinations(sorted(axis for axis in measured.axes if axis < len(attributes)), 2)
        }
    )
    small = [pair for pair in pairs if np.prod([attributes[axis].size for axis in pair]) <= MOST]
    for at in rng.permutation(len(small))[:PAIRS].tolist():
        terms = [Term(axis, Cells() if attributes[axis].ordered else None) for axis in small[at]]
        keys = tuple(Key(str(term.column), term) for term in terms)
        yield Query((Output("x", Count()),), keys=keys), Count(), small[at]


def single_values(release: Release, frame: pd.DataFrame) -> Iterator[tuple[Query, Count, float]]:
    """Yield counts of the most frequent values of numbers at full resolution, each with the true count."""
    for axis, (name, attribute) in enumerate(release.universe.attributes.items()):
        if isinstance(attribute, FineInteger | FineNumber):
            edges = spread_of(attribute).edges
            values = pd.to_numeric(frame[name], errors="coerce").dropna()
            inside = values[(values >= edges[0]) & (values < edges[-1])].value_counts()
            for value, count in inside[inside >= FEWEST].head(VALUES).items():
                asked = Count(Compare(Term(axis), "=", Fraction(str(value))))
                yield Query((Output("x", asked),)), asked, float(count)

"""The work of a cluster's workers: code a piece of the table, finish the units of a partition, count a partition.

Raw rows are read, coded and freed within one call. Between the calls, coded rows are dataframes, which Dask can shuffle.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dpcore.errors import UsageError
from dpcore.marginals.workload import Axes
from dpcore.tables.cluster.failures import publicly
from dpcore.tables.counting import Coarse, Counts, count_by_norm, count_sets
from dpcore.tables.ingest.coded import Coded
from dpcore.tables.ingest.coding import Coding
from dpcore.tables.ingest.fingerprint import Fingerprint, Sums
from dpcore.tables.ingest.records import Coder, finished, piece_sums, reduced, within
from dpcore.tables.sources.part import Part
from dpcore.tables.sources.source import read_piece
from dpcore.version import installed_version


class Task:
    """A call of a function on a worker.

    Dask derives task names from arguments and logs the repr of a failed task, so name and repr are the function's name and a meaningless word.
    """

    def __init__(self, function: Callable[..., Any], *, word: str, doing: str, **settings: Any) -> None:
        self.__name__ = f"dpflow-{function.__name__}"
        self._function = function
        self._word = word
        self._doing = doing
        self._settings = settings
        self._version = installed_version()

    def __call__(self, *arguments: Any) -> Any:
        """Return the function's result. If it fails, raise an error with a public message."""
        if self._version != installed_version():
            raise UsageError(
                "the cluster's workers have another version of dpflow than this run; install the same version there"
            )
        return publicly(
            lambda: self._function(*arguments, **self._settings), doing=self._doing, where="on a worker of the cluster"
        )

    def __repr__(self) -> str:
        return f"<{self.__name__} {self._word}>"

    def __dask_tokenize__(self) -> tuple[str, str]:
        return self.__name__, self._word


def as_frame(coded: Coded) -> pd.DataFrame:
    """Return coded rows as a dataframe, whose columns are numbered in the order of `Coded.columns`."""
    return pd.DataFrame({str(place): column for place, column in enumerate(coded.columns())}, copy=False)


def as_coded(frame: pd.DataFrame, kind: Coded) -> Coded:
    """Return the rows of a dataframe. The first argument's columns are those of `kind`, which has no rows."""
    return kind.like([frame[name].to_numpy() for name in frame])


def id_column(kind: Coded) -> str:
    """Return the column of a dataframe that holds the first word of the ids, which comes before the second one and the draw."""
    return str(len(kind.columns()) - 3)


def without_rows(coder: Coder) -> Coded:
    """Return coded rows of which there are none, with the columns that a coder gives them."""
    columns = list(coder.coding.columns)
    return coder.code(pa.record_batch([pa.nulls(0)] * len(columns), names=columns), piece=0, start=0)[0]


def sum_piece(
    *, piece: Part, number: int, coding: Coding, undecided: Collection[str], fingerprint: Fingerprint
) -> Sums:
    """Read a piece only for the data's version. Return its fingerprint sums."""
    del number
    return piece_sums(piece, coding=coding, undecided=undecided, fingerprint=fingerprint)


def code_piece(*, piece: Part, number: int, coder: Coder) -> tuple[pd.DataFrame, Sums]:
    """Read a piece and code its rows. Return them, and their fingerprint sums."""
    parts, sums, start = [without_rows(coder)], Fingerprint.nothing(), 0
    for batch in read_piece(piece, columns=coder.coding.columns):
        coded, added = coder.code(batch, piece=number, start=start)
        parts.append(coded)
        sums += added
        start += batch.num_rows
    rows = Coded.joined(parts)
    # a row that is not among the k smallest draws of its unit here is not among them in the whole table: do not send it
    return as_frame(reduced(rows, coder.coding) if coder.coding.by_unit else rows), sums


def finish_units(frame: pd.DataFrame, *, kind: Coded, coding: Coding) -> pd.DataFrame:
    """Return the records of the units of a partition, which holds all their rows."""
    return as_frame(finished(reduced(as_coded(frame, kind), coding), coding))


def count_partition_by_norm(  # noqa: PLR0913  as `count_by_norm`
    frame: pd.DataFrame, *, kind: Coded, shape: Sequence[int], axes: Axes, coarse: Sequence[Coarse], norm: int
) -> Counts:
    """Count a partition of whole units by norm, and return the counts in one row."""
    rows = as_coded(frame, kind)
    counts = count_by_norm([(rows.codes, rows.weights)], axes, shape=shape, coarse=coarse, norm=norm)
    return counts.reshape(1, -1)


def count_partition(  # noqa: PLR0913  as `count_sets`
    frame: pd.DataFrame,
    *,
    kind: Coded,
    shape: Sequence[int],
    sets: Sequence[Axes],
    coarse: Sequence[Coarse],
    limit: int | None,
) -> Counts:
    """Count a partition over some sets of axes, and return all counts in one row. The rows of all partitions add up.

    With a limit, rows have ranks as weights, and so many of each unit count.
    """
    rows = as_coded(frame, kind)
    ranks = rows.weights
    weights = ranks if limit is None or ranks is None else within(ranks, limit=limit)
    counts = count_sets([(rows.codes, weights)], shape=shape, sets=sets, coarse=coarse)
    return np.concatenate([marginal.ravel() for marginal in counts])[np.newaxis]

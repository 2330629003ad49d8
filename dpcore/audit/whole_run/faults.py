"""Faults planted along the path of a release, from the source file to Parquet. For made-up tables only, never for private data."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from dpcore.audit.planted import HalfNoiseCurator, Variant
from dpcore.curator.charges import Statistic
from dpcore.curator.curator import Curator
from dpcore.ledger import Lease
from dpcore.mechanisms import Mechanism
from dpcore.mechanisms.pricing import marginal_noise
from dpcore.object_store import AnyPath
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection, Sensitivity
from dpcore.release import ChosenLimit
from dpcore.reporting import lineage
from dpcore.runs import synthesis
from dpcore.runs.rows_per_unit import NoisyUnits, choice_of
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import Declaration
from dpcore.spec.release import AUTO_LIMITS
from dpcore.strategies.mwem import Mwem
from dpcore.tables.histogram import Histogram
from dpcore.tables.ingest import coding, records
from dpcore.tables.ingest.bounding import bound
from dpcore.tables.ingest.coded import Coded
from dpcore.tables.sources.ids import hash_ids
from dpcore.tables.sources.source import read_piece

PART = 50
"""The number of rows in a part of `bounded_part_by_part`."""

TIMES_DRAWN = 9
CHEAPER = 4


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace a function of the product in this process while the context is open."""
    before = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


# Reading


@contextmanager
def rows_read_twice() -> Iterator[None]:
    """Read every batch of the file twice."""
    read = read_piece

    def twice(piece: Any, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in read(piece, columns=columns):
            yield batch
            yield batch

    with _replaced(records, "read_piece", twice):
        yield


@contextmanager
def quotes_believed() -> Iterator[None]:
    """Parse quotes in a file that has no quoting: a quote at the start of one row's note swallows the rows up to the next quote."""

    def believing(piece: Any, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        text = Path(piece.file.path).read_text(encoding="utf-8")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        yield pa.RecordBatch.from_arrays(
            [pa.array([row[column] for row in rows]) for column in columns], names=list(columns)
        )

    with _replaced(records, "read_piece", believing):
        yield


def trailing_zeros_removed(ids: pa.Array) -> pa.Array:
    """Shorten text that looks like a decimal number, as if its trailing zeros said nothing."""
    return compute.replace_substring_regex(ids.cast(pa.string()), r"^(-?[0-9]+(?:\.[0-9]*[1-9])?)\.?0*$", r"\1")


@contextmanager
def ids_folded() -> Iterator[None]:
    """Read ids that are text as numbers: the members 1, 10 and 100 of a household are one person."""

    def folded(ids: pa.Array, *, key: bytes) -> Any:
        return hash_ids(trailing_zeros_removed(ids), key=key)

    with _replaced(coding, "hash_ids", folded):
        yield


# Bounding


def _not_bounded(coded: Coded, *, rows_per_unit: int) -> Coded:
    del rows_per_unit
    return coded


def _bounded_over_all(coded: Coded, *, rows_per_unit: int) -> Coded:
    if coded.ids is None or coded.draws is None:
        return coded
    units = len(np.unique(coded.ids[:, 0]))
    return coded.take(np.sort(np.argsort(coded.draws)[: rows_per_unit * units]))


def _bounded_by_part(coded: Coded, *, rows_per_unit: int) -> Coded:
    starts = range(0, max(coded.rows, 1), PART)
    parts = [coded.take(np.arange(start, min(start + PART, coded.rows))) for start in starts]
    return Coded.joined([bound(part, rows_per_unit=rows_per_unit) for part in parts])


@contextmanager
def not_bounded() -> Iterator[None]:
    """Keep all rows of every person."""
    with _replaced(records, "bound", _not_bounded):
        yield


@contextmanager
def bounded_over_all() -> Iterator[None]:
    """Bound the total number of rows instead of the rows per person: persons with many rows displace others."""
    with _replaced(records, "bound", _bounded_over_all):
        yield


@contextmanager
def bounded_part_by_part() -> Iterator[None]:
    """Bound each part of the file separately, but not the parts together."""
    with _replaced(records, "bound", _bounded_by_part):
        yield


@contextmanager
def limit_not_kept() -> Iterator[None]:
    """Keep as many rows of a person as the largest limit allows, although a smaller one was chosen and paid for."""

    def most(coded: Coded, *, rows_per_unit: int) -> Coded:
        return bound(coded, rows_per_unit=max(rows_per_unit, AUTO_LIMITS[-1]))

    with _replaced(records, "bound", most):
        yield


@contextmanager
def limit_not_paid() -> Iterator[None]:
    """Choose the largest limit, and scale the noise for one row per person."""

    def largest(declaration: Declaration, units: NoisyUnits, *, currency: Currency, spent: float) -> ChosenLimit:
        return replace(choice_of(declaration, units, currency=currency, spent=spent), rows=AUTO_LIMITS[-1])

    with _replaced(synthesis, "choice_of", largest), _replaced(Protection, "most", property(lambda _: 1)):
        yield


# Charging and drawing


class _Redrawn(Curator):
    def _marginal_mechanism(self, share: Fraction) -> Any:
        stated: Any = super()._marginal_mechanism(share)

        def mean(counts: Any) -> Any:
            draws = [stated.draw(counts) for _ in range(TIMES_DRAWN)]
            return np.rint(np.mean(draws, axis=0)).astype(np.int64)

        return Variant(stated=stated, drawn=mean)


class _Underpriced(Curator):
    def _marginal_mechanism(self, share: Fraction) -> Any:
        amount = CHEAPER * self._amount(share)
        return marginal_noise(amount, currency=self._currency, protection=self._protection)

    def _charge_then(
        self, step: str, statistic: Statistic, *, mechanism: Mechanism, draw: Callable[[Histogram], bytes]
    ) -> bytes:
        del statistic
        amount = max(1, mechanism.price(self._currency) // CHEAPER)
        if self._received is None:
            return b""
        histogram, lease = self._received
        operation = self._ledger.charge(lease, step=step, amount=amount, mechanism=mechanism.describe())
        output = draw(histogram)
        self._ledger.commit(operation, output)
        self._paid[step] = amount
        return output


@contextmanager
def half_noise() -> Iterator[None]:
    """Draw noise of half the scale that is charged for."""
    with _replaced(synthesis, "Curator", HalfNoiseCurator):
        yield


@contextmanager
def redrawn() -> Iterator[None]:
    """Draw each measurement nine times for one charge, as retries might, and keep the mean."""
    with _replaced(synthesis, "Curator", _Redrawn):
        yield


@contextmanager
def underpriced() -> Iterator[None]:
    """Charge a quarter of each measurement's price."""
    with _replaced(synthesis, "Curator", _Underpriced):
        yield


@contextmanager
def rows_of_a_person_forgotten() -> Iterator[None]:
    """Scale the noise for one row per person, although several are kept."""
    one = Sensitivity(l1=1, l2_squared=1, linf=1)
    with _replaced(Protection, "sensitivity", property(lambda _: one)):
        yield


@contextmanager
def neighbours_ignored() -> Iterator[None]:
    """Use the sensitivity of adding or removing a unit, whatever the neighbours are."""

    def added(protection: Protection) -> Sensitivity:
        m = protection.most
        return Sensitivity(l1=m, l2_squared=m * m, linf=m)

    with _replaced(Protection, "sensitivity", property(added)):
        yield


# Sampling and publishing


@contextmanager
def exact_counts_published() -> Iterator[None]:
    """Publish the exact counts, with the scale of noise that they do not have."""
    publish = Synthesis.publish

    def exactly(run: Synthesis, rows: Any) -> AnyPath:
        received: Any = run.curator._received  # noqa: SLF001  which is the fault
        for place, measured in enumerate(run.strategy.measurements):
            run.strategy.measurements[place] = replace(measured, values=received[0].marginal(measured.axes).copy())
        return publish(run, rows)

    with _replaced(Synthesis, "publish", exactly):
        yield


@contextmanager
def rows_of_the_real_table() -> Iterator[None]:
    """Draw the rows from the exact histogram instead of the model."""
    receive, conclude = Curator.receive, Mwem.conclude
    received: list[Histogram] = []

    def keep(curator: Curator, histogram: Histogram, *, lease: Lease) -> None:
        received.append(histogram)
        receive(curator, histogram, lease=lease)

    def copy_the_table(strategy: Mwem) -> None:
        conclude(strategy)
        axes = tuple(range(len(strategy.model.shape)))
        counts = received[-1].marginal(axes)
        strategy.model.assign({axes: np.log(np.maximum(counts, 1e-9))})
        strategy.model.rescale(float(counts.sum()))

    with _replaced(Curator, "receive", keep), _replaced(Mwem, "conclude", copy_the_table):
        yield


@contextmanager
def own_run_stated() -> Iterator[None]:
    """State the reservation of the own run only, although the measurements of earlier runs are published again."""
    with _replaced(lineage, "needed_for", lambda *_: ()):
        yield

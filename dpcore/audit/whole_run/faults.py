"""Faults planted along the path of a release, from the source file to Parquet. For made-up tables only, never for private data."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.audit.planted import HalfNoiseCurator, TrueErrorGate, Variant
from dpcore.curator import curator as curators
from dpcore.curator.charges import Statistic
from dpcore.curator.curator import Curator
from dpcore.curator.gate import Gatekeeper
from dpcore.ledger import Lease
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes
from dpcore.mechanisms import Mechanism
from dpcore.mechanisms.noise import Noise
from dpcore.mechanisms.noisy_histogram import NoisyHistogram
from dpcore.mechanisms.pricing import marginal_noise
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.models.start import PublicRows
from dpcore.object_store import AnyPath
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.release import ChosenLimit
from dpcore.reporting import lineage
from dpcore.runs import beginning, discovery, early, synthesis
from dpcore.runs.planning.limits import NoisyUnits, choice_of
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import Declaration
from dpcore.spec.release import AUTO_LIMITS
from dpcore.strategies.by_rounds import ByRounds
from dpcore.tables.histogram import Histogram
from dpcore.tables.ingest import coding, records, violations
from dpcore.tables.ingest.agreement import agreed
from dpcore.tables.ingest.bounding import bound
from dpcore.tables.ingest.coded import Coded
from dpcore.tables.ingest.window import Window
from dpcore.tables.sources.ids import hash_ids
from dpcore.tables.sources.source import read_piece
from dpcore.universe import Universe
from dpcore.universe.attribute import DROPPED
from dpcore.universe.constraints import Comparison
from dpcore.universe.orders import Order
from dpcore.universe.sums import Sum

PART = 50
"""The number of rows in a part of `bounded_part_by_part`."""

CHEAPER = 4


def _replaced(owner: Any, name: str, value: Any) -> AbstractContextManager[None]:
    """Replace a function of the product in this process while the context is open."""
    return patch.object(owner, name, value)


# Reading


def rows_read_twice() -> AbstractContextManager[None]:
    """Read every batch of the file twice."""
    read = read_piece

    def twice(piece: Any, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in read(piece, columns=columns):
            yield batch
            yield batch

    return _replaced(records, "read_piece", twice)


def nulls_filled_forward() -> AbstractContextManager[None]:
    """Fill the nulls of a column with the value in the row before."""
    read = read_piece

    def filled(piece: Any, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in read(piece, columns=columns):
            arrays = [pc.fill_null_forward(pc.if_else(pc.equal(column, ""), None, column)) for column in batch.columns]
            yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    return _replaced(records, "read_piece", filled)


def quotes_believed() -> AbstractContextManager[None]:
    """Parse quotes in a file that has no quoting: a quote at the start of one row's note swallows the rows up to the next quote."""

    def believing(piece: Any, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        text = Path(piece.file.path).read_text(encoding="utf-8")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        yield pa.RecordBatch.from_arrays(
            [pa.array([row[column] for row in rows]) for column in columns], names=list(columns)
        )

    return _replaced(records, "read_piece", believing)


def trailing_zeros_removed(ids: pa.Array) -> pa.Array:
    """Shorten text that looks like a decimal number, as if its trailing zeros said nothing."""
    return pc.replace_substring_regex(ids.cast(pa.string()), r"^(-?[0-9]+(?:\.[0-9]*[1-9])?)\.?0*$", r"\1")


def ids_folded() -> AbstractContextManager[None]:
    """Read ids that are text as numbers: the members 1, 10 and 100 of a household are one person."""

    def folded(ids: pa.Array, *, key: bytes) -> Any:
        return hash_ids(trailing_zeros_removed(ids), key=key)

    return _replaced(coding, "hash_ids", folded)


# Bounding


def not_bounded() -> AbstractContextManager[None]:
    """Keep all rows of every person."""
    return _replaced(records, "bound", lambda coded, **_: coded)


def bounded_over_all() -> AbstractContextManager[None]:
    """Bound the total number of rows instead of the rows per person: persons with many rows displace others."""

    def over_all(coded: Coded, *, rows_per_unit: int) -> Coded:
        if coded.ids is None or coded.draws is None:
            return coded
        units = len(np.unique(coded.ids[:, 0]))
        return coded.take(np.sort(np.argsort(coded.draws)[: rows_per_unit * units]))

    return _replaced(records, "bound", over_all)


def bounded_part_by_part() -> AbstractContextManager[None]:
    """Bound each part of the file separately, but not the parts together."""

    def by_part(coded: Coded, *, rows_per_unit: int) -> Coded:
        starts = range(0, max(coded.rows, 1), PART)
        parts = [coded.take(np.arange(start, min(start + PART, coded.rows))) for start in starts]
        return Coded.joined([bound(part, rows_per_unit=rows_per_unit) for part in parts])

    return _replaced(records, "bound", by_part)


def limit_not_kept() -> AbstractContextManager[None]:
    """Keep as many rows of a person as the largest limit allows, although a smaller one was chosen and paid for."""

    def most(coded: Coded, *, rows_per_unit: int) -> Coded:
        return bound(coded, rows_per_unit=max(rows_per_unit, AUTO_LIMITS[-1]))

    return _replaced(records, "bound", most)


@contextmanager
def limit_not_paid() -> Iterator[None]:
    """Choose the largest limit, and scale the noise for one row per person."""

    def largest(declaration: Declaration, units: NoisyUnits, *, currency: Currency, spent: float) -> ChosenLimit:
        return replace(choice_of(declaration, units, currency=currency, spent=spent), rows=AUTO_LIMITS[-1])

    with _replaced(early, "choice_of", largest), _replaced(Protection, "most", property(lambda _: 1)):
        yield


# Charging and drawing


class _Redrawn(Curator):
    def _marginal_mechanism(self, share: Fraction, **way: bool) -> Any:
        stated: Any = super()._marginal_mechanism(share, **way)

        def mean(counts: Any) -> Any:
            draws = [stated.draw(counts) for _ in range(9)]
            return np.rint(np.mean(draws, axis=0)).astype(np.int64)

        return Variant(stated=stated, drawn=mean)


class _Underpriced(Curator):
    def _marginal_mechanism(self, share: Fraction, **way: bool) -> Any:
        amount = CHEAPER * self._amount(share)
        return marginal_noise(amount, currency=self._currency, protection=self._protection, **way)

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


def half_noise() -> AbstractContextManager[None]:
    """Draw noise of half the scale that is charged for."""
    return _replaced(synthesis, "Curator", HalfNoiseCurator)


def redrawn() -> AbstractContextManager[None]:
    """Draw each measurement nine times for one charge, as retries might, and keep the mean."""
    return _replaced(synthesis, "Curator", _Redrawn)


def underpriced() -> AbstractContextManager[None]:
    """Charge a quarter of each measurement's price."""
    return _replaced(synthesis, "Curator", _Underpriced)


def rows_of_a_person_forgotten() -> AbstractContextManager[None]:
    """Scale the noise for one row per person, although several are kept."""
    return _replaced(Protection, "sensitivity", property(lambda _: Sensitivity(l1=1, l2_squared=1, linf=1)))


def neighbours_ignored() -> AbstractContextManager[None]:
    """Use the sensitivity of adding or removing a unit, whatever the neighbours are."""

    def added(protection: Protection) -> Sensitivity:
        m = protection.most
        return Sensitivity(l1=m, l2_squared=m * m, linf=m)

    return _replaced(Protection, "sensitivity", property(added))


# Sampling and publishing


def exact_counts_published() -> AbstractContextManager[None]:
    """Publish the exact counts, with the scale of noise that they do not have."""
    publish = Synthesis.publish

    def exactly(run: Synthesis) -> AnyPath:
        received: Any = run.curator._received  # noqa: SLF001  which is the fault
        for place, measured in enumerate(run.strategy.measurements):
            exact, cell = received[0].marginal(measured.axes).copy(), measured.cell
            values = exact if cell is None else exact.ravel()[cell : cell + 1]
            run.strategy.measurements[place] = replace(measured, values=values)
        return publish(run)

    return _replaced(Synthesis, "publish", exactly)


@contextmanager
def _received() -> Iterator[list[Histogram]]:
    """Yield the exact histograms that curators receive meanwhile."""
    receive = Curator.receive
    received: list[Histogram] = []

    def keep(curator: Curator, histogram: Histogram, *, lease: Lease) -> None:
        received.append(histogram)
        receive(curator, histogram, lease=lease)

    with _replaced(Curator, "receive", keep):
        yield received


@contextmanager
def rows_of_the_real_table() -> Iterator[None]:
    """Draw the rows from the exact histogram instead of the model."""
    conclude = ByRounds.conclude

    def copy_the_table(strategy: ByRounds) -> None:
        conclude(strategy)
        axes = tuple(range(len(strategy.model.shape)))
        counts = received[-1].marginal(axes)
        strategy.model.assign({axes: np.log(np.maximum(counts, 1e-9))})
        strategy.model.rescale(float(counts.sum()))

    with _received() as received, _replaced(ByRounds, "conclude", copy_the_table):
        yield


# Discovery, trees and constraints


def noise_for_what_is_there() -> AbstractContextManager[None]:
    """Add noise only to counts above 0, as if it were drawn for the values that were met."""
    stated = Curator._marginal_mechanism  # noqa: SLF001  which is the fault

    def sparse(curator: Curator, share: Fraction, **way: bool) -> Any:
        noise: Any = stated(curator, share, **way)
        return Variant(stated=noise, drawn=lambda counts: np.where(counts > 0, noise.draw(counts), 0))

    return _replaced(Curator, "_marginal_mechanism", sparse)


def _exactly(steps: str) -> Any:
    """Return a replacement of `Curator.measure_marginal` that charges for steps that begin so, and returns their exact counts."""
    measure = Curator.measure_marginal

    def exact(curator: Curator, step: str, axes: Axes, *, share: Fraction, **way: bool) -> Measurement:
        measured, received = measure(curator, step, axes, share=share, **way), curator._received  # noqa: SLF001  which is the fault
        if received is None or not step.startswith(steps):
            return measured
        return replace(measured, values=received[0].marginal(axes).copy())

    return exact


@contextmanager
def found_by_exact_counts() -> Iterator[None]:
    """Find values by their exact counts, after noisy ones were paid for and stored."""
    with (
        _replaced(Curator, "measure_marginal", _exactly("discover/")),
        _replaced(discovery, "threshold", lambda *_, **__: 1),
    ):
        yield


def functions_of_exact_counts() -> AbstractContextManager[None]:
    """Learn the function of a dependency from exact counts, after noisy ones were paid for and stored."""
    return _replaced(Curator, "measure_marginal", _exactly("depends/"))


def _largest_repair(kind: type[Comparison]) -> AbstractContextManager[None]:
    rule = violations._Compared  # noqa: SLF001  which is the fault
    repair = rule.repaired

    def largest(self: Any, codes: Any, rows: Any) -> Any:
        repaired = repair(self, codes, rows)
        return np.full_like(repaired, repaired.max(initial=0)) if isinstance(self.constraint, kind) else repaired

    return _replaced(rule, "repaired", largest)


def orders_repaired_by_the_batch() -> AbstractContextManager[None]:
    """Repair all rows of a batch that violate an order by the largest repaired value among them."""
    return _largest_repair(Order)


def sums_repaired_by_the_batch() -> AbstractContextManager[None]:
    """Repair all rows of a batch that violate a sum by the largest repaired total among them."""
    return _largest_repair(Sum)


@contextmanager
def batches_dropped() -> Iterator[None]:
    """Drop a whole batch if one of its rows is an impossible combination."""
    violated = violations._Table.violated  # noqa: SLF001  which is the fault

    def all_or_none(table: Any, codes: Any) -> Any:
        rows = violated(table, codes)
        return np.full_like(rows, rows.any())

    def dropped(_: Any, __: Any, rows: Any) -> Any:
        return np.full(len(rows), DROPPED)

    with (
        _replaced(violations._Table, "violated", all_or_none),  # noqa: SLF001  likewise
        _replaced(violations._Table, "repaired", dropped),  # noqa: SLF001  likewise
    ):
        yield


# Persons, weights and blocks


def units_priced_as_added() -> AbstractContextManager[None]:
    """Scale the noise of counts of units for adding or removing one, although one is replaced."""

    def added(protection: Protection) -> Protection:
        return replace(protection, rows_per_unit=1, weight=None, row_weight=1, neighbours=Neighbours.ADD_REMOVE)

    return _replaced(Protection, "of_one_answer", property(added))


def units_without_noise() -> AbstractContextManager[None]:
    """Count units without noise, as if only counts of rows were private."""

    def exact(*_: Any, **terms: Any) -> Any:
        stated = marginal_noise(*_, **terms)
        return Variant(stated=stated, drawn=lambda counts: counts.copy())

    return _replaced(curators, "marginal_noise", exact)


def rows_added_by_agreement() -> AbstractContextManager[None]:
    """Make the rows of a person agree by joining each with every other, so that their number is squared."""

    def joined(coded: Coded, *, axes: Sequence[int]) -> Coded:
        same = agreed(coded, axes=axes)
        return Coded.joined([same] * 3)

    return _replaced(records, "agreed", joined)


def weights_not_clipped() -> AbstractContextManager[None]:
    """Count a row as often as its weight says, however large it is."""

    def unclipped(column: pa.Array, **_: object) -> Any:
        return np.array(column.cast(pa.int64()).to_numpy(zero_copy_only=False), dtype=np.uint64)

    return _replaced(coding, "read_weights", unclipped)


def all_blocks_read() -> AbstractContextManager[None]:
    """Read the rows of all blocks, although a run was granted only some."""
    return _replaced(Window, "keeps", lambda _, batch: np.ones(batch.num_rows, dtype=np.bool_))


@contextmanager
def blocks_and_neighbours_ignored() -> Iterator[None]:
    """Read the rows of all blocks, with the noise for a unit that is added to one or removed from one."""
    with all_blocks_read(), neighbours_ignored():
        yield


# Priors and sessions


@contextmanager
def prior_from_the_real_table() -> Iterator[None]:
    """Start from the real table instead of the public one or the earlier release."""

    def private(_batches: Any, universe: Universe, *, columns: Sequence[str]) -> PublicRows:
        del columns
        counts = received[-1].marginal(tuple(range(len(universe.shape))))
        codes = np.unravel_index(np.repeat(np.arange(counts.size), counts.ravel()), counts.shape)
        return PublicRows(dict(enumerate(codes)), rows=int(counts.sum()))

    with _received() as received, _replaced(beginning, "coded_rows", private):
        yield


def own_run_stated() -> AbstractContextManager[None]:
    """State the reservation of the own run only, although the measurements of earlier runs are published again."""
    return _replaced(lineage, "needed_for", lambda *_: ())


def checked_for_nothing() -> AbstractContextManager[None]:
    """Check that a table is unchanged by its exact counts, for nothing, and learn from these."""
    measure = Curator.measure_marginal

    def exact(curator: Curator, step: str, axes: Axes, *, share: Fraction, **way: bool) -> Measurement:
        received, ledger = curator._received, curator._ledger  # noqa: SLF001  which is the fault
        if received is None or len(ledger.runs("canaries")) == 1:
            return measure(curator, step, axes, share=share, **way)
        return Measurement(step, axes, None, received[0].marginal(axes).copy(), curator.expected_noise(share))

    return _replaced(Curator, "measure_marginal", exact)


def exact_the_second_time() -> AbstractContextManager[None]:
    """Answer a question that is bought a second time from the exact table."""
    measure = Curator.measure_grid

    def again(curator: Curator, step: str, axes: Axes, *, mechanism: Any, **more: Any) -> bytes:
        exact = _replaced(Noise, "draw", lambda _, counts: counts.copy())
        with exact if step.endswith("/2") else nullcontext():
            return measure(curator, step, axes, mechanism=mechanism, **more)

    return _replaced(Curator, "measure_grid", again)


def compared_without_noise() -> AbstractContextManager[None]:
    """Compare errors with the threshold of an online session without noise."""

    def noiseless(keeper: Gatekeeper, step: str, mechanism: SparseVector, *, threshold: int) -> Any:
        operation = keeper._charge(step, Statistic.GATE, mechanism)  # noqa: SLF001  which is the fault
        return operation, TrueErrorGate(keeper._histogram, mechanism, threshold=threshold)  # noqa: SLF001  likewise

    return _replaced(Gatekeeper, "open_gate", noiseless)


def asked_without_noise() -> AbstractContextManager[None]:
    """Answer a question from Python without noise, after it was paid for."""
    return _replaced(NoisyHistogram, "answer", lambda _, exact: exact.for_noise())


# Clusters and the ledger


def partitions_bounded_one_by_one() -> AbstractContextManager[None]:
    """Bound the rows of a person in each partition of a cluster separately, without bringing them together first."""
    from dask.dataframe import DataFrame  # noqa: PLC0415  an extra

    owner = next(base for base in DataFrame.__mro__ if "shuffle" in vars(base))
    return _replaced(owner, "shuffle", lambda frame, **_: frame)


def counts_described() -> AbstractContextManager[None]:
    """Write exact counts into the description of a mechanism, which the ledger exports."""
    charge = Curator._charge_then  # noqa: SLF001  which is the fault

    def described(
        curator: Curator, step: str, statistic: Statistic, *, mechanism: Mechanism, draw: Callable[[Histogram], bytes]
    ) -> bytes:
        received: Any = curator._received  # noqa: SLF001  likewise
        counted = {**mechanism.describe(), "counts": received[0].marginal((0,)).tolist()}
        telling: Any = SimpleNamespace(price=mechanism.price, describe=lambda: counted)
        return charge(curator, step, statistic, mechanism=telling, draw=draw)

    return _replaced(Curator, "_charge_then", described)

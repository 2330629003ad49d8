"""Buy a few noisy figures of how far a release is from the true table. They may be published, unlike everything else in a comparison."""

import json
import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from dpcore.answers.release import open_release
from dpcore.comparison.baselines import some_of
from dpcore.comparison.compare import read_release, source_of
from dpcore.comparison.errors import MOST_MARGINALS
from dpcore.comparison.matching import Origin, made_from
from dpcore.comparison.rows import CodedRows, Comparable
from dpcore.curator.curator import Curator, Offer
from dpcore.errors import BudgetRefused, UsageError
from dpcore.ledger import Account, Lease, Ledger, open_ledger
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes
from dpcore.mechanisms.pricing import number_noise
from dpcore.places import places_of_spec, using
from dpcore.privacy.accounting import AMOUNT_OF_ONE, budget_of
from dpcore.release import check_writable, state
from dpcore.release.atomic_files import replacing
from dpcore.reporting.lineage import figures_claim
from dpcore.runs.paying import in_epsilon, paying_account
from dpcore.runs.reading import Reading, Table
from dpcore.spec import Declaration
from dpcore.spec.changes import Changes, changed
from dpcore.steward.approvals import check_approved
from dpcore.tables.engines import LocalEngine
from dpcore.tables.ingest import check_key

progress = logging.getLogger("dpcore.progress")

MOST_CELLS, MOST_TOGETHER = 1_000_000, 16_000_000
"""The most cells of a marginal that a figure covers, and of all together, so that memory stays bounded."""

STEPS = {
    "error/workload": "the mean error of the marginals of the workload",
    "error/columns": "the mean error of single columns",
    "error/largest": "the largest error of a single count in the workload",
}


@dataclass(frozen=True)
class Figure:
    """A noisy figure that may be published.

    Attributes:
        name: What it is.
        rows: Its value in rows; 0 if its noise makes it negative. The error of a marginal is the sum of the absolute differences between its counts and the released ones.
        noise: The standard deviation of its noise, in rows.
        share: Its value as a share of `total`.
        total: The number of rows that the release stands for, by its own noisy measurements.
        marginals: How many marginals it covers.
    """

    name: str
    rows: int
    noise: float
    share: float
    total: float
    marginals: int

    @property
    def words(self) -> str:
        """The figure as text."""
        return f"{self.name}: {self.rows:,} rows ({self.share:.4f} of {self.total:,.0f}), noise {self.noise:,.1f}"


@dataclass(frozen=True)
class Bought:
    """Figures that were bought, what they promise, and where they were published."""

    figures: Sequence[Figure]
    promise: str
    file: Path
    run: str
    spent: float


def buy_figures(release: str | Path, spec: str | Path, *, epsilon: float, approved: bool, table: Any = None) -> Bought:
    """Buy the figures from the account of the release, and write them beside the release.

    The whole price is reserved before the table is read, and each figure is charged before it is drawn. Which marginals are compared, and
    with what, follows from the release alone. The table is bounded by the limit on rows per unit, as in a run.

    Args:
        release: The folder of the release, or of its dataset for the newest one.
        spec: The spec that it was made from.
        epsilon: The epsilon of all figures together, at the delta of the spec.
        approved: Whether the steward approves an epsilon above the account's threshold.
        table: A table to read instead of the spec's source.

    Raises:
        BudgetRefused: If the account cannot pay. Nothing was read.
    """
    opened, spec = open_release(release), Path(spec)
    places = places_of_spec(spec)
    with using(places), open_ledger(places=places) as ledger:
        ledger.require_current()
        origin = made_from(opened, spec, ledger=ledger, with_table=table is not None)
        if opened.describes_all:
            raise UsageError(
                "the release describes all rows, although only some rows of each unit were counted, so its errors cannot be bought; see them with "
                "`dpflow report` for yourself alone, or declare a number as `max_rows_per_unit`"
            )
        asked = _asked(origin, epsilon)
        check_approved(asked, approved=approved)
        check_writable(opened.local_folder.parent)
        account = paying_account(ledger, asked)
        source = source_of(origin, table)
        expected = _Expected.of(origin)
        check_key(places.private)
        lease = _reserve(ledger, origin, asked, account=account)
        reading = Reading(
            origin.granted,
            table=Table(source, LocalEngine(), private=places.private),
            ledger=ledger,
            lease=lease,
            blocks=origin.blocks,
        )
        progress.info("reading the true table")
        curator = Curator(
            ledger=ledger, run_id=lease.run, protection=origin.granted.protection, currency=account.currency
        )
        curator.receive(reading.count(opened.universe), lease=lease)
        expected.coarsen(curator)
        measured = _measure(curator, expected)
        ledger.settle(lease.run, release=None, lease=lease)
        return _publish(ledger, origin, asked, lease=lease, figures=expected.figures(measured))


def _asked(origin: Origin, epsilon: float) -> Declaration:
    """Return the declaration of the run that buys the figures: that of the release, with the price that the steward names."""
    return replace(origin.granted, spec=changed(origin.granted, Changes(epsilon=epsilon, delta=origin.delta)).spec)


def _reserve(ledger: Ledger, origin: Origin, asked: Declaration, *, account: Account) -> Lease:
    privacy = asked.spec.privacy
    _, amount = budget_of(privacy.epsilon, delta=privacy.delta, currency=account.currency)
    # raises, before anything is reserved, if the noise would be wider than the sampler can draw
    number_noise(amount // len(STEPS), currency=account.currency, sensitivity=asked.protection.sensitivity.l1)
    run_id = str(uuid.uuid4())
    try:
        ledger.reserve(
            run_id,
            account=account.name,
            amount=amount,
            claim=figures_claim(str(origin.run.release)),
            blocks=origin.blocks,
            analyst=asked.spec.analyst,
            purpose=asked.spec.purpose,
        )
    except BudgetRefused as refused:
        raise in_epsilon(refused, asked, currency=account.currency, amount=amount) from None
    return ledger.lease(run_id)


def _measure(curator: Curator, expected: "_Expected") -> list[Measurement]:
    """Buy the figures, each for an equal part of the reservation."""
    workload, columns, largest = STEPS
    return [
        curator.measure_mean_error(workload, lambda: expected.offers(expected.workload), share=Fraction(1, 3)),
        curator.measure_mean_error(columns, lambda: expected.offers(expected.columns), share=Fraction(1, 2)),
        curator.measure_largest_error(largest, lambda: expected.offers(expected.workload), share=Fraction(1)),
    ]


@dataclass(frozen=True, eq=False)
class _Expected:
    """The counts that the released rows say, scaled to the number of rows that the release stands for. Public."""

    cells: Comparable
    rows: CodedRows
    total: float
    workload: Sequence[Axes]
    columns: Sequence[Axes]

    @classmethod
    def of(cls, origin: Origin) -> "_Expected":
        release, cells = origin.release, Comparable(origin.release.universe)
        rows, _ = read_release(release, cells)
        small = [axes for axes in origin.declaration.workload.marginals if _size(axes, cells) <= MOST_CELLS]
        chosen = _together(some_of(small, most=MOST_MARGINALS), cells)
        columns: list[Axes] = [(axis,) for axis in range(len(cells.shape))]
        return cls(cells, rows, release.model.total, chosen or columns, columns)

    def coarsen(self, curator: Curator) -> None:
        """Merge the cells of nulls, as a release does, on an axis of its own for each column that has several."""
        for column in self._merged():
            curator.coarsen(column, self.cells.groups[column].astype(np.intp))

    def offers(self, sets: Iterable[Axes]) -> list[Offer]:
        """Return the expected counts of marginals, as whole numbers."""
        axis_of = {column: len(self.cells.shape) + place for place, column in enumerate(self._merged())}
        scale = self.total / max(self.rows.total, 1.0)
        return [
            Offer(
                axes=tuple(axis_of.get(axis, axis) for axis in axes),
                expected=np.rint(self.rows.counts(axes, self.cells.shape) * scale).astype(np.int64),
            )
            for axes in sets
        ]

    def figures(self, measured: Sequence[Measurement]) -> list[Figure]:
        """Return what was measured as figures."""
        sets = (self.workload, self.columns, self.workload)
        return [
            Figure(
                name=STEPS[measurement.step],
                rows=(rows := max(0, int(measurement.values[0]))),
                noise=measurement.noise,
                share=rows / self.total,
                total=self.total,
                marginals=len(covered),
            )
            for measurement, covered in zip(measured, sets, strict=True)
        ]

    def _merged(self) -> list[int]:
        return [at for at, size in enumerate(self.cells.shape) if size < len(self.cells.groups[at])]


def _size(axes: Axes, cells: Comparable) -> int:
    return prod(cells.shape[axis] for axis in axes)


def _together(sets: Sequence[Axes], cells: Comparable) -> list[Axes]:
    """Return the first sets that have at most `MOST_TOGETHER` cells together."""
    sizes = np.cumsum([_size(axes, cells) for axes in sets])
    return list(sets[: int(np.searchsorted(sizes, MOST_TOGETHER, side="right"))])


def _publish(ledger: Ledger, origin: Origin, asked: Declaration, *, lease: Lease, figures: Sequence[Figure]) -> Bought:
    """Write the figures and their privacy statement beside the release."""
    run = ledger.run(lease.run)
    statement = state(
        asked,
        ledger=ledger,
        run=run,
        draws={run.id: len(figures)},
        earlier=origin.release.manifest["privacy"]["made_from"],
    )
    promise = f"{statement.said_of('These figures are')} {statement.sampling_of('Their')}"
    name = origin.run.release  # as the ledger has it: others may write to the folder of a release
    published = {
        "dataset": asked.spec.dataset,
        "release": name,
        "figures": list(map(asdict, figures)),
        "compared_with": "the private table under the limit on rows per unit, in the blocks of the release",
        "privacy": {**statement.to_json(), "guarantee": promise},
    }
    file = f"{name}-figures-{lease.run[:8]}.json"
    folder = origin.release.local_folder.resolve().parent
    with replacing(folder, [file]) as (draft,):
        draft.write_text(json.dumps(published, indent=2) + "\n", encoding="utf-8")
    return Bought(figures, promise, folder / file, run=run.id, spent=run.spent / AMOUNT_OF_ONE)

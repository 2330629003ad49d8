"""Read the true table of a release, as its run read it and as it is without the limit on rows per unit."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from dpcore.comparison.columns import ColumnCounts, Counted, count_columns
from dpcore.comparison.matching import Origin
from dpcore.comparison.rows import CodedRows, Comparable
from dpcore.errors import UsageError
from dpcore.private import Private
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Records, Source, fingerprint_key, ingest, readable_version
from dpcore.tables.ingest.coding import UNIT_IS_ROW, read_weights
from dpcore.tables.ingest.fingerprint import KEY_NAME
from dpcore.tables.ingest.violations import Rules
from dpcore.tables.ingest.window import Window
from dpcore.tables.sources.source import read_piece


class Truth(Private):
    """The true table of a release.

    Attributes:
        every: All rows that the universe and the run's blocks contain.
        limited: Those of them that count under the limit on rows per unit, drawn anew: which ones the run kept is not stored.
        columns: The values of each column as they lie in the source.
        changed: Whether the table is not, or may not be, the one that the run has read.
    """

    __slots__ = ("changed", "columns", "every", "limited")

    def __init__(
        self, *, every: CodedRows, limited: CodedRows, columns: Mapping[str, ColumnCounts], changed: bool
    ) -> None:
        self.every = every
        self.limited = limited
        self.columns = columns
        self.changed = changed


def read_truth(origin: Origin, source: Source, cells: Comparable, *, private: Path, allow_changed: bool) -> Truth:
    """Read the table, in at most four passes: one for each kind of rows, one for its columns, and with `discover` one for its version.

    Args:
        origin: How the release was origin.
        source: The table.
        cells: The cells to compare.
        private: The private folder, with the key of the data's version.
        allow_changed: Read a table that has changed since, too.

    Raises:
        SourceError: If the table cannot be read.
        UsageError: If it has changed.
    """
    coding = _coding(origin)
    has_key = (private / KEY_NAME).exists()
    if not has_key and not allow_changed:
        raise UsageError(
            f"{private} holds no {KEY_NAME}, so nobody can tell whether the table has changed since the release was made; name the private "
            "folder of its run in DPFLOW_PRIVATE, or compare anyway with --changed"
        )
    fingerprint = Fingerprint.of_run(origin.reader.id, key=fingerprint_key(private)) if has_key else None
    records, version = _read(origin, source, coding, fingerprint)
    changed = version is None or version != origin.reader.data_version
    if changed and not allow_changed:
        raise UsageError(
            "the table has changed since the release was made, or DPFLOW_PRIVATE names another folder than the run's; restore the table "
            "of that time, make a new release, or compare anyway with --changed"
        )
    every = limited = cells.read(records)
    if coding.by_unit:
        anyone = replace(coding, protection=replace(coding.protection, unit=UNIT_IS_ROW, rows_per_unit=1))
        every = cells.read(ingest(source, coding=anyone, draws=Draws.fresh()))
    columns = count_columns(_batches(source, coding), coding.universe)
    return Truth(every=every, limited=limited, columns=columns, changed=changed)


def _coding(origin: Origin) -> Coding:
    window = None if origin.calendar is None or origin.blocks is None else Window.of(origin.calendar, origin.blocks)
    rules = Rules.of(origin.release.universe)
    return Coding(
        universe=origin.release.universe,
        protection=origin.granted.protection,
        window=window,
        constant=origin.granted.constant,
        rules=rules,
    )


def _read(
    origin: Origin, source: Source, coding: Coding, fingerprint: Fingerprint | None
) -> tuple[Records, str | None]:
    """Read the rows that count, and the version of the table as the run computed it; None without the key of the run."""
    if fingerprint is None:
        return ingest(source, coding=coding, draws=Draws.fresh()), None
    draws = Draws.fresh(unit_key=fingerprint.unit_key())
    records = ingest(source, coding=coding, draws=draws, fingerprint=fingerprint)
    undecided = origin.granted.descents()
    if not undecided:
        return records, records.version
    whole = replace(coding, universe=origin.granted.universe)
    return records, readable_version(source, coding=whole, undecided=undecided, fingerprint=fingerprint)


def _batches(source: Source, coding: Coding) -> Iterator[tuple[pa.RecordBatch, Counted | None]]:
    """Yield the rows of the window as they lie in the source, with their weights."""
    for part in source.pieces(ids=coding.ids):
        for whole in read_piece(part, columns=coding.columns):
            batch = coding.windowed(whole)[0]
            weight = coding.protection.weight
            weights = None if weight is None else read_weights(batch.column(weight), protection=coding.protection)
            yield batch, None if weights is None else weights.astype(float)

"""Compare a release with the true table, and write the result into the private folder, for the steward alone."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from dpcore.answers.release import Release, open_release
from dpcore.comparison.baselines import decoded, independent_rows
from dpcore.comparison.columns import Counted, FinePlaces, largest_gap
from dpcore.comparison.comparison import Cells, ColumnComparison, Comparison
from dpcore.comparison.dependence import dependence, grouped, groupings
from dpcore.comparison.errors import follow_steps, workload_errors
from dpcore.comparison.learning import predictions, recognition
from dpcore.comparison.matching import Origin, made_from
from dpcore.comparison.page import page
from dpcore.comparison.rows import CodedRows, Comparable
from dpcore.comparison.truth import Truth, read_truth
from dpcore.errors import OutputError, UsageError
from dpcore.ledger import open_ledger
from dpcore.places import Places, made_private_folder, places_of_spec, using
from dpcore.release.atomic_files import replacing
from dpcore.release.integrity import one_line
from dpcore.release.problems import problems
from dpcore.tables.ingest import Source
from dpcore.tables.reading.encoding import encode_rows

progress = logging.getLogger("dpcore.progress")

FOLDER = "comparisons"
PAGE, DATA = "comparison.html", "comparison.json"


@dataclass(frozen=True)
class Written:
    """Where a comparison lies. Public, unlike its content."""

    page: Path
    data: Path


def compare(release: str | Path, spec: str | Path, *, table: Any = None, allow_changed: bool = False) -> Written:
    """Compare a release with the true table and write a page and a JSON file into the private folder. Nothing is charged.

    Args:
        release: The folder of the release, or of its dataset for the newest one.
        spec: The spec that it was made from, whose source is read.
        table: A pandas, polars or Arrow table to read instead of the spec's source.
        allow_changed: Compare with a table that has changed since the release was made, too.

    Raises:
        UsageError: If the release was made from another spec, or from another version of the table.
        SourceError: If the table cannot be read.
    """
    opened = open_release(release)
    spec = Path(spec)
    places = places_of_spec(spec)
    with using(places):
        with open_ledger(places=places) as ledger:
            origin = made_from(opened, spec, ledger=ledger, with_table=table is not None)
        source = source_of(origin, table)
        _require_apart(places, origin)
        comparison = _compared(origin, source, private=places.private, allow_changed=allow_changed)
        return _write(_folder(origin), comparison)


def source_of(origin: Origin, table: Any) -> Source:
    """Return the true table: the one handed over, or the spec's source."""
    if table is not None:
        return Source.of(table)
    return Source.locate(origin.granted.spec.source, base=origin.granted.path.parent)


def _require_apart(places: Places, origin: Origin) -> None:
    """Raise if the private folder lies where releases are published."""
    for published in (origin.release.local_folder.resolve().parent, origin.output):
        if published is not None and places.private.resolve().is_relative_to(published):
            raise UsageError(
                f"the private folder {places.private} lies among the releases in {one_line(published)}, where others can read; name another "
                "one in DPFLOW_PRIVATE"
            )


def _folder(origin: Origin) -> Path:
    """Create the folder of a comparison in the private folder, by the dataset of the spec and the name of the release's folder."""
    private = folder = made_private_folder().resolve()
    for name in (FOLDER, origin.granted.spec.dataset, origin.release.local_folder.resolve().name):
        folder = folder / name
        if not folder.resolve().is_relative_to(private):
            raise OutputError(f"{one_line(folder)} leads out of the private folder; remove it")
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            raise OutputError(f"cannot create {folder}; check who may write to the private folder") from None
    return folder


def _compared(origin: Origin, source: Source, *, private: Path, allow_changed: bool) -> Comparison:
    release, cells = origin.release, Comparable(origin.release.universe)
    progress.info("reading the released rows")
    released, places = read_release(release, cells)
    progress.info("reading the true table")
    truth = read_truth(origin, source, cells, private=private, allow_changed=allow_changed)
    if not truth.every.number or not released.number:
        raise UsageError("there are no rows to compare; check the spec's source and its universe")
    workload = origin.declaration.workload
    progress.info("comparing the marginals of the workload")
    errors = workload_errors(truth.every, released, cells, workload)
    progress.info("following marginals through the steps of the run")
    steps = follow_steps(truth, released, cells, release=release, workload=workload)
    progress.info("learning on the release, testing on the true table")
    groups = groupings(truth.every, cells)
    apart = independent_rows(truth.every, cells.shape, number=released.number)
    true, coarse, independent = (grouped(rows, groups) for rows in (truth.every, released, apart))
    attributes, names = release.universe.attributes, release.universe.names
    ordered = [attribute.ordered for attribute in attributes.values()]
    depends = dependence(true, coarse)
    statement = release.manifest["privacy"]
    return Comparison(
        dataset=origin.granted.spec.dataset,
        release=str(release.manifest["release"]),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        spec=str(origin.granted.path),
        epsilon=statement["epsilon"],
        delta=statement["delta"],
        unit=statement["unit"],
        rows_per_unit=statement["max_rows_per_unit"],
        true_rows=truth.every.total,
        kept_rows=truth.limited.total,
        released_rows=released.number,
        changed=truth.changed,
        errors=errors,
        steps=steps,
        columns=_columns(truth, released, cells, places, declared=origin.granted.spec.universe),
        dependence=depends,
        target=None if workload.target is None else names[workload.target],
        predictions=predictions(
            true, coarse, names=names, ordered=ordered, dependence=depends.true, target=workload.target
        ),
        recognition=recognition(true, coarse, independent),
    )


def read_release(release: Release, cells: Comparable) -> tuple[CodedRows, Mapping[str, Counted]]:
    """Read the rows of a release, and count its columns at their fine places."""
    if problem := next(problems(release.folder), None):
        raise UsageError(f"{one_line(release.folder)} is damaged: {problem.sentence}; copy the release again")
    universe = release.universe
    fine = FinePlaces.of_all(universe)
    counted = {name: np.zeros(places.size) for name, places in fine.items()}
    chunks = []
    for file in sorted((release.local_folder / "data").glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(batch_size=1 << 18):
            codes, _ = encode_rows(universe, batch)
            chunks.append((codes, None))
            for name, places in fine.items():
                counted[name] += places.count(batch.column(name), None)
    return cells.rows(chunks), counted


def _columns(
    truth: Truth, released: CodedRows, cells: Comparable, places: Mapping[str, Counted], *, declared: Mapping[str, Any]
) -> list[ColumnComparison]:
    columns = []
    for axis, (name, attribute) in enumerate(cells.universe.attributes.items()):
        counted, fine = truth.columns[name], FinePlaces.of(attribute)
        counts = truth.every.counts((axis,), cells.shape)
        binning = gap = None
        if fine is not None and counted.places is not None:
            inside = np.where(np.arange(len(counts)) < attribute.cells, counts, 0.0)
            drawn = fine.count(decoded(attribute, inside), None)
            binning, gap = largest_gap(counted.places, drawn), largest_gap(counted.places, places[name])
        columns.append(
            ColumnComparison(
                name=name,
                labels=cells.labels(axis),
                true=truth.every.shares((axis,), cells.shape).tolist(),
                released=released.shares((axis,), cells.shape).tolist(),
                ordered=attribute.cells if attribute.ordered else 0,
                cells=Cells.of(attribute, declared.get(name)),
                outside=counted.outside / max(counted.values, 1.0),
                dropped=counted.dropped / max(counted.values, 1.0),
                binning=binning,
                gap=gap,
            )
        )
    return columns


def _write(folder: Path, comparison: Comparison) -> Written:
    """Write both files for this user alone. An earlier comparison of the release is replaced."""
    texts = {PAGE: page(comparison), DATA: json.dumps(comparison.to_json(), indent=1) + "\n"}
    with replacing(folder, list(texts)) as drafts:
        for draft, text in zip(drafts, texts.values(), strict=True):
            draft.touch(mode=0o600, exist_ok=False)
            draft.write_text(text, encoding="utf-8")
    return Written(folder / PAGE, folder / DATA)

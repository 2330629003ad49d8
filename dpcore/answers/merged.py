"""Write the sum of a series as a release of its own: rows, measurements, card and manifest, in a folder outside of the dataset's.

No run makes it, and the ledger does not know it: it is computed from published releases alone, and nothing is charged. Its manifest names the
releases that were added, with their hashes.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter

from dpcore.answers.choice import Choice, Member
from dpcore.answers.judging import judge
from dpcore.answers.query import Count, Output, Query, terms
from dpcore.answers.release import Release, open_release
from dpcore.answers.series import Series
from dpcore.answers.summed import summed_release
from dpcore.answers.uncertainty import restored, uncertainty_table
from dpcore.descent import Finding
from dpcore.errors import UsageError
from dpcore.release.draft import Draft, Judgement, SyntheticRows
from dpcore.release.integrity import MANIFEST, damaged, one_line
from dpcore.release.publishing import Published
from dpcore.release.statement import Statement, state_sum
from dpcore.release.targets import write_folder
from dpcore.spec import Declaration
from dpcore.spec.release import ReleaseSpec
from dpcore.universe import Categorical
from dpcore.universe.dependencies import LearnedFunction

_FINDINGS: TypeAdapter[tuple[Finding, ...]] = TypeAdapter(tuple[Finding, ...])


def merge(series: Series, folder: Path, *, where: str | None = None) -> Published:
    """Write the sum of a series, or of some of its blocks, to a new folder.

    Args:
        series: The series.
        folder: The folder of the new release, which must not exist.
        where: Which blocks, as a condition on the column that decides them; None for all of them.

    Raises:
        UsageError: If the releases cannot be added, or the folder is taken or lies among them.
        OutputError: If it cannot be written.
    """
    choice = _chosen(series, where)
    members = choice.members
    _refuse_place(folder, members)
    releases = [open_release(member.folder) for member in members]
    by_age = sorted(range(len(members)), key=lambda place: -series.members.index(members[place]))
    statement = state_sum([releases[place].manifest["privacy"] for place in by_age])
    total = summed_release(releases)
    return write_folder(_draft(releases, total, statement, name=folder.name, choice=choice), folder)


def _refuse_place(folder: Path, members: Sequence[Member]) -> None:
    for member in members:
        if isinstance(member.folder, Path) and folder.resolve().is_relative_to(member.folder.resolve().parent):
            raise UsageError(
                f"{one_line(folder)} lies among the releases that are added, where a reader would count their rows twice; choose a folder "
                "elsewhere"
            )
    if folder.exists():
        raise UsageError(f"{one_line(folder)} already exists; choose a new folder")


def _chosen(series: Series, where: str | None) -> Choice:
    """Return the releases to add. A condition may only be on whole releases."""
    from dpcore.answers.sql import parse_condition  # noqa: PLC0415  the parser takes long to import

    query = Query((Output("n", Count()),))
    if where is not None:
        universe = series.universe
        query = replace(query, where=parse_condition(where, universe, tables=("release", series.dataset)))
        column = universe.names.index(series.calendar.column)
        if any(term.column != column for term in terms(query.where)):
            raise UsageError(
                f"a merged release has all rows of its blocks; use {one_line(series.calendar.column)} alone in the condition"
            )
    periods = series.periods(query)
    choice = series.chosen(periods, query)
    for member in choice.members:
        periods.without(query, member.blocks, release=member.folder.name)  # raises if the condition divides its rows
    if len(choice.members) == 1:
        raise UsageError(
            f"only {one_line(choice.members[0].folder.name)} covers these blocks, so there is nothing to add; use that release"
        )
    return choice


def _draft(releases: Sequence[Release], total: Release, statement: Statement, *, name: str, choice: Choice) -> Draft:
    manifest, uncertainty = releases[-1].manifest, total.unwritten_uncertainty
    if uncertainty is None:
        raise TypeError("a sum without replicates")
    declaration = _declaration(manifest, total)
    rows, seed = declaration.spec.output.rows, _seed(releases)
    near, count = declaration.workload.marginals, max(0, round(total.model.total)) if rows == "noisy" else rows

    def written(most_bytes: int) -> pa.Table:
        return uncertainty_table(uncertainty, total.measurements, most_bytes=most_bytes)

    return Draft(
        declaration=declaration,
        rows=SyntheticRows(
            count, chunks=lambda: total.model.row_chunks(count, rng=np.random.default_rng([seed, 1]), near=near)
        ),
        measurements=total.measurements,
        resolutions=total.resolutions,
        rounds=(),
        statement=statement,
        name=name,
        seed=seed,
        findings=tuple(map(partial(_joined, total), _FINDINGS.validate_python(total.manifest["discovered"]))),
        functions=tuple(map(LearnedFunction.told, manifest.get("dependencies", ()))),
        warnings=tuple(_warnings(releases, choice)),
        uncertainty=written,
        judge=partial(_judged, total),
        start=total.start,
        parts=tuple(map(_part, releases)),
    )


def _declaration(manifest: Mapping[str, Any], total: Release) -> Declaration:
    """Return the spec of the last release with the columns of the sum. It has no blocks and no persons of its own."""
    spec = ReleaseSpec.model_validate({**manifest["spec"], "blocks": None, "persons": None, "prior": None})
    try:
        workload = spec.workload.over(total.universe)
    except KeyError:
        raise damaged(total.folder, f"the workload in its {MANIFEST} is about other columns") from None
    digest = manifest["privacy"]["spec_sha256"]
    return Declaration(Path("merged.yaml"), spec, total.universe, workload, digest)


def _judged(total: Release, table: pa.Table) -> Judgement:
    return judge(replace(total, unwritten_uncertainty=restored(table, total.measurements)))


def _joined(total: Release, finding: Finding) -> Finding:
    """Return what was found in a column of the sum: of categories, those of all releases."""
    attribute = total.universe.attributes[finding.column]
    if not isinstance(attribute, Categorical) or not finding.found:
        return finding
    values = tuple(map(str, attribute.values))
    return replace(finding, found=len(values), cells=(*values, *finding.cells[finding.found :]))


def _warnings(releases: Sequence[Release], choice: Choice) -> list[str]:
    """Return what a reader of the sum should know, and what readers of its parts were told."""
    warnings = choice.warnings(so="the rows of that time are missing")
    if any(release.manifest.get("persons") for release in releases):
        warnings.append("the rows of one synthetic person are not kept together in a merged release")
    warnings += (warning for release in releases for warning in release.manifest["warnings"])
    return list(dict.fromkeys(warnings))


def _part(release: Release) -> dict[str, Any]:
    """Describe a release in the manifest of the sum."""
    privacy = release.manifest["privacy"]
    return {
        "release": release.manifest["release"],
        "manifest_sha256": release.manifest_sha256,
        "run": privacy["run"],
        "blocks": privacy["blocks"]["names"],
        "epsilon": privacy["epsilon"],
        "delta": privacy["delta"],
    }


def _seed(releases: Sequence[Release]) -> int:
    """Return a public seed: the rows of a sum follow from its parts."""
    digest = hashlib.sha256("\n".join(release.manifest_sha256 for release in releases).encode()).digest()
    return int.from_bytes(digest[:8])

"""Go on from an earlier release of a table that the spec declares unchanged: its cells are taken over, and its measurements are evidence.

The new release publishes these measurements again. So its promise counts all runs that they are from (docs/decisions/0057).
"""

from typing import Any

from pydantic import TypeAdapter

from dpcore.answers.release import Release
from dpcore.descent import Finding
from dpcore.errors import UsageError
from dpcore.release import ChosenLimit, Statement
from dpcore.release.integrity import one_line
from dpcore.spec import Declaration
from dpcore.strategies.earlier import Earlier

_FINDINGS: TypeAdapter[tuple[Finding, ...]] = TypeAdapter(tuple[Finding, ...])


def taken_over(declaration: Declaration, release: Release) -> Declaration:
    """Return the declaration with the cells and the limit on rows per unit that an earlier run has found in the same table.

    Raises:
        UsageError: If its release has other columns, another unit or another strategy than the spec. Nothing was spent.
    """
    manifest, name = release.manifest, one_line(release.folder.name)
    way_out = "remove `unchanged`, and its measurements do not count"
    if not manifest["privacy"]["made_from"][-1]["draws"]:
        raise UsageError(
            f"release {name} publishes the answers of a session, so its measurements cannot be taken over; {way_out}"
        )
    if manifest["strategy"] != declaration.strategy.name:
        raise UsageError(
            f"release {name} was made by strategy {manifest['strategy']}, and the spec has {declaration.strategy.name}; use the same one, or "
            f"{way_out}"
        )
    if changed := differences(declaration, release):
        raise UsageError(
            f"release {name} was made with another `{changed[0]}` than the spec has, so its measurements cannot be taken over; {way_out}"
        )
    attributes = {name: release.universe.attributes[name] for name in declaration.descents()}
    chosen = chosen_limit_of(release)
    if chosen is not None and chosen.sizes is not None and not declaration.corrects:
        raise UsageError(
            f"release {name} describes all rows, but a session counts only those within `max_rows_per_unit`, so its measurements cannot be taken "
            f"over; {way_out}"
        )
    return declaration.taken_over(
        attributes,
        rows_per_unit=int(manifest["privacy"]["max_rows_per_unit"]),
        sizes=None if chosen is None else chosen.sizes,
    )


def evidence_of(release: Release) -> Earlier:
    """Return the measurements of a release, as evidence for a strategy."""
    privacy = release.manifest["privacy"]
    chosen = 0 if privacy["unit"] == "row" else int(privacy["max_rows_per_unit"])
    weighted = privacy.get("weight") is not None
    return Earlier.of(release.resolutions, release.transcript, rows_per_unit=chosen, weighted=weighted)


def findings_of(release: Release) -> tuple[Finding, ...]:
    """Return what the run of a release has found in the data."""
    return _FINDINGS.validate_python(release.manifest["discovered"])


def chosen_limit_of(release: Release) -> ChosenLimit | None:
    """Return how the limit on rows per unit of a release was chosen; None if it was declared."""
    return Statement.read(release.manifest["privacy"]).chosen_limit


def differences(declaration: Declaration, release: Release) -> list[str]:
    """Return the parts of the spec by which a release has read its table otherwise. What is only said about columns does not matter.

    Everything that decides how rows are read must be the same. Otherwise the measurements of both would be of different counts.
    """
    earlier, current = release.manifest["spec"], declaration.spec.model_dump(mode="json")
    differing, before, now = [], earlier["universe"], current["universe"]
    if list(before) != list(now):
        differing.append("universe")
    undecided = declaration.descents()
    for name, attribute in declaration.universe.attributes.items():
        if name in before and (
            _read_by(before[name]) != _read_by(now[name])
            or (name not in undecided and release.universe.attributes[name] != attribute)
        ):
            differing.append(f"universe.{one_line(name)}")
    differing += [
        name for name in ("constraints", "persons") if (earlier.get(name) or None) != (current.get(name) or None)
    ]
    return differing + [
        f"privacy.{name}"
        for name in ("unit", "neighbours", "max_rows_per_unit", "weight")
        if earlier["privacy"][name] != current["privacy"][name]
    ]


def _read_by(column: dict[str, Any]) -> dict[str, Any]:
    """Return how a column is read, without what is only said about it."""
    return {key: value for key, value in column.items() if key not in {"description", "measured_in"}}

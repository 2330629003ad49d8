"""Go on from an earlier release of a table that the spec declares unchanged: its cells are taken over, and its measurements are evidence.

The new release publishes these measurements again. So its promise counts all runs that they are from (docs/decisions/0072).
"""

from dataclasses import dataclass
from typing import Any

from dpcore.answers.release import Release
from dpcore.descent import Finding
from dpcore.descent.descent import Level
from dpcore.errors import UsageError
from dpcore.release import ChosenLimit
from dpcore.release.integrity import one_line
from dpcore.spec import Declaration
from dpcore.strategies.earlier import Earlier


@dataclass(frozen=True, eq=False)
class SameTable:
    """An earlier release of the same table."""

    release: Release

    @classmethod
    def of(cls, release: Release, declaration: Declaration) -> "SameTable":
        """Check that a release has the columns, the unit and the strategy of a spec.

        Raises:
            UsageError: If it has not. Nothing was spent.
        """
        told, name = release.manifest, one_line(release.folder.name)
        way_out = "remove `unchanged`, and its measurements do not count"
        if not told["privacy"]["made_from"][-1]["draws"]:
            raise UsageError(
                f"release {name} publishes the answers of a session, so its measurements cannot be taken over; {way_out}"
            )
        if told["strategy"] != declaration.strategy.name:
            raise UsageError(
                f"release {name} was made by strategy {told['strategy']}, and the spec has {declaration.strategy.name}; use the same one, or "
                f"{way_out}"
            )
        if other := differences(declaration, release):
            raise UsageError(
                f"release {name} was made with another `{other[0]}` than the spec has, so its measurements cannot be taken over; {way_out}"
            )
        return cls(release)

    def taken_over(self, declaration: Declaration) -> Declaration:
        """Return the declaration with the cells and the limit on rows per unit that the earlier run has found."""
        found = {name: self.release.universe.attributes[name] for name in declaration.descents()}
        return declaration.taken_over(found, rows_per_unit=int(self.release.manifest["privacy"]["max_rows_per_unit"]))

    @property
    def earlier(self) -> Earlier:
        """The measurements, as evidence for a strategy."""
        privacy = self.release.manifest["privacy"]
        chosen = 0 if privacy["unit"] == "row" else int(privacy["max_rows_per_unit"])
        weighted = privacy.get("weight") is not None
        return Earlier.of(self.release.resolutions, self.release.transcript, rows_per_unit=chosen, weighted=weighted)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the earlier run has found. The cells of the new release are the same."""
        return findings_of(self.release)

    @property
    def chosen_limit(self) -> ChosenLimit | None:
        """How the limit on rows per unit was chosen; None if the spec has declared it."""
        return chosen_limit_of(self.release)


def findings_of(release: Release) -> tuple[Finding, ...]:
    """Return what the run of a release has found in the data."""
    return tuple(map(_finding, release.manifest["discovered"]))


def _finding(told: dict[str, Any]) -> Finding:
    levels = tuple(Level(**each) for each in told["levels"])
    return Finding(**{**told, "cells": tuple(told["cells"]), "levels": levels})


def chosen_limit_of(release: Release) -> ChosenLimit | None:
    """Return how the limit on rows per unit of a release was chosen; None if it was declared."""
    limit = release.manifest["privacy"].get("chosen_limit")
    return None if limit is None else ChosenLimit(**{**limit, "of": tuple(limit["of"])})


def differences(declaration: Declaration, release: Release) -> list[str]:
    """Return the parts of the spec by which a release has read its table otherwise. What is only said about columns does not matter.

    Everything that decides how rows are read must be the same. Otherwise the measurements of both would be of different counts.
    """
    told, wanted = release.manifest["spec"], declaration.spec.model_dump(mode="json")
    found, before, now = [], told["universe"], wanted["universe"]
    if list(before) != list(now):
        found.append("universe")
    undecided = declaration.descents()
    for name, attribute in declaration.universe.attributes.items():
        if name in before and (
            _read_by(before[name]) != _read_by(now[name])
            or (name not in undecided and release.universe.attributes[name] != attribute)
        ):
            found.append(f"universe.{one_line(name)}")
    found += [name for name in ("constraints", "persons") if (told.get(name) or None) != (wanted.get(name) or None)]
    return found + [
        f"privacy.{name}"
        for name in ("unit", "neighbours", "max_rows_per_unit", "weight")
        if told["privacy"][name] != wanted["privacy"][name]
    ]


def _read_by(column: dict[str, Any]) -> dict[str, Any]:
    """Return how a column is read, without what is only said about it."""
    return {key: value for key, value in column.items() if key not in {"description", "measured_in"}}

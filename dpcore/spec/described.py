"""What a manifest says about the universe besides its spec, and the universe that follows from both."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dpcore.errors import SpecError, UsageError
from dpcore.spec.categories import CategoricalSpec
from dpcore.spec.constraints import ConstraintList, ConstraintSpec, constraints_of
from dpcore.spec.declaration import Declaration
from dpcore.spec.release import AttributeSpec
from dpcore.universe import Attribute, Universe
from dpcore.universe.constraints import Constraint
from dpcore.universe.dependencies import Depends
from dpcore.universe.description import describe, restored

_COLUMN: TypeAdapter[AttributeSpec] = TypeAdapter(AttributeSpec)
_CONSTRAINTS: TypeAdapter[tuple[ConstraintSpec, ...] | None] = TypeAdapter(ConstraintList | None)


def describe_universe(declaration: Declaration) -> dict[str, dict[str, Any]]:
    """Return the columns that the spec alone does not determine: found cells, values from a file, days narrowed to the run's blocks.

    Found texts are left out, since the manifest lists them already.
    """
    descriptions = {}
    for name, attribute in declaration.universe.attributes.items():
        column = declaration.spec.universe[name]
        if is_found(column) or column.attribute(Path()) != attribute:
            descriptions[name] = describe(attribute)
            if isinstance(column, CategoricalSpec) and column.discover is not None:
                del descriptions[name]["values"]
    return descriptions


def is_found(column: AttributeSpec) -> bool:
    """Return whether the cells of a column are found in the data or in a file, so that a manifest must describe them."""
    return any(getattr(column, name, None) is not None for name in ("discover", "values_from"))


def restore_universe(
    columns: Mapping[str, Any],
    *,
    described: Mapping[str, Any],
    discovered: Sequence[Mapping[str, Any]],
    constraints: Sequence[Any] | None = None,
    dependencies: Sequence[Mapping[str, Any]] = (),
) -> Universe:
    """Return the universe of a release.

    The spec has its columns and constraints; the manifest, described columns, discovered cells and the functions of dependencies.

    Raises:
        UsageError: If they do not determine a universe.
    """
    findings = {finding["column"]: finding for finding in discovered}
    attributes = {name: _attribute(column, described.get(name), findings.get(name)) for name, column in columns.items()}
    return Universe(attributes, tuple(_learned(_constraints(constraints), dependencies, attributes)))


def _learned(
    constraints: Sequence[Constraint], dependencies: Sequence[Mapping[str, Any]], attributes: Mapping[str, Attribute]
) -> Iterator[Constraint]:
    """Yield the constraints, dependencies with their learned functions."""
    learned = iter(dependencies)
    for constraint in constraints:
        try:
            yield (
                constraint.restored(next(learned)["rows"], attributes)
                if isinstance(constraint, Depends)
                else constraint
            )
        except (SpecError, StopIteration):
            raise UsageError("the manifest lacks the learned functions of its spec; copy the release again") from None


def _constraints(written: Any) -> tuple[Constraint, ...]:
    try:
        return constraints_of(_CONSTRAINTS.validate_python(written))
    except ValidationError:
        raise UsageError("the spec in the manifest is damaged; copy the release again") from None


def _attribute(column: Any, described: Mapping[str, Any] | None, finding: Mapping[str, Any] | None) -> Attribute:
    if described is not None:
        if described.get("kind") == "categorical" and "values" not in described and finding is not None:
            # If no text was found, the only cell is `other`.
            described = {**described, "values": finding["cells"][: max(1, finding["found"])]}
        return restored(described)
    try:
        declared = _COLUMN.validate_python(column)
        if is_found(declared):
            raise UsageError("the manifest lacks the description of a column; copy the release again")
        return declared.attribute(Path())
    except (ValidationError, SpecError):
        raise UsageError("the spec in the manifest is damaged; copy the release again") from None

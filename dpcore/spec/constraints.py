"""The spec's `constraints`: facts about columns that every released row satisfies."""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from dpcore.errors import SpecError
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.zeros import Zeros
from dpcore.spec.document import Document, Place
from dpcore.spec.parts import Share, SpecPart, as_written
from dpcore.universe import Attribute, Universe
from dpcore.universe.constraints import Condition, Constraint, Implication, Listed, Violations
from dpcore.universe.dependencies import Depends
from dpcore.universe.leaves import Fine
from dpcore.universe.orders import Order, implied
from dpcore.universe.sums import Sum

_ORDER = r"^[^<]*[^<\s][^<]*(<=[^<=]*[^<=\s][^<=]*)+$"
_SUM = r"^[^=+]*[^=+\s][^=+]*=[^=+]*[^=+\s][^=+]*(\+[^=+]*[^=+\s][^=+]*)+$"
_DEPENDS = r"^[^,>]*[^,>\s-][^,>]*(,[^,>]*[^,>\s-][^,>]*)*->[^,>]*[^,>\s][^,>]*$"
LEARNING = 0.05
"""The usual share of the budget for learning the function of a dependency."""

Value = str | int | float | bool | None


class RangeSpec(SpecPart):
    """A range of an ordered column, both ends included."""

    min: str | int | float | None = Field(None, description="the lowest value; default: no lower end")
    max: str | int | float | None = Field(None, description="the highest value; default: no upper end")

    @model_validator(mode="after")
    def _an_end(self) -> "RangeSpec":
        if self.min is None and self.max is None:
            raise ValueError("needs `min` or `max`")
        return self


_Values = Annotated[tuple[Value, ...], Field(strict=False, min_length=1)]
Conditions = Annotated[dict[str, Value | _Values | RangeSpec], Field(min_length=1)]


class PossibleSpec(SpecPart):
    """The only possible combinations of some columns."""

    columns: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = Field(description="the columns")
    rows: Annotated[
        tuple[Annotated[tuple[Value | _Values, ...], Field(strict=False)], ...], Field(strict=False, min_length=1)
    ] = Field(
        description="the combinations, each a list with a value for every column; a list of values stands for each of them"
    )

    @model_validator(mode="after")
    def _complete(self) -> "PossibleSpec":
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("names a column twice; keep one")
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"has {len(self.columns)} columns, but row {number + 1} has {len(row)} values; write one for every column"
                )
        return self


class ConstraintSpec(SpecPart):
    """One constraint: `impossible`, `if` with `then`, `possible`, `order`, `sum`, or `depends`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, serialize_by_alias=True)

    impossible: Conditions | None = Field(
        None, description="no row satisfies all of these conditions, such as {sex: M, pregnant: true}"
    )
    when: Conditions | None = Field(
        None, alias="if", description="rows that satisfy all of these conditions, such as {relationship: wife}, ..."
    )
    then: Conditions | None = Field(None, description="... satisfy these as well, such as {sex: F}")
    possible: PossibleSpec | None = Field(None, description="the only possible combinations of some columns")
    order: Annotated[str, Field(pattern=_ORDER)] | None = Field(
        None, description="columns that never decrease from left to right, such as admitted <= discharged"
    )
    sum: Annotated[str, Field(pattern=_SUM)] | None = Field(
        None, description="a column that is the sum of others, such as total = wages + bonus"
    )
    depends: Annotated[str, Field(pattern=_DEPENDS)] | None = Field(
        None,
        description="columns that determine another one, such as city -> state; the run learns the function from noisy counts",
    )
    share: Share | None = Field(
        None, description=f"with depends, the share of the budget for learning the function; default: {LEARNING:g}"
    )
    violations: Literal["drop", "repair"] | None = Field(
        None,
        description="a private row that violates the constraint: drop it (the default), or repair the column that the constraint names last; of a sum, the total",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> "ConstraintSpec":
        kinds = (self.impossible, self.when, self.possible, self.order, self.sum, self.depends)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError(
                "needs exactly one of `impossible`, `if` with `then`, `possible`, `order`, `sum` and `depends`"
            )
        if self.depends is None and self.share is not None:
            raise ValueError("has a `share`, but only `depends` costs budget; remove it")
        if self.depends is not None and self.violations is not None:
            raise ValueError(
                "cannot have `violations`: the function of `depends` is learned with noise, so every private row counts as it is; remove it"
            )
        if (self.when is None) != (self.then is None):
            raise ValueError("needs `if` and `then` together")
        if self.when is not None and self.then is not None and (both := set(self.when) & set(self.then)):
            raise ValueError(f"has `{min(both)}` in both `if` and `then`; name other columns in `then`")
        return self

    def constraints(self) -> tuple[Constraint, ...]:
        """Return the constraint; of an order of several columns, that of each pair of neighbours."""
        violations = Violations(self.violations or Violations.DROP)
        if self.order is not None:
            names = _names(self.order, "<=")
            return tuple(Order(low=low, high=high, violations=violations) for low, high in pairwise(names))
        if self.sum is not None:
            total, added = self.sum.split("=")
            return (Sum(total=total.strip(), terms=_names(added, "+"), violations=violations),)
        if self.depends is not None:
            determining, _, determined = self.depends.partition("->")
            return (
                Depends(
                    given=_names(determining, ","),
                    determined=determined.strip(),
                    share=as_written(LEARNING if self.share is None else self.share),
                    violations=violations,
                ),
            )
        if self.possible is not None:
            rows = tuple(tuple(map(_alternatives, row)) for row in self.possible.rows)
            return (Listed(listed=self.possible.columns, rows=rows, violations=violations),)
        when, then = self.impossible or self.when or {}, self.then or {}
        return (Implication(when=_conditions(when), then=_conditions(then), violations=violations),)


def _names(text: str, between: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(between))


BY_VALUE = Order | Sum
"""Constraints that decide about values within cells, too, so that they also work at full resolution."""

ConstraintList = Annotated[tuple[ConstraintSpec, ...], Field(strict=False)]


def _alternatives(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _conditions(conditions: Mapping[str, Any]) -> tuple[Condition, ...]:
    return tuple(
        Condition(column, low=values.min, high=values.max)
        if isinstance(values, RangeSpec)
        else Condition(column, values=_alternatives(values))
        for column, values in conditions.items()
    )


def constraints_of(parts: tuple[ConstraintSpec, ...] | None) -> tuple[Constraint, ...]:
    """Return the constraints of a spec, with the orders that follow from others."""
    return _with_implied([constraint for part in parts or () for constraint in part.constraints()])


def _with_implied(constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    return (*constraints, *implied([constraint for constraint in constraints if isinstance(constraint, Order)]))


def check_constraints(document: Document, attributes: Mapping[str, Attribute]) -> None:
    """Report unknown columns and values, and constraints that contradict each other, with an example.

    The check works on the raw document, so that its mistakes are reported together with all others.
    """
    listed, declared = document.data.get("constraints"), document.section("universe").keys()
    if not isinstance(listed, list):
        return
    sound: list[tuple[int, Constraint]] = []
    before = len(document.mistakes)
    for number, part in enumerate(listed):
        try:
            constraints = ConstraintSpec.model_validate(part).constraints()
        except ValidationError:
            return  # reported already
        for constraint in constraints:
            _check_alone(document, ("constraints", number), constraint, attributes, declared)
            sound.append((number, constraint))
    if len(document.mistakes) == before and len(attributes) == len(declared):
        _check_together(document, sound, attributes)


def _check_alone(
    document: Document,
    place: Place,
    constraint: Constraint,
    attributes: Mapping[str, Attribute],
    declared: Collection[str],
) -> None:
    """Report what is wrong with one constraint by itself."""
    before = len(document.mistakes)
    if len(set(constraint.columns)) < len(constraint.columns):
        document.mistake(place, "this constraint names a column twice; name each column once")
    for column in constraint.columns:
        if column not in declared:
            document.mistake(
                _place_of(document, place, column),
                f"`{column}` is not a column of the universe; declare it or remove it",
            )
        elif column in attributes and (
            why := _undecided(document, column, attributes[column], by_value=isinstance(constraint, BY_VALUE))
        ):
            document.mistake(_place_of(document, place, column), why)
    if len(document.mistakes) == before and all(column in attributes for column in constraint.columns):
        _check_cells(document, place, constraint, attributes)


def _check_cells(document: Document, place: Place, constraint: Constraint, attributes: Mapping[str, Attribute]) -> None:
    """Report values that a column does not have, ranges that cut bins, and a constraint that excludes nothing."""
    before = len(document.mistakes)
    for condition in (*constraint.when, *constraint.then) if isinstance(constraint, Implication) else ():
        try:
            condition.cells(attributes[condition.column])
        except SpecError as error:
            document.mistake(_place_of(document, place, condition.column), str(error))
    if len(document.mistakes) > before:
        return
    try:
        for columns, possible in constraint.tables(attributes):
            if possible.all() and not isinstance(constraint, BY_VALUE | Depends):
                names = " and ".join(f"`{column}`" for column in columns)
                document.mistake(place, f"the constraint on {names} excludes nothing; correct its values, or remove it")
    except SpecError as error:
        document.mistake(place, str(error))


def _undecided(document: Document, column: str, attribute: Attribute, *, by_value: bool) -> str | None:
    """Return why a constraint cannot name a column's values."""
    if "discover" in (document.data["universe"][column] or {}):
        return f"the cells of `{column}` are discovered, so they are not known yet; declare them, or leave it out of the constraint"
    if document.section("blocks").get("column") == column:
        return f"`{column}` is the column of `blocks`, and each run has only the days of its blocks; leave it out of the constraint"
    if isinstance(attribute, Fine) and not by_value:
        return f"`{column}` has full resolution, and this constraint needs its cells; declare bins, such as `width: 5` or `every: month`"
    return None


def _check_together(
    document: Document, sound: Sequence[tuple[int, Constraint]], attributes: Mapping[str, Attribute]
) -> None:
    """Report the first constraint after which a category, or every row, is impossible."""
    for end in range(1, len(sound) + 1):
        number, last = sound[end - 1]
        so_far = [constraint for _, constraint in sound[:end]]
        try:
            contradiction = _contradiction(Universe(attributes, _with_implied(so_far)), last.columns)
        except SpecError as error:
            contradiction = str(error)
        if contradiction is not None:
            document.mistake(("constraints", number), contradiction)
            return


def _contradiction(universe: Universe, columns: Sequence[str]) -> str | None:
    """Return a sentence with an example if the constraints leave a category of these columns, or all of their cells, without a row."""
    zeros, resolutions = Zeros(universe.possible), Resolutions(universe.shape)
    for column in columns:
        possible = zeros.support((universe.names.index(column),), resolutions)
        if possible is None:
            continue
        if not possible.any():
            return "together with the constraints before it, this one leaves no possible row; correct or remove one of them"
        attribute = universe.attributes[column]
        # The ends of a range may be out of reach, such as the last days on which one can be admitted.
        if attribute.ordered:
            continue
        never = [label for label, some in zip(attribute.labels, possible.tolist(), strict=True) if not some]
        return (
            f"with the constraints so far, `{column}` can never be {never[0]!r}; remove that value from the column, or correct the "
            "constraints"
        )
    return None


def _place_of(document: Document, place: Place, column: str) -> Place:
    """Return the place where a constraint names a column, or that of the constraint."""
    part = document.data["constraints"][place[-1]]
    places: list[Place] = [(*place, kind, column) for kind in ("impossible", "if", "then")]
    if part.get("possible") and column in part["possible"]["columns"]:
        places.append((*place, "possible", "columns", part["possible"]["columns"].index(column)))
    return next((named for named in places if named in document.positions), place)

"""The spec's `workload`: the marginals to preserve, with weights, a target column and ranges."""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Discriminator, Field, Tag

from dpcore.marginals.workload import MOST_WEIGHT, Workload
from dpcore.spec.document import Document, Place
from dpcore.spec.parts import SpecPart
from dpcore.universe import Attribute, Universe

MOST_COLUMNS = 8
USUAL_ORDER = 3
"""The number of columns of the marginals if the spec has no workload."""
MOST_PARTS = 2_000_000
"""The most sub-marginals of all marginals together, with repetitions. Beyond this, listing them alone takes minutes."""

# The tags that pydantic puts into a mistake's location for each form. They contain blanks, so that no key equals one.
NUMBER, LIST, PLAIN, WEIGHTED = "a number", "a list", "its columns", "with a weight"

_Items = TypeVar("_Items", bound=tuple[Any, ...])


def _not_empty(items: _Items) -> _Items:
    """Reject an empty list. `min_length` would also reject a list whose items are wrong."""
    if not items:
        raise ValueError("is empty; name at least one column")
    return items


_NotEmpty = Field(strict=False, json_schema_extra={"minItems": 1})
_Names = Annotated[tuple[str, ...], _NotEmpty, AfterValidator(_not_empty)]


class MarginalSpec(SpecPart):
    """A marginal with a weight."""

    columns: _Names = Field(description="its columns")
    weight: Annotated[int, Field(ge=1, le=MOST_WEIGHT)] = Field(
        1, description="how much its error matters, relative to a marginal of weight 1"
    )


def _form_of_marginal(value: Any) -> str:
    return WEIGHTED if isinstance(value, dict | MarginalSpec) else PLAIN


def _form_of_marginals(value: Any) -> str:
    return LIST if isinstance(value, list | tuple) else NUMBER


_Marginal = Annotated[
    Annotated[_Names, Tag(PLAIN)] | Annotated[MarginalSpec, Tag(WEIGHTED)], Discriminator(_form_of_marginal)
]


class WorkloadSpec(SpecPart):
    """The statistics that the release should preserve."""

    marginals: Annotated[
        Annotated[int, Field(ge=1, le=MOST_COLUMNS), Tag(NUMBER)]
        | Annotated[tuple[_Marginal, ...], _NotEmpty, AfterValidator(_not_empty), Tag(LIST)],
        Discriminator(_form_of_marginals),
    ] = Field(description="a number k for all k-way marginals, or a list of lists of columns, optionally with weights")
    target: str | None = Field(
        None,
        description="the column whose relations to others matter most: its pairs are learned first, and `marginals: k` means only those with it",
    )
    ranges: _Names | None = Field(
        None,
        description="ordered columns for which range counts matter, up to a value or between two; only with strategy adaptive",
    )

    @property
    def weighted(self) -> bool:
        """Whether the marginals have different weights."""
        return len(set(self._weights)) > 1

    @property
    def _weights(self) -> tuple[int, ...]:
        listed = () if isinstance(self.marginals, int) else self.marginals
        return tuple(marginal.weight if isinstance(marginal, MarginalSpec) else 1 for marginal in listed)

    def over(self, universe: Universe) -> Workload:
        """Return the workload, with columns as axes of the universe."""
        places = {name: axis for axis, name in enumerate(universe.names)}
        target = None if self.target is None else places[self.target]
        ranges = [places[name] for name in self.ranges or ()]
        if isinstance(self.marginals, int):
            return Workload.all_of(attributes=len(places), order=self.marginals, target=target, ranges=ranges)
        listed = [marginal.columns if isinstance(marginal, MarginalSpec) else marginal for marginal in self.marginals]
        axes = [[places[name] for name in columns] for columns in listed]
        return Workload.of(axes, weights=self._weights, target=target, ranges=ranges)


def check_workload(document: Document, attributes: Mapping[str, Attribute]) -> None:
    """Check the workload against the columns, on the raw document, so that its mistakes are reported together with all others."""
    declared, workload = document.section("universe").keys(), document.section("workload")
    marginals, target, ranges = (workload.get(key) for key in ("marginals", "target", "ranges"))
    if isinstance(marginals, int) and declared and marginals > len(declared):
        document.mistake(
            ("workload", "marginals"), f"`marginals` is {marginals}, but the universe has {len(declared)} columns"
        )
    listed = list(_listed(marginals))
    for place, columns in listed:
        _check_columns(document, place, columns, declared)
    if isinstance(target, str):
        _check_column(document, ("workload", "target"), target, declared)
        if listed and target in declared and not any(target in columns and len(columns) > 1 for _, columns in listed):
            document.mistake(
                ("workload", "target"),
                f"`{target}` is in no marginal of two or more columns; list one that contains it, or remove `target`",
            )
    if isinstance(ranges, list):
        _check_columns(document, ("workload", "ranges"), ranges, declared)
        for index, name in enumerate(ranges):
            if isinstance(name, str) and name in attributes and not attributes[name].ordered:
                document.mistake(
                    ("workload", "ranges", index),
                    f"`{name}` has no order, so it has no ranges; name columns of type integer, number, date or datetime",
                )


def _listed(marginals: Any) -> Iterator[tuple[Place, list[Any]]]:
    """Yield the place and the columns of each listed marginal, even if the list has other mistakes."""
    for row, marginal in enumerate(marginals if isinstance(marginals, list) else ()):
        if isinstance(marginal, list):
            yield ("workload", "marginals", row), marginal
        elif isinstance(marginal, dict) and isinstance(marginal.get("columns"), list):
            yield ("workload", "marginals", row, "columns"), marginal["columns"]


def _check_columns(document: Document, place: Place, names: list[Any], declared: Collection[str]) -> None:
    for index, name in enumerate(names):
        if isinstance(name, str):  # pydantic has reported anything else
            if name in names[:index]:
                document.mistake((*place, index), f"`{name}` is listed twice; keep one")
            _check_column(document, (*place, index), name, declared)


def _check_column(document: Document, place: Place, name: str, declared: Collection[str]) -> None:
    if name not in declared:
        document.mistake(place, f"`{name}` is not a column of the universe; declare it or remove it")

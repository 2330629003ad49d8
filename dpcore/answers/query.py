"""A question about a release, as a frozen tree: what is asked, of which rows, in which groups, and in which order.

Columns are named by their positions in the universe. A tree that `sql.parse` returns fits its universe; a tree made by hand is not checked.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

Value: TypeAlias = Any
"""A constant: a text, a boolean, a Fraction, a date or a datetime."""


COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Bin:
    """Intervals of equal width: the term is the first number of a value's interval."""

    width: Fraction


@dataclass(frozen=True)
class Buckets:
    """SQL's `width_bucket`: `count` intervals between two bounds, numbered from 1; 0 is below them and count + 1 above."""

    low: Fraction
    high: Fraction
    count: int


@dataclass(frozen=True)
class Cells:
    """The declared bins, or found intervals, of a column: the term is the first value of a value's bin."""


@dataclass(frozen=True)
class Truncate:
    """SQL's `date_trunc`: the first day or moment of a unit of the calendar."""

    unit: str


@dataclass(frozen=True)
class Part:
    """A part of a date, such as its year, as a number."""

    unit: str


Transform: TypeAlias = Bin | Buckets | Cells | Truncate | Part


@dataclass(frozen=True)
class Term:
    """A column, or a function of it that groups neighbouring values."""

    column: int
    transform: Transform | None = None


@dataclass(frozen=True)
class Compare:
    """A term compared with a constant. The operator is one of `COMPARISONS`."""

    term: Term
    operator: str
    value: Value


@dataclass(frozen=True)
class Among:
    """Whether a term equals one of some constants."""

    term: Term
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Like:
    """Whether a text matches a pattern with % and _."""

    term: Term
    pattern: str
    any_case: bool = False


@dataclass(frozen=True)
class IsNull:
    """Whether a term is null. This is never unknown."""

    term: Term


@dataclass(frozen=True)
class Always:
    """A constant truth value."""

    truth: bool = True


@dataclass(frozen=True)
class Not:
    """The opposite of a condition; unknown stays unknown."""

    part: "Condition"


@dataclass(frozen=True)
class IsTrue:
    """Whether a condition is true; false where it is unknown."""

    part: "Condition"


@dataclass(frozen=True)
class All:
    """SQL's `and`."""

    parts: tuple["Condition", ...]


@dataclass(frozen=True)
class AnyOf:
    """SQL's `or`."""

    parts: tuple["Condition", ...]


Condition: TypeAlias = Compare | Among | Like | IsNull | Always | Not | IsTrue | All | AnyOf
"""A condition on a row: true, false, or unknown because a value is null."""


@dataclass(frozen=True)
class Count:
    """The number of rows that also satisfy a condition."""

    where: Condition = Always()


@dataclass(frozen=True)
class Sum:
    """The sum of a column of numbers over rows that also satisfy a condition. Nulls are left out."""

    column: int
    where: Condition = Always()


@dataclass(frozen=True)
class Mean:
    """The mean of a column of numbers, likewise."""

    column: int
    where: Condition = Always()


@dataclass(frozen=True)
class Quantile:
    """The value of an ordered column that a share of the rows with a value is below, likewise."""

    column: int
    share: float
    where: Condition = Always()


@dataclass(frozen=True)
class Overall:
    """A number over all groups together: SQL's `sum(count(*)) over ()`."""

    number: "Count | Sum"


@dataclass(frozen=True)
class Constant:
    """A number that does not depend on the release."""

    value: float


@dataclass(frozen=True)
class Arithmetic:
    """Two numbers, combined by +, -, * or /. A division by zero is null."""

    operator: str
    left: "Number"
    right: "Number"


Aggregate: TypeAlias = Count | Sum | Mean | Quantile
Number: TypeAlias = Aggregate | Overall | Constant | Arithmetic


@dataclass(frozen=True)
class KeyOf:
    """A group's key, by its position."""

    position: int


@dataclass(frozen=True)
class Having:
    """A comparison of results. The operator is one of `COMPARISONS`, or `is null`, for which the right side is left out."""

    left: Number | KeyOf
    operator: str
    right: Number | KeyOf | Value


Filter: TypeAlias = Having | Always | Not | All | AnyOf
"""A condition on a group's results. The parts of Not, All and AnyOf are filters, too."""


@dataclass(frozen=True)
class Order:
    """One item of `order by`."""

    by: Number | KeyOf
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Key:
    """A group key, and the name of its column in the result. If `high` is named, that column has the end of the key's interval."""

    name: str
    term: Term
    high: str | None = None


@dataclass(frozen=True)
class Output:
    """A column of the result: a number, or a key by its position."""

    name: str
    value: Number | KeyOf


@dataclass(frozen=True)
class Query:
    """A whole question.

    Attributes:
        outputs: The columns of the result.
        where: Which rows count.
        keys: The groups. Without keys, all rows are one group.
        having: Which groups are shown.
        order: How they are sorted; without it by their keys.
        limit: How many are shown at most.
        offset: How many are left out first.
    """

    outputs: tuple[Output, ...]
    where: Condition = Always()
    keys: tuple[Key, ...] = ()
    having: Any = Always()
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0

    def numbers(self) -> tuple[Number, ...]:
        """Return all numbers that are shown, filtered or sorted by, each once."""
        return tuple(dict.fromkeys(self.places()))

    def aggregates(self) -> tuple[Aggregate, ...]:
        """Return all aggregates that numbers are computed from."""
        return tuple(aggregate for number in self.numbers() for aggregate in aggregates(number))

    def parts(self, column: int) -> list[Any]:
        """Return all elementary conditions, and the terms of all keys, that concern a column."""
        conditions = [self.where, *(aggregate.where for aggregate in self.aggregates())]
        elementary = [part for condition in conditions for part in leaves(condition) if not isinstance(part, Always)]
        parts = [*elementary, *(key.term for key in self.keys)]
        return [part for part in parts if getattr(part, "term", part).column == column]

    def places(self) -> tuple[Number, ...]:
        """Return the number in each place that has one. Two places may have the same."""
        values = [output.value for output in self.outputs] + [order.by for order in self.order]
        return tuple(value for value in [*values, *_sides(self.having)] if isinstance(value, Number))


def aggregates(number: Number) -> Iterator[Aggregate]:
    """Yield the aggregates that a number is computed from."""
    match number:
        case Arithmetic(_, left, right):
            yield from aggregates(left)
            yield from aggregates(right)
        case Overall(inner):
            yield inner
        case Constant():
            return
        case _:
            yield number


def leaves(condition: Any) -> Iterator[Any]:
    """Yield the parts of a condition or filter that are not composed of others.

    >>> list(leaves(Not(All((IsNull(Term(0)), Always())))))
    [IsNull(term=Term(column=0, transform=None)), Always(truth=True)]
    """
    waiting = [condition]
    while waiting:
        part = waiting.pop()
        match part:
            case Not(inner) | IsTrue(inner):
                waiting.append(inner)
            case All(parts) | AnyOf(parts):
                waiting += reversed(parts)
            case _:
                yield part


def terms(condition: Condition) -> Iterator[Term]:
    """Yield the terms of a condition."""
    for part in leaves(condition):
        if not isinstance(part, Always):
            yield part.term


def _sides(having: Any) -> Iterator[Any]:
    for part in leaves(having):
        if isinstance(part, Having):
            yield part.left
            yield part.right

"""Columns, functions of one column, and constants of a column's type."""

import sys
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from sqlglot import expressions as exp

from dpcore.answers.calendar import PARTS, TRUNCATED
from dpcore.answers.query import Bin, Buckets, Cells, Part, Term, Truncate
from dpcore.answers.sql.errors import QueryError, mistake, nearest, nearest_column, shown, unsupported
from dpcore.universe import Attribute, Date, Datetime, Integer, Number, Universe
from dpcore.universe.leaves import Fine
from dpcore.universe.spread import category_values

Kind: TypeAlias = Literal["text", "number", "boolean", "moment"]

MOST_VALUES = 1000
"""The most values of a column at full resolution that are groups by themselves."""

_PARTS_OF = (
    exp.Year,
    exp.Quarter,
    exp.Month,
    exp.Week,
    exp.WeekOfYear,
    exp.Day,
    exp.DayOfMonth,
    exp.DayOfWeek,
    exp.DayOfWeekIso,
    exp.DayOfYear,
    exp.Hour,
    exp.Minute,
    exp.Second,
)
_OTHER_NAMES = {
    "dow": "dayofweek",
    "weekday": "dayofweek",
    "doy": "dayofyear",
    "dayofmonth": "day",
    "weekofyear": "week",
    "dayofweekiso": "isodow",
}
_WRAPPED = (exp.Paren, exp.Alias)


def unwrapped(node: exp.Expr) -> exp.Expr:
    """Return what is inside parentheses."""
    while isinstance(node, _WRAPPED):
        node = node.this
    return node


@dataclass(frozen=True)
class Scope:
    """What names in a statement refer to.

    Attributes:
        text: The statement.
        universe: The columns of the release.
        tables: The names by which the release may be called.
    """

    text: str
    universe: Universe
    tables: Collection[str]

    def column(self, node: exp.Column) -> int:
        """Return the position of a column. Names are the same in any case, unless that makes two columns one."""
        table, name = node.table, node.name
        if node.args.get("db") or (table and table.casefold() not in self.tables):
            raise self.refused(node, f"there is no table {shown(table)}; name the column alone")
        names = self.universe.names
        if name in names:
            return names.index(name)
        alike = [at for at, own in enumerate(names) if own.casefold() == name.casefold()]
        if len(alike) == 1:
            return alike[0]
        if isinstance(node.this, exp.Star):
            raise self.refused(
                node,
                "a release has no rows to show here; ask for count(*), sum, avg, median or quantile_cont",
            )
        raise self.refused(node, f"there is no column {shown(name)}; {nearest_column(name, names)}")

    def attribute(self, column: int) -> Attribute:
        """Return a column."""
        return self.universe.attributes[self.universe.names[column]]

    def name(self, column: int) -> str:
        """Return the name of a column."""
        return self.universe.names[column]

    def kind(self, term: Term) -> Kind:
        """Return the kind of a term's values."""
        if isinstance(term.transform, Part | Bin | Buckets):
            return "number"
        return kind_of(self.attribute(term.column))

    def refused(self, node: exp.Expr, message: str) -> QueryError:
        """Return an error at a part of the statement."""
        return mistake(self.text, node, message)

    def term(self, node: exp.Expr) -> Term:  # noqa: PLR0911  a table, one line for each kind
        """Return a column, or a function of one."""
        node = unwrapped(node)
        if isinstance(node, exp.Column):
            return Term(self.column(node))
        if isinstance(node, exp.Mul):
            return self._multiple(node)
        if isinstance(node, _PARTS_OF):
            return self._part(node, node.this, type(node).__name__.lower())
        if isinstance(node, exp.Extract):
            return self._part(node, node.expression, node.name.lower())
        if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
            return self._truncated(node, node.this, node.text("unit").lower())
        if isinstance(node, exp.WidthBucket):
            return self._buckets(node)
        if isinstance(node, exp.Anonymous):
            return self._named(node)
        raise unsupported(
            self.text,
            node,
            "use a column, floor(age / 10) * 10, bin(age, 10), date_trunc('month', day), year(day) or width_bucket(age, 0, 100, 5)",
        )

    def _named(self, node: exp.Anonymous) -> Term:
        name, arguments = str(node.this).lower(), node.expressions
        if name == "bin" and arguments:
            column = self._column_of(arguments[0])
            if len(arguments) == 1:
                return self.cells(node, column)
            return self._bin(node, column, self.number(arguments[1]))
        if name in _OTHER_NAMES and len(arguments) == 1:
            return self._part(node, arguments[0], _OTHER_NAMES[name])
        if name in ("date_part", "datepart") and len(arguments) == 2:
            return self._part(node, arguments[1], str(unwrapped(arguments[0]).name).lower())
        if name in ("date_trunc", "datetrunc") and len(arguments) == 2:
            return self._truncated(node, arguments[1], str(unwrapped(arguments[0]).name).lower())
        raise self.refused(
            node,
            f"there is no function {shown(node.this)}; use count, sum, avg, median, quantile_cont, bin, floor, date_trunc, year or width_bucket",
        )

    def _column_of(self, node: exp.Expr) -> int:
        inner = unwrapped(node)
        if not isinstance(inner, exp.Column):
            raise unsupported(self.text, inner, "name a column")
        return self.column(inner)

    def _multiple(self, node: exp.Mul) -> Term:
        """Read `floor(age / 10) * 10`, or `age // 10 * 10`."""
        left, right = unwrapped(node.this), unwrapped(node.expression)
        if isinstance(left, exp.Literal | exp.Neg):
            left, right = right, left
        inner = unwrapped(left.this) if isinstance(left, exp.Floor) else left
        if isinstance(inner, exp.Div if isinstance(left, exp.Floor) else exp.IntDiv):
            column = self._column_of(inner.this)
            if self.number(inner.expression) == (width := self.number(right)):
                if isinstance(inner, exp.IntDiv) and getattr(self.attribute(column), "minimum", 0) < 0:
                    raise self.refused(node, "`//` rounds negative numbers up; write floor(x / 10) * 10")
                return self._bin(node, column, width)
        raise self.refused(
            node, "the question multiplies a column; for bins write floor(age / 10) * 10, twice the same width"
        )

    def _bin(self, node: exp.Expr, column: int, width: Fraction) -> Term:
        if not isinstance(self.attribute(column), Integer | Number):
            raise self.refused(node, f"{self.name(column)} is not a number; {self._how_to_group(column)}")
        if width <= 0:
            raise self.refused(node, "a bin needs a width above 0, such as bin(age, 10)")
        return Term(column, Bin(width))

    def _buckets(self, node: exp.WidthBucket) -> Term:
        column = self._column_of(node.this)
        low, high, count = (self.number(node.args[name]) for name in ("min_value", "max_value", "num_buckets"))
        if not isinstance(self.attribute(column), Integer | Number):
            raise self.refused(node, f"{self.name(column)} is not a number; {self._how_to_group(column)}")
        if not (low < high and count.denominator == 1 and 1 <= count <= MOST_VALUES):
            raise self.refused(
                node, "width_bucket needs ascending bounds and 1 to 1000 buckets: width_bucket(age, 0, 100, 5)"
            )
        return Term(column, Buckets(low, high, int(count)))

    def _part(self, node: exp.Expr, of: exp.Expr, unit: str) -> Term:
        column, unit = self._column_of(of), _OTHER_NAMES.get(unit, unit)
        self._require_unit(node, column, unit, PARTS)
        return Term(column, Part(unit))

    def _truncated(self, node: exp.Expr, of: exp.Expr, unit: str) -> Term:
        column = self._column_of(of)
        self._require_unit(node, column, unit, TRUNCATED)
        return Term(column, Truncate(unit))

    def _require_unit(self, node: exp.Expr, column: int, unit: str, units: Collection[str]) -> None:
        if kind_of(self.attribute(column)) != "moment":
            raise self.refused(node, f"{self.name(column)} is not a date; {self._how_to_group(column)}")
        if unit not in units:
            raise self.refused(node, f"there is no unit {shown(unit)}; {nearest(unit, units)}")

    def cells(self, node: exp.Expr, column: int) -> Term:
        """Return the bins of a column as they were declared or found."""
        if not self.attribute(column).ordered:
            raise self.refused(node, f"{self.name(column)} has no bins; group by {self.name(column)} itself")
        return Term(column, Cells())

    def key(self, node: exp.Expr) -> Term:
        """Return a term to group by. A column in bins is grouped by them."""
        term = self.term(node)
        attribute = self.attribute(term.column)
        if term.transform is not None or not attribute.ordered:
            return term
        if not isinstance(attribute, Fine):
            return Term(term.column, Cells())
        if attribute.places > MOST_VALUES or isinstance(attribute, Datetime):
            raise self.refused(
                node, f"{self.name(term.column)} has too many values to group by; {self._how_to_group(term.column)}"
            )
        return term

    def _how_to_group(self, column: int) -> str:
        name, attribute = self.name(column), self.attribute(column)
        match kind_of(attribute):
            case "moment":
                return f"write date_trunc('month', {name}) or year({name})"
            case "number" if isinstance(attribute, Integer | Number):
                return f"write bin({name}, 100) for bins of 100, floor({name} / 100) * 100, or bin({name}) for the found ones"
        return f"group by {name} itself"

    def number(self, node: exp.Expr) -> Fraction:
        """Return a constant number."""
        inner = unwrapped(node)
        if isinstance(inner, exp.Neg):
            return -self.number(inner.this)
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return self._fraction(inner, str(inner.this))
        raise unsupported(self.text, inner, "write a number, such as 10")

    def _fraction(self, node: exp.Expr, text: str) -> Fraction:
        number = _read_number(text)
        if number is None:
            raise self.refused(node, f"{shown(text)} is not a number, or too large; write one such as 10 or 2.5")
        return number

    def constant(self, node: exp.Expr, term: Term) -> Any:
        """Return a constant of the type of a term's values."""
        kind, inner = self.kind(term), unwrapped(node)
        if isinstance(inner, exp.Null):
            raise self.refused(inner, f"nothing equals null; write {self.name(term.column)} is null")
        if isinstance(inner, exp.Cast) and isinstance(unwrapped(inner.this), exp.Literal):
            inner = unwrapped(inner.this)
        if kind == "boolean":
            if isinstance(inner, exp.Boolean):
                return bool(inner.this)
            raise self.refused(inner, f"{self.name(term.column)} is true or false; compare it with one of them")
        if kind == "number" and isinstance(inner, exp.Literal) and inner.is_string:
            return self._fraction(inner, str(inner.this))
        if kind == "number":
            return self.number(inner)
        if not (isinstance(inner, exp.Literal) and inner.is_string):
            example = "'2025-01-31'" if kind == "moment" else f"'{inner.name}'" if inner.name.isalnum() else "'text'"
            raise self.refused(inner, f"compare {self.name(term.column)} with a constant in quotes, such as {example}")
        return str(inner.this) if kind == "text" else self._moment(inner, str(inner.this))

    def _moment(self, node: exp.Expr, text: str) -> datetime:
        moment = _read_moment(text)
        if moment is None:
            raise self.refused(
                node,
                f"{shown(text)} is not a date without a time zone; write one such as '2025-01-31' or '2025-01-31 12:00:00'",
            )
        return moment

    def value(self, node: exp.Expr, term: Term) -> Any:
        """Return a constant that a term may equal. An undeclared category is a mistake."""
        value = self.constant(node, term)
        values = category_values(self.attribute(term.column))
        if term.transform is None and values is not None and value not in values:
            declared = [category for category in values if category is not None]
            undeclared = "; undeclared values are counted as 'other'" if "other" in declared else ""
            raise self.refused(
                node,
                f"{shown(unwrapped(node).name)} is not a declared value of {self.name(term.column)}; {nearest(str(value), declared)}{undeclared}",
            )
        return value


def kind_of(attribute: Attribute) -> Kind:
    """Return the kind of a column's values."""
    if isinstance(attribute, Date | Datetime):
        return "moment"
    values = category_values(attribute)
    if values is None:
        return "number"
    first = values[0]
    return "text" if isinstance(first, str) else "boolean" if isinstance(first, bool) else "number"


def _read_number(text: str) -> Fraction | None:
    """Read a number, unless its digits could exhaust memory, or it is too large for a float."""
    try:
        exponent = int(text.lower().partition("e")[2] or 0)
        number = Fraction(text) if len(text) <= 400 and abs(exponent) <= 400 else None
    except (ValueError, ZeroDivisionError):
        return None
    return None if number is None or abs(number) > sys.float_info.max else number


def _read_moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.strip()) if len(text) <= 40 else None
    except ValueError:
        return None
    return None if moment is None or moment.tzinfo is not None else moment

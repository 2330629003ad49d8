"""Read ranges and lists of values from check constraints, such as `age BETWEEN 0 AND 120`. What is not understood is left out."""

from collections.abc import Iterable, Iterator
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpcore.starter.description import Bound, Value, as_bound

Facts = dict[str, Any]
"""What constraints say about a column, by the attributes of a `Column`. Of two that say the same, the first counts."""


def facts_of(constraint: str, *, dialect: str) -> dict[str, Facts]:
    """Return what a constraint says about each column that it restricts.

    >>> facts_of("age >= 0 AND age < 120", dialect="sqlite")
    {'age': {'maximum': 120, 'minimum': 0}}
    >>> facts_of("sex IN ('F', 'M') OR sex IS NULL", dialect="sqlite")
    {'sex': {'values': ('F', 'M')}}
    """
    if len(constraint) > 10_000:
        return {}
    try:
        parsed = sqlglot.parse_one(constraint, dialect="postgres" if dialect == "postgresql" else dialect)
    except (SqlglotError, ValueError, RecursionError):
        return {}
    return merged(facts for part in _conjuncts(parsed) for facts in _facts(part))


def merged(facts: Iterable[tuple[str, Facts]]) -> dict[str, Facts]:
    """Return the facts about each column, without those that are None."""
    by_column: dict[str, Facts] = {}
    for column, said in facts:
        news = {key: fact for key, fact in said.items() if fact is not None}
        by_column[column] = {**news, **by_column.get(column, {})}
    return by_column


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    node = node.unnest()
    if isinstance(node, exp.And):
        yield from _conjuncts(node.left)
        yield from _conjuncts(node.right)
    elif isinstance(node, exp.Or):
        # `sex IN (...) OR sex IS NULL` restricts sex; any other alternative restricts nothing for sure
        sides = [side.unnest() for side in (node.left, node.right)]
        rest = [side for side in sides if not _is_null(side)]
        if len(rest) == 1 and len({column.name for column in node.find_all(exp.Column)}) == 1:
            yield from _conjuncts(rest[0])
    else:
        yield node


def _is_null(node: exp.Expr) -> bool:
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)


def _facts(node: exp.Expr) -> Iterator[tuple[str, Facts]]:
    column = _column(node.this) if isinstance(node.this, exp.Expr) else None
    match node:
        case exp.Between() if column:
            yield column, {"minimum": _literal(node.args["low"]), "maximum": _literal(node.args["high"])}
        case exp.In() if column and node.expressions:
            yield column, {"values": _list(node.expressions)}
        case exp.EQ() if column and isinstance(listed := node.expression.unnest(), exp.Any):
            array = next(listed.find_all(exp.Array), None)
            yield column, {"values": _list(array.expressions) if array else None}
        case exp.GTE() | exp.GT() | exp.LTE() | exp.LT():
            yield from _comparison(node)


def _comparison(node: exp.Binary) -> Iterator[tuple[str, Facts]]:
    left, right, kind = node.left, node.right, type(node)
    if _column(left) is None:  # 0 <= age
        left, right = right, left
        kind = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.LT: exp.GT}[kind]
    column, bound = _column(left), _literal(right)
    if column is None or bound is None:
        return
    # an excluded limit is kept: one cell more does no harm, and only whole numbers have a value next to it
    yield column, {"minimum" if kind in {exp.GTE, exp.GT} else "maximum": bound}


def _bare(node: Any) -> Any:
    """Return an expression without parentheses and casts around it."""
    node = node.unnest()
    return _bare(node.this) if isinstance(node, exp.Cast) else node


def _column(node: exp.Expr) -> str | None:
    bare = _bare(node)
    return bare.name if isinstance(bare, exp.Column) else None


def _list(nodes: list[exp.Expr]) -> tuple[Value, ...] | None:
    values = [_literal(node) for node in nodes]
    return None if any(value is None for value in values) else tuple(value for value in values if value is not None)


def _literal(node: Any) -> Bound | None:
    """Return a literal's value: a number, or text; None for anything else."""
    node = _bare(node)
    is_negative = isinstance(node, exp.Neg)
    if is_negative:
        node = node.this.unnest()
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return node.name
    bound = as_bound(node.name)
    if bound is None or isinstance(bound, str):
        return None
    return -bound if is_negative else bound

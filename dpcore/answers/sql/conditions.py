"""Conditions on rows: what stands after `where` and `filter`."""

from collections.abc import Callable, Iterator
from datetime import time
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlglot import expressions as exp

from dpcore.answers.query import (
    All,
    Always,
    Among,
    AnyOf,
    Compare,
    Condition,
    IsNull,
    IsTrue,
    Like,
    Not,
    Term,
    Truncate,
)
from dpcore.answers.sql.errors import unsupported
from dpcore.answers.sql.terms import Scope, unwrapped
from dpcore.universe import Datetime

if TYPE_CHECKING:
    from dpcore.answers.sql.terms import Kind

OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CONSTANTS = (exp.Literal, exp.Neg, exp.Boolean, exp.Null, exp.Cast)
_SUPPORTED = "use comparisons with constants, in, between, like, is null, and, or, not"


def flattened(node: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield the parts of a chain of `and` or of `or` in order, without recursion: a chain may be long."""
    waiting = [node]
    while waiting:
        part = unwrapped(waiting.pop())
        if isinstance(part, kind):
            waiting += [part.expression, part.this]
        else:
            yield part


def condition(scope: Scope, node: exp.Expr) -> Condition:
    """Return the condition that an expression states.

    Raises:
        QueryError: If it is not supported, or does not fit the columns.
    """
    stated: Condition = composed(node, partial(_elementary, scope))
    return stated


def composed(node: exp.Expr, read: Callable[[exp.Expr], Any]) -> Any:
    """Return what an expression states that may be composed by `and`, `or` and `not`, given how its parts are read."""
    node = unwrapped(node)
    match node:
        case exp.And():
            return All(tuple(composed(part, read) for part in flattened(node, exp.And)))
        case exp.Or():
            return AnyOf(tuple(composed(part, read) for part in flattened(node, exp.Or)))
        case exp.Not():
            return Not(composed(node.this, read))
        case exp.Boolean():
            return Always(truth=bool(node.this))
    return read(node)


def _elementary(scope: Scope, node: exp.Expr) -> Condition:
    if type(node) in OPERATORS:
        return _comparison(scope, node)
    read = _READERS.get(type(node))
    if read is None:
        raise unsupported(scope.text, node, _SUPPORTED)
    return read(scope, node)


def _comparison(scope: Scope, node: exp.Expr) -> Condition:
    operator = OPERATORS[type(node)]
    left, right = unwrapped(node.this), unwrapped(node.expression)
    if isinstance(left, _CONSTANTS) and not isinstance(right, _CONSTANTS):
        left, right, operator = right, left, FLIPPED[operator]
    if right.find(exp.Column):
        raise scope.refused(
            right, "a column can only be compared with a constant, not with another column; put a text in single quotes"
        )
    term = scope.term(left)
    return _compare(scope, node, term, operator, right)


def _compare(scope: Scope, node: exp.Expr, term: Term, operator: str, right: exp.Expr) -> Condition:
    kind: Kind = scope.kind(term)
    if kind == "boolean" and operator not in ("=", "<>"):
        raise scope.refused(node, f"{scope.name(term.column)} is true or false; compare it with = or <>")
    read = scope.value if operator in ("=", "<>") else scope.constant
    return Compare(term, operator, _fitting(scope, right, term, read(right, term)))


def _fitting(scope: Scope, node: exp.Expr, term: Term, value: Any) -> Any:
    """Return a constant in the type of a truncated day, with which it is compared directly."""
    if not isinstance(term.transform, Truncate) or isinstance(scope.attribute(term.column), Datetime):
        return value
    if value.time() != time.min:
        raise scope.refused(node, f"{scope.name(term.column)} has no times; compare it with a day such as '2025-01-31'")
    return value.date()


def _is(scope: Scope, node: exp.Is) -> Condition:
    right = unwrapped(node.expression)
    if isinstance(right, exp.Null):
        return IsNull(scope.term(node.this))
    if isinstance(right, exp.Boolean):
        inner = condition(scope, node.this)
        return IsTrue(inner if right.this else Not(inner))
    raise unsupported(scope.text, node, "write is null, is not null, is true or is false")


def _in(scope: Scope, node: exp.In) -> Condition:
    if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
        raise scope.refused(node, "a list after `in` must be of constants; write in ('a', 'b')")
    term = scope.term(node.this)
    return Among(term, tuple(_fitting(scope, value, term, scope.value(value, term)) for value in node.expressions))


def _between(scope: Scope, node: exp.Between) -> Condition:
    if node.args.get("symmetric"):
        raise scope.refused(node, "leave `symmetric` out, and write the smaller constant first")
    term = scope.term(node.this)
    low = _compare(scope, node, term, ">=", node.args["low"])
    return All((low, _compare(scope, node, term, "<=", node.args["high"])))


def _like(scope: Scope, node: exp.Expr) -> Condition:
    term, pattern = scope.term(node.this), unwrapped(node.expression)
    if scope.kind(term) != "text" or not (isinstance(pattern, exp.Literal) and pattern.is_string):
        raise scope.refused(node, "`like` compares a text column with a pattern in quotes, such as 'card%'")
    return Like(term, str(pattern.this), any_case=isinstance(node, exp.ILike))


def _true(scope: Scope, node: exp.Column) -> Condition:
    column = scope.column(node)
    if scope.kind(Term(column)) != "boolean":
        raise scope.refused(node, f"{scope.name(column)} is not true or false; compare it with a constant")
    return Compare(Term(column), "=", value=True)


_READERS: dict[type[exp.Expr], Callable[[Scope, Any], Condition]] = {
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Column: _true,
}

"""Numbers: counts, sums, means, quantiles, and what is computed from them."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from sqlglot import expressions as exp

from dpcore.answers.query import (
    Aggregate,
    All,
    AnyOf,
    Arithmetic,
    Condition,
    Constant,
    Count,
    IsNull,
    Mean,
    Not,
    Number,
    Overall,
    Quantile,
    Sum,
)
from dpcore.answers.sql.conditions import OPERATORS, condition
from dpcore.answers.sql.errors import shown, unsupported
from dpcore.answers.sql.terms import Scope, kind_of, unwrapped

ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_CONDITIONS = (*OPERATORS, exp.And, exp.Or, exp.Not, exp.In, exp.Between, exp.Like, exp.ILike, exp.Is, exp.Boolean)
_QUANTILES = (exp.PercentileCont, exp.PercentileDisc, exp.Quantile, exp.ApproxQuantile)
_SUPPORTED = "use count, sum, avg, median, quantile_cont(x, 0.9), and +, -, *, / of them"


def is_number(node: exp.Expr) -> bool:
    """Return whether an expression contains an aggregate, so that it is a number of each group."""
    kinds = (exp.AggFunc, exp.Window, exp.Filter, exp.WithinGroup)
    return any(isinstance(part, kinds) for part in node.walk())


def number(scope: Scope, node: exp.Expr) -> Number:  # noqa: PLR0911  a table, one line for each kind
    """Return the number that an expression states.

    Raises:
        QueryError: If it is not supported, or does not fit the columns.
    """
    node = unwrapped(node)
    match node:
        case exp.Literal() if not node.is_string:
            return Constant(float(scope.number(node)))
        case exp.Neg():
            return Arithmetic("-", Constant(0.0), number(scope, node.this))
        case exp.Window():
            return _overall(scope, node)
        case exp.Cast():
            return number(scope, node.this)
        case exp.Nullif():
            return number(scope, node.this)  # a division by zero is null anyway
        case exp.Column():
            name = scope.name(scope.column(node))
            raise scope.refused(
                node, f"{name} is neither a group nor inside an aggregate; write avg({name}), or group by {name}"
            )
    if type(node) in ARITHMETIC:
        return _chain(scope, node)
    return _aggregate(scope, node)


def _chain(scope: Scope, node: exp.Expr) -> Number:
    """Return a sum or product. Chains lean to the left, and may be long, so that side is followed without recursion."""
    pending: list[tuple[str, Number]] = []
    left = node
    while type(left) in ARITHMETIC:
        pending.append((ARITHMETIC[type(left)], _operand(scope, left, left.expression)))
        left = unwrapped(left.this)
    result = _operand(scope, left, left)
    for operator, right in reversed(pending):
        result = Arithmetic(operator, result, right)
    return result


def _operand(scope: Scope, node: exp.Expr, side: exp.Expr) -> Number:
    operand = number(scope, side)
    if isinstance(operand, Quantile) and kind_of(scope.attribute(operand.column)) == "moment":
        raise scope.refused(node, "a date cannot be computed with; ask for it alone")
    return operand


def _overall(scope: Scope, node: exp.Window) -> Number:
    """Read `sum(count(*)) over ()`: the number over all groups."""
    inner = node.this
    plain = not any(node.args.get(clause) for clause in ("partition_by", "order", "spec", "alias"))
    if plain and isinstance(inner, exp.Sum):
        total = _aggregate(scope, unwrapped(inner.this))
        if isinstance(total, Count | Sum):
            return Overall(total)
    raise scope.refused(node, "the only window is sum(count(*)) over (), the total of all groups")


def _aggregate(scope: Scope, node: exp.Expr) -> Number:
    read = _READERS.get(type(node))
    if read is not None:
        return read(scope, node)
    if isinstance(node, exp.Max | exp.Min):
        raise scope.refused(
            node,
            "an extreme is a single row, which a private release does not show; write quantile_cont(x, 0.99) or quantile_cont(x, 0.01)",
        )
    if isinstance(node, exp.Round):
        raise scope.refused(node, "leave `round` out; round the answer afterwards")
    if isinstance(node, exp.Anonymous):
        raise scope.refused(node, f"there is no function {shown(node.this)}; {_SUPPORTED}")
    raise unsupported(scope.text, node, _SUPPORTED)


def _some(scope: Scope, node: exp.Filter) -> Number:
    """Read `count(*) filter (where ...)`."""
    return _filtered(_aggregate(scope, unwrapped(node.this)), condition(scope, node.expression.this), scope, node)


def _count_if(scope: Scope, node: exp.CountIf) -> Number:
    return Count(condition(scope, node.this))


def _median(scope: Scope, node: exp.Median) -> Number:
    return _quantile(scope, node, node.this, Fraction(1, 2))


def _quantile_at(scope: Scope, node: exp.Expr) -> Number:
    share = node.args.get("quantile") or node.args.get("expression")
    if share is None:
        raise scope.refused(node, "a quantile needs a column and a share: quantile_cont(cost, 0.9)")
    return _quantile(scope, node, node.this, scope.number(share))


def _filtered(value: Number, where: Condition, scope: Scope, node: exp.Expr) -> Number:
    if isinstance(value, Aggregate):
        return replace(value, where=All((value.where, where)))
    if isinstance(value, Arithmetic):  # the share that `avg` of a condition is
        left, right = (_filtered(side, where, scope, node) for side in (value.left, value.right))
        return Arithmetic(value.operator, left, right)
    raise scope.refused(node, "`filter` follows one aggregate: count(*) filter (where age > 65)")


def _count(scope: Scope, node: exp.Count) -> Number:
    inner = unwrapped(node.this) if node.this is not None else exp.Star()
    if node.args.get("expressions"):
        raise scope.refused(
            node, "count takes one column; write count(*) filter (where a is not null and b is not null)"
        )
    if isinstance(inner, exp.Distinct):
        raise scope.refused(
            node,
            "distinct values cannot be counted in a private release; count rows with count(*), or group by the column",
        )
    if isinstance(inner, exp.Star | exp.Literal):
        return Count()
    if isinstance(inner, exp.Case):
        chosen, value, otherwise = _case(scope, inner)
        if isinstance(value, Fraction) and otherwise is None:
            return Count(chosen)
        raise scope.refused(inner, "to count some rows write count(*) filter (where ...)")
    return Count(Not(IsNull(scope.term(inner))))


def _sum(scope: Scope, node: exp.Sum) -> Number:
    inner = _plain(node.this)
    if isinstance(inner, exp.Case):
        chosen, value, otherwise = _case(scope, inner)
        if isinstance(value, int) and otherwise in (None, Fraction(0)):
            return Sum(value, chosen)
        if value == Fraction(1) and otherwise in (None, Fraction(0)):
            return Count(chosen)
        raise scope.refused(inner, "write sum(case when ... then 1 else 0 end), or then a column")
    if _is_condition(scope, inner):
        return Count(condition(scope, inner))
    return Sum(_numbers(scope, node, inner, "sum"))


def _mean(scope: Scope, node: exp.Avg) -> Number:
    inner = _plain(node.this)
    if isinstance(inner, exp.Case):
        chosen, value, otherwise = _case(scope, inner)
        if isinstance(value, int) and otherwise is None:
            return Mean(value, chosen)
        if value == Fraction(1) and otherwise == Fraction(0):
            return Arithmetic("/", Count(chosen), Count())
        raise scope.refused(inner, "write avg(case when ... then 1 else 0 end), or then a column without else")
    if _is_condition(scope, inner):
        holds = condition(scope, inner)
        return Arithmetic("/", Count(holds), Count(AnyOf((holds, Not(holds)))))
    return Mean(_numbers(scope, node, inner, "avg"))


def _plain(node: exp.Expr) -> exp.Expr:
    """Return what is inside a cast, which changes nothing about a number or a truth value."""
    inner = unwrapped(node)
    while isinstance(inner, exp.Cast):
        inner = unwrapped(inner.this)
    return inner


def _is_condition(scope: Scope, node: exp.Expr) -> bool:
    if isinstance(node, exp.Column):
        return kind_of(scope.attribute(scope.column(node))) == "boolean"
    return isinstance(node, _CONDITIONS)


def _case(scope: Scope, node: exp.Case) -> tuple[Condition, int | Fraction, Fraction | None]:
    """Read `case when CONDITION then 1 else 0 end`: the condition, the number or column, and the other number."""
    ifs, otherwise = node.args["ifs"], node.args.get("default")
    if node.this is not None or len(ifs) != 1:
        raise scope.refused(node, "write one condition: case when age > 65 then 1 else 0 end")
    value = unwrapped(ifs[0].args["true"])
    chosen = condition(scope, ifs[0].this)
    rest = None if otherwise is None or isinstance(otherwise, exp.Null) else scope.number(otherwise)
    if isinstance(value, exp.Column):
        return chosen, _numbers(scope, value, value, "sum"), rest
    return chosen, scope.number(value), rest


def _numbers(scope: Scope, node: exp.Expr, inner: exp.Expr, function: str) -> int:
    """Return a column of numbers to sum."""
    if not isinstance(inner, exp.Column):
        raise unsupported(scope.text, inner, f"write {function} of a column")
    column = scope.column(inner)
    name, kind = scope.name(column), kind_of(scope.attribute(column))
    if kind == "moment":
        raise scope.refused(node, f"{name} is a date, which has no {function}; write median({name})")
    if kind != "number":
        raise scope.refused(node, f"{name} is {kind}, which has no {function}; count its values with group by {name}")
    return column


def _quantile(scope: Scope, node: exp.Expr, of: exp.Expr, share: Fraction) -> Number:
    inner = _plain(of)
    if not isinstance(inner, exp.Column):
        raise unsupported(scope.text, inner, "write a quantile of a column: quantile_cont(cost, 0.9)")
    column = scope.column(inner)
    if kind_of(scope.attribute(column)) not in ("number", "moment"):
        raise scope.refused(
            node, f"{scope.name(column)} has no order, hence no quantiles; count its values with group by"
        )
    if not 0 <= share <= 1:
        raise scope.refused(node, "the share of a quantile is a number from 0 to 1, such as 0.9")
    return Quantile(column, float(share))


def _within_group(scope: Scope, node: exp.WithinGroup) -> Number:
    """Read `percentile_cont(0.9) within group (order by cost)`."""
    inner, order = node.this, node.expression
    ordered = order.expressions if isinstance(order, exp.Order) else []
    if not isinstance(inner, _QUANTILES) or len(ordered) != 1:
        raise scope.refused(node, "write percentile_cont(0.9) within group (order by cost)")
    share = scope.number(inner.this)
    return _quantile(scope, node, ordered[0].this, 1 - share if ordered[0].args.get("desc") else share)


_READERS: dict[type[exp.Expr], Callable[[Scope, Any], Number]] = {
    exp.Filter: _some,
    exp.Count: _count,
    exp.CountIf: _count_if,
    exp.Sum: _sum,
    exp.Avg: _mean,
    exp.Median: _median,
    exp.WithinGroup: _within_group,
    **dict.fromkeys(_QUANTILES, _quantile_at),
}


def name_of(scope: Scope, value: Number) -> str:  # noqa: PLR0911  a table, one line for each number
    """Return the name of a number's column in the result, if the statement gives none."""
    match value:
        case Count():
            return "count"
        case Sum(column):
            return f"sum_{scope.name(column)}"
        case Mean(column):
            return f"avg_{scope.name(column)}"
        case Quantile(column, share):
            return f"median_{scope.name(column)}" if share == 0.5 else f"quantile_{share:g}_{scope.name(column)}"
        case Overall(inner):
            return f"all_{name_of(scope, inner)}"
        case Arithmetic("/", Count(), Count()):
            return "share"
        case Arithmetic("/"):
            return "ratio"
    return "number"

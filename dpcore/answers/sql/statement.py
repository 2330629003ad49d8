"""A whole statement: one `select` from the release, within limits that hostile input cannot exceed."""

import logging
from collections.abc import Collection
from dataclasses import is_dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from sqlglot import expressions as exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import TokenType

from dpcore.answers.query import (
    All,
    Always,
    Bin,
    Cells,
    Having,
    Key,
    KeyOf,
    Number,
    Order,
    Output,
    Part,
    Query,
    Term,
    Truncate,
)
from dpcore.answers.sql.conditions import FLIPPED, OPERATORS, composed, condition
from dpcore.answers.sql.errors import QueryError, as_written, mistake, position, shown, unquoted, unsupported
from dpcore.answers.sql.numbers import is_number, name_of, number
from dpcore.answers.sql.terms import Scope, unwrapped
from dpcore.scalars import is_unicode
from dpcore.universe import Universe
from dpcore.universe.spreading import spread_of

LONGEST = 20_000
"""The most characters of a question."""

MOST_DEPTH = 100
"""The most operations that are nested in each other, or follow each other in a sum. Evaluation needs several calls for each."""

MOST_OUTPUTS = 100
MOST_SHOWN = 10**9

_CLAUSES = ("expressions", "from_", "where", "group", "having", "order", "limit", "offset")
_TOO_DEEP = (
    f"the question nests or chains more than {MOST_DEPTH} operations; write it with fewer, or ask several questions"
)
_EXAMPLE = "select department, count(*), avg(cost) from release where age >= 65 group by department"

# sqlglot reports what it could not parse to its logger, besides raising.
logging.getLogger("sqlglot").addFilter(lambda _record: False)


def parse(text: str, universe: Universe, *, tables: Collection[str] = ("release",)) -> Query:
    """Return the query that a text asks.

    Args:
        text: One SQL statement, in DuckDB's dialect.
        universe: The columns of the release.
        tables: The names by which the release may be called.

    Raises:
        QueryError: If the text is not such a statement. The error has a line and a column, and says what to write instead.
    """
    try:
        query = _Statement(text, universe, tables).query()
    except RecursionError:
        raise QueryError(_TOO_DEEP, line=1, column=1) from None
    except QueryError as error:
        for name, offset in unquoted(text[:LONGEST], universe.names):
            line, column = position(text, offset)
            if error.line == line and column <= error.column <= column + len(name):  # else the mistake is elsewhere
                advice = f"write the column {as_written(name)} in double quotes, and in a shell the whole question in single quotes"
                raise QueryError(advice, line=line, column=column) from None
        raise
    if _depth(query) > MOST_DEPTH:
        raise QueryError(_TOO_DEEP, line=1, column=1)
    return query


def _depth(query: Query) -> int:
    """Return how many parts of a question are nested in each other, without recursion."""
    deepest = 0
    waiting: list[tuple[Any, int]] = [(query, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        for part in vars(node).values():
            inner = part if isinstance(part, tuple) else (part,)
            waiting += [(node, depth + 1) for node in inner if is_dataclass(node)]
    return deepest


def _parsed(text: str) -> exp.Select:
    """Parse one `select` statement."""
    if len(text) > LONGEST:
        raise QueryError(f"the question has {len(text):,} characters; write at most {LONGEST:,}", line=1, column=1)
    if not is_unicode(text):
        raise QueryError("the question is not valid Unicode; write it as UTF-8", line=1, column=1)
    dialect = Dialect.get_or_raise("duckdb")
    try:
        tokens = dialect.tokenize(text)
        statements = [statement for statement in dialect.parser().parse(tokens, text) if statement is not None]
    except ParseError as error:
        raise _unparsed(text, error) from None
    except (SqlglotError, ValueError, TypeError, AttributeError, IndexError, KeyError):
        # The tokenizer's errors have no position, and some texts make the parser itself fail.
        raise QueryError(
            f"this is not SQL; check quotes, comments and brackets; for example: {_EXAMPLE}", line=1, column=1
        ) from None
    for before, token in pairwise(tokens):
        if before.token_type == token.token_type == TokenType.COMMA:  # which the parser ignores
            line, column = position(text, token.start)
            raise QueryError("there is a comma too many; remove it", line=line, column=column)
    if not statements:
        raise QueryError(f"the question is empty; for example: {_EXAMPLE}", line=1, column=1)
    if len(statements) > 1:
        raise mistake(text, statements[1], "there is more than one statement; ask one question at a time")
    (statement,) = statements
    if not isinstance(statement, exp.Select):
        raise mistake(text, statement, f"only `select` is answered; for example: {_EXAMPLE}")
    return statement


def _unparsed(text: str, error: ParseError) -> QueryError:
    """Return the error for a text that is not SQL, at the last position that the parser names."""
    place = error.errors[0] if error.errors else {}
    line, column = place.get("line") or 1, place.get("col") or 1
    near = str(place.get("highlight") or "").strip()
    where = f" near {shown(near)}" if near else ""
    lines = text.splitlines() or [""]
    line = min(max(1, int(line)), len(lines))
    column = min(max(1, int(column) - max(0, len(near) - 1)), len(lines[line - 1]) + 1)
    return QueryError(f"this is not SQL{where}; for example: {_EXAMPLE}", line=line, column=column)


class _Statement:
    """A statement while it is read."""

    def __init__(self, text: str, universe: Universe, tables: Collection[str]) -> None:
        self._text = text
        self._select = _parsed(text)
        called = set(map(str.casefold, tables))
        self._scope = Scope(text, universe, called | self._alias(called))
        self._outputs: list[exp.Expr] = list(self._select.expressions)
        self._aliases = {node.alias.casefold(): node.this for node in self._outputs if isinstance(node, exp.Alias)}
        self._taken: set[str] = set()

    def query(self) -> Query:
        """Return the query."""
        self._refuse_others()
        where = self._select.args.get("where")
        conditions = Always() if where is None else condition(self._scope, where.this)
        terms = self._terms
        outputs = tuple(map(self._output, self._outputs))
        having = self._select.args.get("having")
        return Query(
            outputs=outputs,
            where=conditions,
            keys=tuple(self._key(term, at, outputs) for at, term in enumerate(terms)),
            having=Always() if having is None else composed(having.this, self._filter),
            order=self._order(outputs),
            limit=self._whole("limit"),
            offset=self._whole("offset") or 0,
        )

    def _mistake(self, node: exp.Expr, message: str) -> QueryError:
        return mistake(self._text, node, message)

    def _alias(self, called: Collection[str]) -> set[str]:
        """Return the other name that `from` gives the release."""
        source = self._select.args.get("from_")
        table = None if source is None else source.this
        example = "write `from release`"
        if table is None:
            raise self._mistake(self._select, f"the question names no table; {example}")
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise self._mistake(table, f"only the release itself is asked; {example}")
        allowed = ("this", "alias")
        if any(value for name, value in table.args.items() if name not in allowed):
            raise self._mistake(table, f"only the release itself is asked, without joins or samples; {example}")
        if table.name.casefold() not in called:
            raise self._mistake(table, f"there is no table {shown(table.name)}; {example}")
        alias = table.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise self._mistake(alias, f"columns keep their names; {example}")
        return {table.alias.casefold()} if alias is not None else set()

    def _refuse_others(self) -> None:
        """Raise for clauses that have no meaning here, such as joins."""
        for name, value in self._select.args.items():
            if value and name not in _CLAUSES:
                node = value[0] if isinstance(value, list) else value
                node = node if isinstance(node, exp.Expr) else self._select
                word = name.strip("_")
                hint = "group by the column instead" if word == "distinct" else f"for example: {_EXAMPLE}"
                raise self._mistake(node, f"`{word}` is not supported; {hint}")
        if not self._outputs:
            raise self._mistake(self._select, f"the question asks for nothing; for example: {_EXAMPLE}")
        if len(self._outputs) > MOST_OUTPUTS:
            raise self._mistake(self._outputs[MOST_OUTPUTS], f"ask for at most {MOST_OUTPUTS} columns at once")

    @cached_property
    def _terms(self) -> tuple[Term, ...]:
        """The terms to group by."""
        group = self._select.args.get("group")
        if group is None:
            return ()
        for name, value in group.args.items():
            if value and name not in ("expressions", "all"):
                raise self._mistake(group, f"`{name}` is not supported; group by columns and bins")
        if not group.args.get("all") and not group.expressions:
            raise self._mistake(group, "name a column or bin after `group by`")
        if group.args.get("all"):
            nodes = [node for node in self._outputs if not is_number(node)]
        else:
            nodes = [self._meant(node) for node in group.expressions]
        return tuple(dict.fromkeys(self._scope.key(node) for node in nodes))

    def _meant(self, node: exp.Expr) -> exp.Expr:
        """Return what a position or an alias refers to; anything else is meant itself."""
        inner = unwrapped(node)
        if isinstance(inner, exp.Literal) and not inner.is_string:
            place = self._scope.number(inner)
            if place.denominator != 1 or not 1 <= place <= len(self._outputs):
                raise self._mistake(
                    inner,
                    f"there is no column {shown(inner.name)}; name one from 1 to {len(self._outputs)}",
                )
            return unwrapped(self._outputs[int(place) - 1])
        if isinstance(inner, exp.Column) and not inner.table:
            name = inner.name.casefold()
            if name in self._aliases and name not in map(str.casefold, self._scope.universe.names):
                return unwrapped(self._aliases[name])
        return inner

    def _output(self, node: exp.Expr) -> Output:
        alias = node.alias if isinstance(node, exp.Alias) else None
        value = self._value(node)
        if alias is None:
            alias = (
                self._key_name(self._terms[value.position]) if isinstance(value, KeyOf) else name_of(self._scope, value)
            )
        return Output(self._fresh(alias), value)

    def _value(self, node: exp.Expr) -> Number | KeyOf:
        """Return a number, or the key that an expression without aggregates is."""
        inner = unwrapped(node)
        if isinstance(inner, exp.Star):
            raise self._mistake(inner, f"a release has no rows to show here; for example: {_EXAMPLE}")
        if is_number(inner) or isinstance(inner, exp.Literal) or not inner.find(exp.Column):
            return number(self._scope, inner)
        if self._terms and (term := self._scope.key(inner)) in self._terms:
            return KeyOf(self._terms.index(term))
        if isinstance(inner, exp.Column):
            return number(self._scope, inner)  # raises, and says how to group
        self._scope.term(inner)  # raises if there is no such function
        raise self._mistake(inner, "this is neither a group nor an aggregate; repeat it after `group by`")

    def _fresh(self, name: str) -> str:
        fresh, more = name, 2
        while fresh in self._taken:
            fresh, more = f"{name}_{more}", more + 1
        self._taken.add(fresh)
        return fresh

    def _key_name(self, term: Term) -> str:
        return term.transform.unit if isinstance(term.transform, Part | Truncate) else self._scope.name(term.column)

    def _key(self, term: Term, at: int, outputs: tuple[Output, ...]) -> Key:
        """Return a key. Wide bins also show where they end."""
        name = next((output.name for output in outputs if output.value == KeyOf(at)), None)
        shows = name is not None and isinstance(term.transform, Bin | Cells) and self._is_wide(term)
        return Key(name or self._key_name(term), term, high=self._fresh(f"{name}_high") if shows else None)

    def _is_wide(self, term: Term) -> bool:
        """Return whether a declared bin has several values that are released."""
        if isinstance(term.transform, Bin):
            return False  # as in `floor(age / 10) * 10`, the width is known
        segments = spread_of(self._scope.attribute(term.column)).segments
        return bool((segments.high - segments.low > 1).any() or len(segments.low) > len(set(segments.cell.tolist())))

    def _order(self, outputs: tuple[Output, ...]) -> tuple[Order, ...]:
        order = self._select.args.get("order")
        orders = []
        for node in order.expressions if order is not None else ():
            if not isinstance(node, exp.Ordered) or node.args.get("with_fill"):
                raise unsupported(self._text, node, "order by a column of the result")
            descending, nulls_first = bool(node.args.get("desc")), bool(node.args.get("nulls_first"))
            orders.append(Order(self._ordered(node.this, outputs), descending, nulls_first))
        return tuple(orders)

    def _ordered(self, node: exp.Expr, outputs: tuple[Output, ...]) -> Number | KeyOf:
        inner = unwrapped(node)
        if isinstance(inner, exp.Column) and not inner.table:
            for output in outputs:
                if output.name.casefold() == inner.name.casefold():
                    return output.value
        return self._value(self._meant(inner))

    def _filter(self, node: exp.Expr) -> Any:
        """Return an elementary condition on the results of a group."""
        match node:
            case exp.Between():
                low: Any = self._having(node.this, ">=", node.args["low"])
                high: Any = self._having(node.this, "<=", node.args["high"])
                return All((low, high))
            case exp.Is() if isinstance(unwrapped(node.expression), exp.Null):
                return Having(self._value(self._meant(node.this)), "is null", None)
        if type(node) in OPERATORS:
            return self._having(node.this, OPERATORS[type(node)], node.expression)
        raise unsupported(self._text, node, "after `having` compare numbers: having count(*) > 100")

    def _having(self, left: exp.Expr, operator: str, right: exp.Expr) -> Having:
        first, second = self._meant_value(left), self._meant_value(right)
        if not first.find(exp.Column, exp.AggFunc) and second.find(exp.Column, exp.AggFunc):
            first, second, operator = second, first, FLIPPED[operator]
        value = self._value(first)
        if isinstance(value, KeyOf):
            return Having(value, operator, self._scope.constant(second, self._terms[value.position]))
        if isinstance(unwrapped(second), exp.Literal) and unwrapped(second).is_string:
            raise self._mistake(second, "compare a number with a number: having count(*) > 100")
        return Having(value, operator, self._value(second))

    def _meant_value(self, node: exp.Expr) -> exp.Expr:
        """Return what an alias refers to. A number is itself, not a position."""
        inner = unwrapped(node)
        return inner if isinstance(inner, exp.Literal) else self._meant(inner)

    def _whole(self, clause: str) -> int | None:
        node = self._select.args.get(clause)
        if node is None:
            return None
        count = node.args.get("expression")
        others = [value for name, value in node.args.items() if value and name != "expression"]
        if not isinstance(node, exp.Limit | exp.Offset) or count is None or others:
            raise self._mistake(node, f"`{clause}` needs a whole number: {clause} 10")
        value = self._scope.number(count)
        if value.denominator != 1 or not 0 <= value <= MOST_SHOWN:
            raise self._mistake(node, f"`{clause}` needs a whole number from 0 to {MOST_SHOWN:,}")
        return int(value)

"""A whole statement: one `select` from the release, within limits that hostile input cannot exceed."""

import logging
from collections.abc import Collection
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any

from sqlglot import expressions as exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import TokenType

from dpcore.answers.query import (
    All,
    Always,
    AnyOf,
    Bin,
    Cells,
    Having,
    Key,
    KeyOf,
    Not,
    Number,
    Order,
    Output,
    Part,
    Query,
    Term,
    Truncate,
)
from dpcore.answers.sql.conditions import FLIPPED, OPERATORS, condition, flattened
from dpcore.answers.sql.errors import QueryError, as_written, mistake, position, shown, unquoted, unsupported
from dpcore.answers.sql.numbers import is_number, name_of, number
from dpcore.answers.sql.terms import Scope, unwrapped
from dpcore.errors import is_unicode
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
                told = f"write the column {as_written(name)} in double quotes, and in a shell the whole question in single quotes"
                raise QueryError(told, line=line, column=column) from None
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
            waiting += [
                (each, depth + 1) for each in (part if isinstance(part, tuple) else (part,)) if is_dataclass(each)
            ]
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
        statements = [each for each in dialect.parser().parse(tokens, text) if each is not None]
    except ParseError as error:
        raise _unparsed(text, error) from None
    except (SqlglotError, ValueError, TypeError, AttributeError, IndexError, KeyError):
        # The tokenizer's errors have no position, and some texts make the parser itself fail.
        raise QueryError(
            f"this is not SQL; check quotes, comments and brackets; for example: {_EXAMPLE}", line=1, column=1
        ) from None
    for one, other in pairwise(tokens):  # which the parser ignores
        if one.token_type == other.token_type == TokenType.COMMA:
            line, column = position(text, other.start)
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
    found = error.errors[0] if error.errors else {}
    line, column = found.get("line") or 1, found.get("col") or 1
    near = str(found.get("highlight") or "").strip()
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
        called = {each.casefold() for each in tables}
        self._scope = Scope(text, universe, called | self._alias(called))
        self._outputs: list[exp.Expr] = list(self._select.expressions)
        self._aliases = {each.alias.casefold(): each.this for each in self._outputs if isinstance(each, exp.Alias)}
        self._taken: set[str] = set()

    def query(self) -> Query:
        """Return the query."""
        self._refuse_others()
        where = self._select.args.get("where")
        conditions = Always(truth=True) if where is None else condition(self._scope, where.this)
        terms = self._terms()
        outputs = tuple(self._output(each, terms) for each in self._outputs)
        having = self._select.args.get("having")
        return Query(
            outputs=outputs,
            where=conditions,
            keys=tuple(self._key(term, at, outputs) for at, term in enumerate(terms)),
            having=Always(truth=True) if having is None else self._filter(having.this, terms),
            order=self._order(terms, outputs),
            limit=self._whole("limit"),
            offset=self._whole("offset") or 0,
        )

    def _alias(self, called: Collection[str]) -> set[str]:
        """Return the other name that `from` gives the release."""
        source = self._select.args.get("from_")
        table = None if source is None else source.this
        example = "write `from release`"
        if table is None:
            raise mistake(self._text, self._select, f"the question names no table; {example}")
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise mistake(self._text, table, f"only the release itself is asked; {example}")
        allowed = ("this", "alias")
        if any(value for name, value in table.args.items() if name not in allowed):
            raise mistake(self._text, table, f"only the release itself is asked, without joins or samples; {example}")
        if table.name.casefold() not in called:
            raise mistake(self._text, table, f"there is no table {shown(table.name)}; {example}")
        alias = table.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise mistake(self._text, alias, f"columns keep their names; {example}")
        return {table.alias.casefold()} if alias is not None else set()

    def _refuse_others(self) -> None:
        """Raise for clauses that have no meaning here, such as joins."""
        for name, value in self._select.args.items():
            if value and name not in _CLAUSES:
                node = value[0] if isinstance(value, list) else value
                node = node if isinstance(node, exp.Expr) else self._select
                word = name.strip("_")
                hint = "group by the column instead" if word == "distinct" else f"for example: {_EXAMPLE}"
                raise mistake(self._text, node, f"`{word}` is not supported; {hint}")
        if not self._outputs:
            raise mistake(self._text, self._select, f"the question asks for nothing; for example: {_EXAMPLE}")
        if len(self._outputs) > MOST_OUTPUTS:
            raise mistake(self._text, self._outputs[MOST_OUTPUTS], f"ask for at most {MOST_OUTPUTS} columns at once")

    def _terms(self) -> tuple[Term, ...]:
        """Return the terms to group by."""
        group = self._select.args.get("group")
        if group is None:
            return ()
        for name, value in group.args.items():
            if value and name not in ("expressions", "all"):
                raise mistake(self._text, group, f"`{name}` is not supported; group by columns and bins")
        if not group.args.get("all") and not group.expressions:
            raise mistake(self._text, group, "name a column or bin after `group by`")
        if group.args.get("all"):
            nodes = [each for each in self._outputs if not is_number(each)]
        else:
            nodes = [self._meant(each) for each in group.expressions]
        return tuple(dict.fromkeys(self._scope.key(node) for node in nodes))

    def _meant(self, node: exp.Expr) -> exp.Expr:
        """Return what a position or an alias refers to; anything else is meant itself."""
        inner = unwrapped(node)
        if isinstance(inner, exp.Literal) and not inner.is_string:
            place = self._scope.number(inner)
            if place.denominator != 1 or not 1 <= place <= len(self._outputs):
                raise mistake(
                    self._text,
                    inner,
                    f"there is no column {shown(inner.name)}; name one from 1 to {len(self._outputs)}",
                )
            return unwrapped(self._outputs[int(place) - 1])
        if isinstance(inner, exp.Column) and not inner.table:
            name = inner.name.casefold()
            if name in self._aliases and name not in {each.casefold() for each in self._scope.universe.names}:
                return unwrapped(self._aliases[name])
        return inner

    def _output(self, node: exp.Expr, terms: tuple[Term, ...]) -> Output:
        alias = node.alias if isinstance(node, exp.Alias) else None
        value = self._value(node, terms)
        if alias is None:
            alias = self._key_name(terms[value.position]) if isinstance(value, KeyOf) else name_of(self._scope, value)
        return Output(self._fresh(alias), value)

    def _value(self, node: exp.Expr, terms: tuple[Term, ...]) -> Number | KeyOf:
        """Return a number, or the key that an expression without aggregates is."""
        inner = unwrapped(node)
        if isinstance(inner, exp.Star):
            raise mistake(self._text, inner, f"a release has no rows to show here; for example: {_EXAMPLE}")
        if is_number(inner) or isinstance(inner, exp.Literal) or not inner.find(exp.Column):
            return number(self._scope, inner)
        if terms and (term := self._scope.key(inner)) in terms:
            return KeyOf(terms.index(term))
        if isinstance(inner, exp.Column):
            return number(self._scope, inner)  # raises, and says how to group
        self._scope.term(inner)  # raises if there is no such function
        raise mistake(self._text, inner, "this is neither a group nor an aggregate; repeat it after `group by`")

    def _fresh(self, name: str) -> str:
        found, more = name, 2
        while found in self._taken:
            found, more = f"{name}_{more}", more + 1
        self._taken.add(found)
        return found

    def _key_name(self, term: Term) -> str:
        return term.transform.unit if isinstance(term.transform, Part | Truncate) else self._scope.name(term.column)

    def _key(self, term: Term, at: int, outputs: tuple[Output, ...]) -> Key:
        """Return a key. Wide bins also show where they end."""
        name = next((each.name for each in outputs if each.value == KeyOf(at)), None)
        shows = name is not None and isinstance(term.transform, Bin | Cells) and self._is_wide(term)
        return Key(name or self._key_name(term), term, high=self._fresh(f"{name}_high") if shows else None)

    def _is_wide(self, term: Term) -> bool:
        """Return whether a declared bin has several values that are released."""
        if isinstance(term.transform, Bin):
            return False  # as in `floor(age / 10) * 10`, the width is known
        segments = spread_of(self._scope.attribute(term.column)).segments
        return bool((segments.high - segments.low > 1).any() or len(segments.low) > len(set(segments.cell.tolist())))

    def _order(self, terms: tuple[Term, ...], outputs: tuple[Output, ...]) -> tuple[Order, ...]:
        order = self._select.args.get("order")
        found = []
        for each in order.expressions if order is not None else ():
            if not isinstance(each, exp.Ordered) or each.args.get("with_fill"):
                raise unsupported(self._text, each, "order by a column of the result")
            found.append(
                Order(
                    self._ordered(each.this, terms, outputs),
                    descending=bool(each.args.get("desc")),
                    nulls_first=bool(each.args.get("nulls_first")),
                )
            )
        return tuple(found)

    def _ordered(self, node: exp.Expr, terms: tuple[Term, ...], outputs: tuple[Output, ...]) -> Number | KeyOf:
        inner = unwrapped(node)
        if isinstance(inner, exp.Column) and not inner.table:
            for output in outputs:
                if output.name.casefold() == inner.name.casefold():
                    return output.value
        return self._value(self._meant(inner), terms)

    def _filter(self, node: exp.Expr, terms: tuple[Term, ...]) -> Any:  # noqa: PLR0911  a table, one line for each kind
        """Return a condition on the results of a group."""
        node = unwrapped(node)
        match node:
            case exp.And():
                return All(tuple(self._filter(part, terms) for part in flattened(node, exp.And)))
            case exp.Or():
                return AnyOf(tuple(self._filter(part, terms) for part in flattened(node, exp.Or)))
            case exp.Not():
                return Not(self._filter(node.this, terms))
            case exp.Boolean():
                return Always(truth=bool(node.this))
            case exp.Between():
                low: Any = self._having(node.this, ">=", node.args["low"], terms)
                high: Any = self._having(node.this, "<=", node.args["high"], terms)
                return All((low, high))
            case exp.Is() if isinstance(unwrapped(node.expression), exp.Null):
                return Having(self._value(self._meant(node.this), terms), "is null", None)
        if type(node) in OPERATORS:
            return self._having(node.this, OPERATORS[type(node)], node.expression, terms)
        raise unsupported(self._text, node, "after `having` compare numbers: having count(*) > 100")

    def _having(self, left: exp.Expr, operator: str, right: exp.Expr, terms: tuple[Term, ...]) -> Having:
        first, second = self._meant_value(left), self._meant_value(right)
        if not first.find(exp.Column, exp.AggFunc) and second.find(exp.Column, exp.AggFunc):
            first, second, operator = second, first, FLIPPED[operator]
        value = self._value(first, terms)
        if isinstance(value, KeyOf):
            return Having(value, operator, self._scope.constant(second, terms[value.position]))
        if isinstance(unwrapped(second), exp.Literal) and unwrapped(second).is_string:
            raise mistake(self._text, second, "compare a number with a number: having count(*) > 100")
        return Having(value, operator, self._value(second, terms))

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
            raise mistake(self._text, node, f"`{clause}` needs a whole number: {clause} 10")
        value = self._scope.number(count)
        if value.denominator != 1 or not 0 <= value <= MOST_SHOWN:
            raise mistake(self._text, node, f"`{clause}` needs a whole number from 0 to {MOST_SHOWN:,}")
        return int(value)

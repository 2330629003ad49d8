"""Counting queries from SQL: `select count(*) from release where ...`, with conditions that end where declared cells do."""

import numpy as np

from dpcore.answers.evaluate import Prepared
from dpcore.answers.query import Always, Count, Query
from dpcore.curator.gate import CountQuery
from dpcore.universe import Universe

_ONE_COUNT = "ask for one count, as in: select count(*) from release where age >= 65"


def count_query(text: str, universe: Universe) -> CountQuery:
    """Return the counting query that a text asks.

    Raises:
        QueryError: If the text is not SQL that can be answered, asks for something else than one count, or cuts through a declared cell.
            The error has a line and a column.
    """
    from dpcore.answers.sql import QueryError, parse  # noqa: PLC0415  the parser takes long to import
    from dpcore.answers.sql.errors import position  # noqa: PLC0415

    query = parse(text, universe, tables=("release",))
    number = query.outputs[0].value
    if not isinstance(number, Count) or not _is_one_number(query):
        raise QueryError(f"only counts can be asked here, one at a time; {_ONE_COUNT}", line=1, column=1)
    prepared = Prepared(query, universe)
    form = prepared.form(number)
    weights = form.weights()
    cells = np.asarray(weights > 0)
    if not np.array_equal(weights, cells):
        name, starts = _cut(prepared, universe)
        line, column = position(text, max(0, text.casefold().find(name.casefold())))
        raise QueryError(
            f"the condition on {name} ends inside a declared bin, whose rows cannot be told apart; compare with the first value of a bin, "
            f"such as {starts}",
            line=line,
            column=column,
        )
    return CountQuery(form.axes, cells)


def _is_one_number(query: Query) -> bool:
    plain = len(query.outputs) == 1 and not query.keys and not query.order and query.having == Always(truth=True)
    return plain and query.limit is None and query.offset == 0


def _cut(prepared: Prepared, universe: Universe) -> tuple[str, str]:
    """Return the name of the first column that a condition cuts inside a cell, and some values at which its cells begin."""
    for position, name in enumerate(universe.names):
        column = prepared.column(position)
        if column.spread is not None and (column.share[~column.null] != 1).any():
            return name, ", ".join(str(edge) for edge in column.spread.edges[1:4])
    raise AssertionError("a weight between 0 and 1 comes from a cell that was cut")

"""A condition by itself, as it stands after `where`."""

from collections.abc import Collection

from dpcore.answers.query import Always, Condition, Count, Output, Query
from dpcore.answers.sql.errors import QueryError
from dpcore.answers.sql.statement import parse
from dpcore.universe import Universe

_BEFORE = "select count(*) as n from release where\n"
_CONDITION = "age >= 65 and sex = 'F'"


def parse_condition(text: str, universe: Universe, *, tables: Collection[str] = ("release",)) -> Condition:
    """Return the condition that a text states, in the SQL of `parse`.

    Raises:
        QueryError: If the text is not such a condition. The error has a line and a column of the text.
    """
    if not text.strip():
        raise QueryError(f"the condition is empty; for example: {_CONDITION}", line=1, column=1)
    try:
        query = parse(_BEFORE + text, universe, tables=tables)
    except QueryError as error:
        # The condition begins in the second line of the statement.
        line, column = (error.line - 1, error.column) if error.line > 1 else (1, 1)
        message, statement, _ = str(error).split(": ", 1)[1].partition("; for example: select ")
        raise QueryError(
            f"{message}; for example: {_CONDITION}" if statement else message, line=line, column=column
        ) from None
    if query != Query(outputs=(Output("n", Count(Always())),), where=query.where):
        raise QueryError(
            f"write a condition only, without `group by`, `order by` and the like; for example: {_CONDITION}",
            line=1,
            column=1,
        )
    return query.where

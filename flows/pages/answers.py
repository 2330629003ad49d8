"""The answers of a dashboard as a table artifact. All of it is public: questions, noisy answers and prices."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from dpcore.reporting.formatting import at_most
from dpcore.session.dashboard import WIDER, Answered
from flows.pages.markdown import plain

MOST_ROWS = 500
"""The most rows of the artifact. The server stores it whole in its database, and the Parquet files have every row."""

_ENDINGS = ("", "_low", "_high", "_basis")

Row = dict[str, Any]


def answer_rows(answers: Sequence[Answered]) -> list[Row]:
    """Return a row for each number of each group, at most as many as the artifact has room for."""
    rows: list[Row] = []
    for answered in answers:
        for row in _rows(answered):
            if len(rows) == MOST_ROWS:
                return rows
            rows.append(row)
    return rows


def answer_words(answers: Sequence[Answered], *, balance: str, where: str) -> str:
    """Return the description of the artifact, in Markdown: what was paid, what is left, and where the files are, if any."""
    wider = [each for each in answers if each.status == WIDER]
    level = f"{100 * answers[0].level:g} %"
    parts = [f"{len(answers)} queries, intervals of {level}; {plain(balance)}."]
    parts += [
        f"All rows are in the folder {plain(where)} beside the releases."
        if where
        else "A dry run: nothing was bought or published."
    ]
    parts += [f"Query {each.number} is wider than wanted{_because(each)}." for each in wider[:10]]
    parts += [f"{len(wider) - 10} more are, too."] if len(wider) > 10 else []
    return " ".join(parts)


def _because(answered: Answered) -> str:
    if answered.reason:
        return f": {plain(answered.reason)}"
    price = answered.reply.price
    return f"; the wanted accuracy would cost epsilon {at_most(price.epsilon)}"


def _rows(answered: Answered) -> Iterator[Row]:
    table = answered.reply.table
    numbers = number_columns(table)
    attached = {name + ending for name in numbers for ending in _ENDINGS}
    keys = [name for name in table.columns if name not in attached]
    for at in range(len(table)):
        found = table.iloc[at]
        for name in numbers:
            yield {
                "query": answered.number,
                "group": ", ".join(f"{key} = {_text(found[key])}" for key in keys),
                "number": name,
                "value": _text(found[name]),
                "interval": f"{_text(found[f'{name}_low'])} to {_text(found[f'{name}_high'])}",
                "basis": found[f"{name}_basis"],
                "answer": answered.status,
                "paid (epsilon)": at_most(answered.epsilon),
            }


def number_columns(table: pd.DataFrame) -> list[str]:
    """Return the columns that are numbers: those followed by the ends of their interval and its basis.

    >>> number_columns(pd.DataFrame(columns=["city", "n", "n_low", "n_high", "n_basis"]))
    ['n']
    """
    names = list(table.columns)
    return [
        name for at, name in enumerate(names) if names[at : at + len(_ENDINGS)] == [name + each for each in _ENDINGS]
    ]


def _text(value: Any) -> str:
    if value is None or value is pd.NA or value is pd.NaT or value != value:  # noqa: PLR0124  not a number
        return "null"
    return f"{value:.6g}" if isinstance(value, float) else str(value)

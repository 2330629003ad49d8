"""The answers of a dashboard as a table artifact. All of it is public: questions, noisy answers and prices."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pandas as pd

from dpcore.reporting.formatting import at_most
from dpcore.reporting.markdown import plain
from dpcore.session.dashboard import WIDER, Answered

_ENDINGS = ("", "_low", "_high", "_basis")

Row = dict[str, Any]


def answer_rows(answers: Sequence[Answered]) -> list[Row]:
    """Return a row for each number of each group, at most 500: the server stores all in its database, and the Parquet files have every row."""
    return list(islice((row for answered in answers for row in _rows(answered)), 500))


def answer_words(answers: Sequence[Answered], *, balance: str, where: str) -> str:
    """Return the description of the artifact, in Markdown: what was paid, what is left, and where the files are, if any."""
    wider = [answered for answered in answers if answered.status == WIDER]
    parts = [
        f"{len(answers)} queries, intervals of {100 * answers[0].question.level:g} %; {plain(balance)}.",
        f"All rows are in the folder {plain(where)} beside the releases."
        if where
        else "A dry run: nothing was bought or published.",
        *(f"Query {answered.number} is wider than wanted{_because(answered)}." for answered in wider[:10]),
    ]
    if len(wider) > 10:
        parts.append(f"{len(wider) - 10} more are, too.")
    return " ".join(parts)


def _because(answered: Answered) -> str:
    if answered.reason:
        return f": {plain(answered.reason)}"
    return f"; the wanted accuracy would cost epsilon {at_most(answered.reply.price.epsilon)}"


def _rows(answered: Answered) -> Iterator[Row]:
    table = answered.reply.table
    numbers = number_columns(table)
    attached = {name + ending for name in numbers for ending in _ENDINGS}
    keys = [name for name in table.columns if name not in attached]
    for row in table.to_dict("records"):
        group = ", ".join(f"{key} = {_text(row[key])}" for key in keys)
        for name in numbers:
            yield {
                "query": answered.number,
                "group": group,
                "number": name,
                "value": _text(row[name]),
                "interval": f"{_text(row[f'{name}_low'])} to {_text(row[f'{name}_high'])}",
                "basis": row[f"{name}_basis"],
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
        name
        for place, name in enumerate(names)
        if names[place : place + len(_ENDINGS)] == [name + ending for ending in _ENDINGS]
    ]


def _text(value: Any) -> str:
    if value is None or value is pd.NA or value is pd.NaT or value != value:  # noqa: PLR0124  not a number
        return "null"
    return f"{value:.6g}" if isinstance(value, float) else str(value)

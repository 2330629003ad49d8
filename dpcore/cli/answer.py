"""The verb that answers questions about a release: answer."""

import argparse
from typing import TYPE_CHECKING, Any

from dpcore.cli.arguments import Subparsers, add_verb, argument, release_folder
from dpcore.cli.output import Answer, table
from dpcore.cli.verbs import VERBS
from dpcore.release.integrity import one_line

if TYPE_CHECKING:
    import pandas as pd

MORE = (
    "; reads the release's folder only, and charges nothing. The table is called `release`. Supported: count, sum, avg, median, "
    "quantile_cont, ratios of them, filter, where, group by columns and bins, having, order by, limit. If releases cover blocks, such as "
    "months, the dataset's folder stands for all of them: the column that decides the blocks can be used in where and group by"
)


def add_verbs(verbs: Subparsers) -> None:
    """Add the verb to the parser."""
    add_verb(
        verbs,
        "answer",
        VERBS["answer"].about,
        argument(
            "release",
            metavar="RELEASE",
            type=release_folder,
            help="the release's folder, or its dataset's folder for the newest release; of a dataset by blocks, for all blocks",
        ),
        argument(
            "query",
            metavar="SQL",
            help='such as "select department, avg(cost) from release where age >= 65 group by department"',
        ),
        argument(
            "--level", metavar="L", type=float, default=0.95, help="the level of the intervals; default: 0.95 for 95 %%"
        ),
        run=_answer,
        more=MORE,
    )


def _answer(arguments: argparse.Namespace) -> Answer:
    from dpcore.answers.answer import answer  # noqa: PLC0415  other verbs start faster without it

    frame = answer(arguments.release, arguments.query, level=arguments.level)
    rows, text = rows_of(frame)
    if limit := frame.attrs.get("limit"):
        text += f"\n\n{limit[0].upper()}{limit[1:]}."
    return Answer(rows, text)


def rows_of(frame: "pd.DataFrame") -> tuple[list[dict[str, Any]], str]:
    """Return the rows of an answer as JSON has them, and as a text table."""
    from pandas.api.types import is_numeric_dtype  # noqa: PLC0415  likewise

    from dpcore.answers.answer import plain_rows  # noqa: PLC0415

    rows = plain_rows(frame)
    cells = [tuple(frame.columns), *(tuple(map(_shown, row.values())) for row in rows)]
    numbers = [str(name) for name in frame.columns if is_numeric_dtype(frame[name])]
    return rows, table(cells, right=numbers)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value).lower() if isinstance(value, bool) else one_line(value)

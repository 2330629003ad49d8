"""The verb that answers questions about a release: answer."""

import argparse
import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpcore.cli.output import Answer, UsedLedger, table
from dpcore.cli.specs import Subparsers, add_verb, release_folder
from dpcore.release.integrity import one_line

if TYPE_CHECKING:
    import pandas as pd

MORE = (
    "; reads the release's folder only, and charges nothing. The table is called `release`. Supported: count, sum, avg, median, "
    "quantile_cont, ratios of them, filter, where, group by columns and bins, having, order by, limit. If releases cover blocks, such as "
    "months, the dataset's folder stands for all of them: the column that decides the blocks can be used in where and group by"
)


@dataclass(frozen=True)
class Rows(Answer):
    """The result of a question. As JSON it is a list of objects."""

    def pieces(self, *, as_json: bool, used: UsedLedger | None = None) -> Generator[str]:
        """Yield the output. No ledger was used."""
        if as_json:
            yield f"{json.dumps(self.data['rows'])}\n"
        else:
            yield from super().pieces(as_json=False, used=used)


def add_verbs(verbs: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the verb to the parser."""
    parser = add_verb(verbs, "answer", common, "answer a question in SQL from a release", more=MORE)
    parser.add_argument(
        "release",
        metavar="RELEASE",
        type=release_folder,
        help="the release's folder, or its dataset's folder for the newest release; of a dataset by blocks, for all blocks",
    )
    parser.add_argument(
        "query",
        metavar="SQL",
        help='such as "select department, avg(cost) from release where age >= 65 group by department"',
    )
    parser.add_argument(
        "--level", metavar="L", type=float, default=0.95, help="the level of the intervals; default: 0.95 for 95 %%"
    )
    parser.set_defaults(verb=_answer)


def _answer(arguments: argparse.Namespace) -> Answer:
    from dpcore.answers.answer import answer  # noqa: PLC0415  other verbs start faster without it

    frame = answer(arguments.release, arguments.query, level=arguments.level)
    rows, text = rows_of(frame)
    if limit := frame.attrs.get("limit"):
        text += f"\n\n{limit[0].upper()}{limit[1:]}."
    return Rows({"rows": rows}, text)


def rows_of(frame: "pd.DataFrame") -> tuple[list[dict[str, Any]], str]:
    """Return the rows of an answer as JSON has them, and as a text table."""
    from pandas.api.types import is_numeric_dtype  # noqa: PLC0415  likewise

    from dpcore.answers.plain import plain_rows  # noqa: PLC0415

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

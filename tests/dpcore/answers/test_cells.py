"""A day that is compared with datetimes is its midnight, as in DuckDB."""

from datetime import datetime, timedelta

import duckdb
import numpy as np
import pandas as pd
import pytest

from dpcore.answers.cells import Column
from dpcore.answers.query import leaves
from dpcore.answers.sql import parse_condition
from dpcore.universe import Datetime, Every, Universe
from dpcore.universe.fine_days import FineDatetime

FIRST, LAST = datetime(2025, 2, 9), datetime(2025, 2, 11, 23)
COLUMNS = {
    "hours": (FineDatetime(minimum=FIRST, maximum=LAST, step="hour"), timedelta(hours=1)),
    "bins of hours": (Datetime(minimum=FIRST, maximum=LAST, every=Every.HOUR), timedelta(hours=1)),
    "bins of days": (Datetime(minimum=FIRST, maximum=LAST, every=Every.DAY), timedelta(days=1)),
}
CASES = [  # the hours, of 72, and the days, of 3, that count
    ("seen < '2025-02-10'", 24, 1),
    ("seen <= '2025-02-10'", 25, 2),
    ("seen = '2025-02-10'", 1, 1),
    ("seen <> '2025-02-10'", 71, 2),
    ("seen > '2025-02-10'", 47, 1),
    ("seen >= '2025-02-10'", 48, 2),
    ("seen between '2025-02-09' and '2025-02-10'", 25, 2),
    ("seen not between '2025-02-09' and '2025-02-10'", 47, 1),
    ("seen in ('2025-02-09', '2025-02-10')", 2, 2),
    ("seen <= date '2025-02-10'", 25, 2),
    ("seen <= timestamp '2025-02-10 00:00:00'", 25, 2),
    ("date '2025-02-10' >= seen", 25, 2),
    ("seen < '2025-02-11'", 48, 2),
    ("date_trunc('day', seen) <= '2025-02-10'", 48, 2),
]


def counted(column: Datetime, where: str) -> float:
    """Return the share of a column's values, all equally frequent, that satisfies a condition on it alone."""
    condition = parse_condition(where, Universe({"seen": column}))
    parts = list(leaves(condition))
    pieces = Column.of(column, parts)
    holds = np.all([pieces.truths(part) == 2 for part in parts], axis=0)
    share = float(pieces.share[holds].sum()) / column.size
    return 1 - share if " not " in where else share


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize(("where", "hours", "days"), CASES)
def test_a_day_is_its_midnight_as_in_duckdb(kind: str, where: str, hours: int, days: int) -> None:
    column, step = COLUMNS[kind]
    released = pd.DataFrame({"seen": pd.date_range(FIRST, LAST, freq=step)})
    ((rows,),) = duckdb.sql(f"select count(*) from released where {where}").fetchall()
    assert rows == (days if kind == "bins of days" else hours)
    assert counted(column, where) * len(released) == pytest.approx(rows)

"""The rows of an answer as JSON has them."""

import math
from typing import Any

import pandas as pd


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as plain JSON values: dates as text, and null for what is missing or not finite.

    >>> plain_rows(pd.DataFrame({"day": [pd.Timestamp("2026-03-01")], "n": [float("inf")]}))
    [{'day': '2026-03-01', 'n': None}]
    """
    return [{str(name): _plain(value) for name, value in row.items()} for row in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    if pd.isna(value) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, pd.Timestamp) and value == value.normalize():
        return value.date().isoformat()
    return value.isoformat() if hasattr(value, "isoformat") else value

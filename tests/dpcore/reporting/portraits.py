"""Portraits of releases that never were, as small or as wide as a test needs them."""

from itertools import combinations

from dpcore.reporting.count import Count
from dpcore.reporting.portrait import (
    GUESS,
    INFERRED,
    MEASURED,
    MODEL,
    ColumnPicture,
    CountTable,
    PairPicture,
    Portrait,
)

BASES = (MEASURED, MODEL, INFERRED, GUESS)


def count_table(*columns: str, error: float | None = 0.05, basis: str = MEASURED, cells: int = 12) -> CountTable:
    """Return a table of counts with an example."""
    example = Count(", ".join(f"{name} x" for name in columns), 120.0, 100.0, 145.0)
    return CountTable(columns, cells, error, basis, example)


def column_picture(name: str, *, ordered: bool = False, error: float = 0.02) -> ColumnPicture:
    """Return a column with three bars, the last of which stands apart."""
    counts = (
        Count("20 to 39", 300.0, 250.0, 360.0),
        Count("40 to 59", 100.0, 80.0, 120.0),
        Count("missing", 5.0, 0.0, 30.0, apart=True),
    )
    return ColumnPicture(count_table(name, error=error, cells=3), counts, on_axis=ordered, cells="3 values")


def portrait(*names: str, most_paired: int = 24) -> Portrait:
    """Return a portrait of some columns, in which the pairs have every basis in turn, and errors that grow."""
    paired = names[:most_paired]
    pairs = [
        PairPicture(
            first,
            second,
            count_table(one, other, error=0.01 * (number + 1), basis=BASES[number % 4]),
            None if BASES[number % 4] == GUESS else (number % 10) / 10,
        )
        for number, ((first, one), (second, other)) in enumerate(combinations(enumerate(paired), 2))
    ]
    columns = tuple(column_picture(name, ordered=number % 2 == 0) for number, name in enumerate(names))
    tables = [each.table for each in columns] + [each.table for each in pairs[:40]]
    order = ["good", "fair", "poor"]
    ranked = sorted(tables, key=lambda each: (order.index(each.rating), each.error or 0.0))
    return Portrait(columns, paired, tuple(pairs), tuple(ranked), unpaired=names[most_paired:])

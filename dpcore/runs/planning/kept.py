"""Estimate how many rows count after the limit on rows per unit, from public figures alone.

A plan does not know how many rows each unit has. Where nothing public tells, it takes few rows rather than many, and says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dpcore.reporting.ratings import percent
from dpcore.spec import Declaration
from dpcore.spec.release import AUTO_LIMITS
from dpcore.spec.shares import Early

ASSUMED_SHARE = 0.1
"""The share of the rows that is assumed to count if nobody has said how many units there are."""
EARLIER, EXPECTED = "earlier release", "expect_rows"
COUNTED = {EARLIER, EXPECTED}
"""Where numbers of rows come from that are those of rows that count: the limit has been applied to them."""


@dataclass(frozen=True)
class KeptRows:
    """About how many rows count, and what that is based on.

    `basis` is `all` if every row is its own unit, `earlier release` if its noisy total was bounded by the same limit, `units` if the number of
    units is given, `expect_rows` for the lower end of what the spec expects, and `assumed` if nothing is known. `sentence` says so, with
    what it costs; None if there is nothing to say.
    """

    rows: int
    basis: str
    sentence: str | None = None


def rows_that_count(declaration: Declaration, *, rows: int, rows_from: str, units: int | None) -> KeptRows:
    """Return about how many rows of a table count under the declaration's limit.

    Args:
        declaration: The declaration of the run, with its limit on rows per unit.
        rows: About how many rows the table has; of an earlier release, how many counted.
        rows_from: Where this number comes from.
        units: About how many units the table has; None if nobody has said.
    """
    privacy, limit, earlier = declaration.spec.privacy, declaration.protection.rows_per_unit, rows_from == EARLIER
    if privacy.unit == "row":
        return KeptRows(rows, "all")
    counting = (
        f"at most {limit:,} row{'' if limit == 1 else 's'} of each {privacy.unit} count{'s' if limit == 1 else ''}"
    )
    if declaration.early[Early.LIMIT]:
        why = (
            "the newest release chose"
            if earlier
            else "a run would choose if rows per unit were geometrically distributed"
        )
        counting += f" (the limit that {why})"
    if units is not None and rows_from not in COUNTED:
        count = max(1, round(kept_of(rows, units=units, limit=limit)))
        said = f"about {count:,} of them count: {counting}, and about {units:,} are given with --units"
        return KeptRows(count, "units", said + _cost(count, rows, certain=True))
    if earlier:
        return KeptRows(rows, EARLIER, f"in it, {counting}" if declaration.early[Early.LIMIT] else None)
    if privacy.expect_rows is not None:
        count = min(rows, privacy.expect_rows[0])
        said = f"rated for {count:,}, since the run stops if fewer than `expect_rows` count: {counting}, which may drop most of the rows"
        return KeptRows(count, "expect_rows", f"{said}; if you know how many units there are, give --rows and --units")
    # A choice of the limit needs a number of units: as many as would be rated for with a limit of 1.
    count = max(
        1, round(kept_of(rows, units=ASSUMED_SHARE * rows, limit=limit if declaration.early[Early.LIMIT] else 1))
    )
    assumed = "ten rows of each are assumed" if declaration.early[Early.LIMIT] else "one row in ten is assumed to count"
    said = f"rated for {count:,}: {counting}, and nobody has said how many units there are, so {assumed}"
    return KeptRows(count, "assumed", f"{said}; give their number with --units{_cost(count, rows, certain=False)}")


def kept_of(rows: float, *, units: float, limit: int) -> float:
    """Return about how many rows a limit keeps, if the number of rows of a unit has a geometric distribution.

    This is exact for a limit of 1. It is at most `units` x `limit`, which only units with equally many rows reach.

    >>> round(kept_of(20_000, units=9_000, limit=1)), round(kept_of(20_000, units=9_000, limit=4)), kept_of(50, units=60, limit=1)
    (9000, 18170, 50.0)
    """
    more = max(0.0, 1 - units / rows)  # the probability that a unit has one more row
    return float(rows * (1 - more**limit))


def impossible_warnings(declaration: Declaration, *, units: int | None) -> Iterator[str]:
    """Yield a warning if the spec expects more rows than can count. A run that chooses its limit may choose the largest."""
    expected = declaration.spec.privacy.expect_rows
    limit = AUTO_LIMITS[-1] if declaration.lacks_limit else declaration.protection.rows_per_unit
    if expected is not None and units is not None and units * limit < expected[0]:
        yield (
            f"`expect_rows` starts at {expected[0]:,}, but at most {units * limit:,} rows can count, {limit:,} of each {declaration.spec.privacy.unit}: "
            "the run would stop after its first measurement; write how many rows are expected to count"
        )


def _cost(count: int, rows: int, *, certain: bool) -> str:
    """Say that the limit drops most rows, and what that costs; nothing if it does not."""
    if count > rows / 2:
        return ""
    drops = f"keeps {percent(count / rows)}" if certain else "may drop most"
    times = f"{rows / count:,.2g}" if rows < 10 * count else f"{rows / count:,.0f}"
    return f"; the limit {drops} of the rows, so that noise weighs {times} times as much as if all of them counted"

"""The part of `dpflow plan` that says what to expect: ratings of columns and pairs, and the changes that would help most."""

from collections.abc import Sequence

from dpcore.cli.output import mark, table, width_to_fill
from dpcore.reporting.ratings import FAIR_ERROR, GOOD_ERROR, Rating, percent, rate
from dpcore.runs.planning.changes import Change, worst_first
from dpcore.runs.planning.plan import Plan
from dpcore.runs.planning.rated import MIDDLE_SHARE, Rated, RatedColumn, RatedPair

WORST = 5
"""So many of the worst pairs are listed if there are three times as many, and twice as many of the worst columns if there are four times."""
LONGEST_NAME = 40
_AS_NEAR = "as in releases of twenty real tables: half of their errors were within a factor of 1.5 of these, three quarters within 2"
_LIMITS = {percent(limit): limit for limit in (GOOD_ERROR, FAIR_ERROR)}


def summary_lines(ratings: Rated, *, columns_are_measured: bool) -> list[str]:
    """Count the ratings and say what each means. How near they are was learned from strategies that measure whole columns."""
    what = "pairs of columns" if ratings.asked_for == "pairs" else "columns"
    counts = {Rating.GOOD: ratings.good, Rating.FAIR: ratings.fair, Rating.POOR: ratings.poor}
    return [
        f"expect     {', '.join(f'{mark(rating)} {number:,}' for rating, number in counts.items())}, of {ratings.number:,} {what}",
        *(f"           {mark(rating)}: {rating.meaning}" for rating in Rating),
        *([f"           {_AS_NEAR}"] if columns_are_measured else []),
    ]


def change_lines(changes: Sequence[Change]) -> list[str]:
    """Name the changes that would help most."""
    return _labelled("would help", [f"{number}. {change.sentence}" for number, change in enumerate(changes, start=1)])


def column_lines(plan: Plan, *, every: bool) -> list[str]:
    """List the columns with their noise and ratings, and a sentence for each that looks like an id, or for the worst that are not good."""
    measured = {column.name: f"{column.noise:,.1f}" for column in plan.first}
    columns, pairs = list(plan.ratings.columns), bool(plan.ratings.pairs)
    sentences = _sentences(columns, most=len(columns) if every else WORST)
    if not every and len(columns) > 4 * WORST:
        columns = worst_first(columns)[: 2 * WORST]
    some = len(columns) < len(plan.ratings.columns)
    heading = ("cells", "noise", "alone", "middle", *(["in pairs"] if pairs else []))
    cells = [
        (f"{column.cells:,}", measured.get(column.name, "-"), *_ratings_of(column, pairs=pairs)) for column in columns
    ]
    most = _name_width(sum(2 + max(map(len, texts)) for texts in zip(heading, *cells, strict=True)))
    names = [_shortened(column.name, most) for column in columns]
    first = f"worst of {len(plan.ratings.columns):,} columns" if some else "column"
    rows = [(name, *row) for name, row in zip((first, *names), (heading, *cells), strict=True)]
    pairs_too = " and in pairs" if pairs else ""
    return [
        f"noise      the standard deviation of each measured count; alone{pairs_too}: the expected error, as a share of a typical count",
        f"           middle: as a share of the column's middle count, if that is {percent(MIDDLE_SHARE)} of the mean, as it often is; half of the values are rarer",
        "",
        *table(rows, right={"cells", "noise"}).splitlines(),
        "",
        *_labelled("columns", sentences),
        *([""] if sentences else []),
    ]


def _sentences(columns: Sequence[RatedColumn], *, most: int) -> list[str]:
    """Return the sentences about the worst columns."""
    ids = [column for column in columns if column.id]
    bad = [
        column
        for column in worst_first(columns)
        if not column.id and {column.worst, column.middle_rating} != {Rating.GOOD}
    ]
    shown = [*ids, *bad][:most]
    more = len(ids) + len(bad) - len(shown)
    return [*(column.sentence for column in shown), *([f"{more:,} more with --all"] if more else [])]


def _labelled(label: str, lines: Sequence[str]) -> list[str]:
    """Put a label before the first line, and indent the others."""
    return [f"{'' if place else label:<10} {line}" for place, line in enumerate(lines)]


def _ratings_of(column: RatedColumn, *, pairs: bool) -> list[str]:
    alone = [_rated(column.rating, column.error), _rated(column.middle_rating, column.middle_error)]
    if not pairs:
        return alone
    if column.pairs_rating is None or column.pairs_error is None:
        return [*alone, "-"]
    return [*alone, _rated(column.pairs_rating, column.pairs_error)]


def _rated(rating: Rating, error: float) -> str:
    """Return a rating with its error. An error just above the limit of a better rating says so, since it is rounded to that limit.

    >>> [_rated(rate(error), error).partition(" ")[2] for error in (0.1, 0.1004, 0.12, 0.5004)]
    ['good 10 %', 'fair over 10 %', 'fair 12 %', 'poor over 50 %']
    """
    over = "over " if percent(error) in _LIMITS and rate(error) is not rate(_LIMITS[percent(error)]) else ""
    return f"{mark(rating)} {over}{percent(error)}"


def pair_lines(plan: Plan, *, every: bool) -> list[str]:
    """List the pairs, worst first: all of them, or the worst if there are many."""
    pairs = sorted(plan.ratings.pairs, key=lambda pair: pair.error, reverse=True)
    if not pairs:
        return []
    shown = pairs if every or len(pairs) <= 3 * WORST else pairs[:WORST]
    most = _name_width(51)  # the other columns at their widest
    rows = [(_both(pair.columns, most), f"{pair.cells:,}", f"{pair.noise:,.1f}", _pair(pair)) for pair in shown]
    which, hint = "pair", []
    if len(shown) < len(pairs):
        which, hint = f"worst of {len(pairs):,} pairs", [f"all {len(pairs):,} with --all"]
    notes = _labelled("pairs", [*hint, *_perhaps(plan, pairs)])
    return [
        *table([(which, "cells", "noise", "expect"), *rows], right={"cells", "noise"}).splitlines(),
        *(["", *notes] if notes else []),
        "",
    ]


def _pair(pair: RatedPair) -> str:
    return _rated(pair.rating, pair.error) + (", not measured" if pair.measured == "no" else "")


def _perhaps(plan: Plan, pairs: Sequence[RatedPair]) -> list[str]:
    """Say that not every pair is measured, if there are fewer rounds than marginals to select from."""
    if plan.rounds is None or all(pair.measured != "perhaps" for pair in pairs):
        return []
    return [
        (
            f"{plan.rounds.number:,} rounds measure what the model gets most wrong; a pair that none of them measures comes from the model alone, "
            "with an error that no plan can know"
        )
    ]


def _name_width(others: int) -> int:
    width = width_to_fill()
    return LONGEST_NAME if width is None else max(8, min(LONGEST_NAME, width - others))


def _shortened(name: str, most: int) -> str:
    """Cut a long name in the middle, so that a table fits the terminal.

    >>> _shortened("age", 8), _shortened("age_at_admission", 8)
    ('age', 'age..ion')
    """
    half = most // 2
    return name if len(name) <= most else f"{name[: half - 1]}..{name[half + 1 - most :]}"


def _both(columns: tuple[str, str], most: int) -> str:
    """Join the names of a pair. If one is short, the other may be longer.

    >>> _both(("age", "diagnosis_by_chapter"), 17), _both(("admission_source", "admission_type"), 17)
    ('age x diag..apter', 'ad..rce x ad..ype')
    """
    left, right = columns
    room = most - len(" x ")
    left = _shortened(left, max((room + 1) // 2, room - len(right)))
    return f"{left} x {_shortened(right, room - len(left))}"

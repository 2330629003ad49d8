"""The part of `dpflow plan` that says what to expect: ratings of columns and pairs, and the changes that would help most."""

from collections.abc import Sequence

from dpcore.cli.output import mark, table, width_to_fill
from dpcore.reporting.ratings import FAIR_ERROR, GOOD_ERROR, Rating, percent, rate
from dpcore.runs.planning.changes import Change, worst_first
from dpcore.runs.planning.plan import Plan
from dpcore.runs.planning.rated import MIDDLE_SHARE, Rated, RatedColumn, RatedPair

WORST = 5
"""So many of the worst pairs are listed, and twice as many of the worst columns."""
MOST_COLUMNS = 20
"""With more columns, only the worst ones are listed."""
FEW = 15
"""Up to so many pairs are all listed."""
LONGEST_NAME = 40
LEAST_NAME = 8
OTHER_CELLS = 51
"""The width of a table without its names, at most."""
GAP = 2
"""Between two columns of a table."""
_LIMITS = {percent(limit): limit for limit in (GOOD_ERROR, FAIR_ERROR)}


def summary_lines(found: Rated) -> list[str]:
    """Count the ratings and say what each means."""
    what = "pairs of columns" if found.asked_for == "pairs" else "columns"
    counts = {Rating.GOOD: found.good, Rating.FAIR: found.fair, Rating.POOR: found.poor}
    return [
        f"expect     {', '.join(f'{mark(each)} {number:,}' for each, number in counts.items())}, of {found.number:,} {what}",
        *(f"           {mark(each)}: {each.meaning}" for each in Rating),
        "           from noise alone: a release can be better where measurements overlap, or worse where its model is wrong",
    ]


def change_lines(changes: Sequence[Change]) -> list[str]:
    """Name the changes that would help most."""
    return _labelled("would help", [f"{number}. {each.sentence}" for number, each in enumerate(changes, start=1)])


def column_lines(plan: Plan, *, every: bool) -> list[str]:
    """List the columns with their noise and ratings, and a sentence for each that looks like an id, or for the worst that are not good."""
    measured = {column.name: f"{column.noise:,.1f}" for column in plan.first}
    columns, pairs = list(plan.ratings.columns), bool(plan.ratings.pairs)
    told = _told(columns, most=len(columns) if every else WORST)
    if not every and len(columns) > MOST_COLUMNS:
        columns = worst_first(columns)[: 2 * WORST]
    some = len(columns) < len(plan.ratings.columns)
    heading = ("cells", "noise", "alone", "middle", *(["in pairs"] if pairs else []))
    cells = [(f"{each.cells:,}", measured.get(each.name, "-"), *_ratings_of(each, pairs=pairs)) for each in columns]
    most = _name_width(sum(GAP + max(map(len, each)) for each in zip(heading, *cells, strict=True)))
    names = [_shortened(each.name, most) for each in columns]
    first = f"worst of {len(plan.ratings.columns):,} columns" if some else "column"
    rows = [(name, *each) for name, each in zip((first, *names), (heading, *cells), strict=True)]
    pairs_too = " and in pairs" if pairs else ""
    return [
        f"noise      the standard deviation of each count; alone{pairs_too}: its expected size, as a share of a typical count",
        f"           middle: as a share of the column's middle count, if that is {percent(MIDDLE_SHARE)} of the mean, as it often is; half of the values are rarer",
        "",
        *table(rows, right={"cells", "noise"}).splitlines(),
        "",
        *_labelled("columns", told),
        *([""] if told else []),
    ]


def _told(columns: Sequence[RatedColumn], *, most: int) -> list[str]:
    """Return the sentences about the worst columns."""
    ids = [each for each in columns if each.id]
    others = [
        each for each in worst_first(columns) if not each.id and {each.worst, each.middle_rating} != {Rating.GOOD}
    ]
    shown = [*ids, *others][:most]
    more = len(ids) + len(others) - len(shown)
    return [*(each.sentence for each in shown), *([f"{more:,} more with --all"] if more else [])]


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
    pairs = sorted(plan.ratings.pairs, key=lambda each: each.error, reverse=True)
    if not pairs:
        return []
    shown = pairs if every or len(pairs) <= FEW else pairs[:WORST]
    most = _name_width(OTHER_CELLS)
    names = [_both(each.columns, most) for each in shown]
    rows = [
        (name, f"{each.cells:,}", f"{each.noise:,.1f}", _pair(each)) for name, each in zip(names, shown, strict=True)
    ]
    which = "pair" if len(shown) == len(pairs) else f"worst of {len(pairs):,} pairs"
    notes = _labelled("pairs", [*_left_out(pairs, shown), *_perhaps(plan, pairs)])
    return [
        *table([(which, "cells", "noise", "expect"), *rows], right={"cells", "noise"}).splitlines(),
        *(["", *notes] if notes else []),
        "",
    ]


def _left_out(pairs: Sequence[RatedPair], shown: Sequence[RatedPair]) -> list[str]:
    return [f"all {len(pairs):,} with --all"] if len(shown) < len(pairs) else []


def _pair(pair: RatedPair) -> str:
    return _rated(pair.rating, pair.error) + (", not measured" if pair.measured == "no" else "")


def _perhaps(plan: Plan, pairs: Sequence[RatedPair]) -> list[str]:
    """Say that not every pair is measured, if there are fewer rounds than marginals to select from."""
    unsure = sum(each.measured == "perhaps" for each in pairs)
    if not unsure or plan.rounds is None:
        return []
    told = (
        f"{plan.rounds.number:,} rounds measure what the model gets most wrong; a pair that none of them measures comes from the model alone, "
        "with an error that no plan can know"
    )
    return [told]


def _name_width(others: int) -> int:
    width = width_to_fill()
    return LONGEST_NAME if width is None else max(LEAST_NAME, min(LONGEST_NAME, width - others))


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
    one, other = columns
    room = most - len(" x ")
    first = max((room + 1) // 2, room - len(other))
    one = _shortened(one, first)
    return f"{one} x {_shortened(other, room - len(one))}"

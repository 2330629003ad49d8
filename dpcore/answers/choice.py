"""Which releases of a series a question is answered from, and which rows that it asks about are in none of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dpcore.answers.periods import MOST_NAMED, SPAN, Periods
from dpcore.answers.query import Query
from dpcore.object_store import AnyPath
from dpcore.release.integrity import one_line
from dpcore.universe import Universe
from dpcore.universe.blocks import TimeBlock


@dataclass(frozen=True, eq=False)
class Member:
    """A release of a series, its columns and its blocks, and how many rows of each unit it counts."""

    folder: AnyPath
    universe: Universe
    blocks: tuple[TimeBlock, ...]
    rows_per_unit: int = 1


@dataclass(frozen=True, eq=False)
class Choice:
    """The releases that a question is answered from.

    Attributes:
        members: The releases, in the order of their blocks.
        missing: The periods that the question needs and none of them covers.
        left_out: The releases that share blocks with a newer one, so that their rows would count twice, with only those of their blocks
            that are therefore missing.
    """

    members: tuple[Member, ...]
    missing: tuple[str, ...]
    left_out: tuple[Member, ...]

    def warnings(self, *, so: str) -> list[str]:
        """Return a sentence for each reason why rows are missing. `so` says what follows if nobody has published them.

        Releases that count different numbers of rows of each unit lack different shares of the rows.
        """
        warnings = [
            f"the rows of {named_blocks(block.name for block in older.blocks)} are missing: {one_line(older.folder.name)} has them, but was left out, because a newer "
            "release covers a part of its blocks"
            for older in self.left_out
        ]
        published = {block.name for older in self.left_out for block in older.blocks}
        nowhere = [name for name in self.missing if name not in published]
        spans = [name for name in nowhere if SPAN in name]
        singles = named_blocks(name for name in nowhere if SPAN not in name)
        if nowhere:
            warnings.append(f"no release covers {', '.join(filter(None, [singles, *spans]))}, so {so}")
        if len(limits := sorted({member.rows_per_unit for member in self.members})) > 1:
            warnings.append(
                f"some releases count at most {limits[0]:,} of the rows of a unit, others up to {limits[-1]:,}, so the counts of their blocks "
                "cannot be compared; give all of them the same number as `max_rows_per_unit`"
            )
        return warnings


def choose(members: Sequence[Member], periods: Periods, query: Query) -> Choice:
    """Choose the releases for a question: from the newest to the oldest, each that it needs and that shares no block with those before.

    Args:
        members: The releases of the series, the newest first.
        periods: The days that matter to the question.
        query: The question.
    """
    taken: list[Member] = []
    passed: list[Member] = []
    covered: set[str] = set()
    for member in members:
        if any(periods.may_hold(query.where, block) for block in member.blocks):
            names = {block.name for block in member.blocks}
            if names & covered:
                passed.append(member)
            else:
                taken.append(member)
                covered |= names
    left_out = []
    for member in passed:
        lost = [block for block in member.blocks if block.name not in covered and periods.may_hold(query.where, block)]
        if lost:
            left_out.append(replace(member, blocks=tuple(lost)))
    published = [block for member in members for block in member.blocks]
    missing = periods.missing(query.where, covered, published)
    return Choice(tuple(sorted(taken, key=lambda member: member.blocks)), tuple(missing), tuple(left_out))


def named_blocks(names: Iterable[str]) -> str:
    """Name some blocks in a sentence.

    >>> named_blocks(["2026-01"]), named_blocks(f"2026-{month:02}" for month in range(1, 13))
    ('2026-01', '2026-01 ... 2026-12 (12 blocks)')
    """
    blocks = [one_line(name) for name in names]
    return ", ".join(blocks) if len(blocks) <= MOST_NAMED else f"{blocks[0]} ... {blocks[-1]} ({len(blocks):,} blocks)"

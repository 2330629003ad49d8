"""A series: releases of one dataset that cover disjoint blocks of it. A question about several of them is answered from their sum.

Which releases are read is a public rule: of the releases that are not withdrawn and cover a block that the question needs, from the newest to
the oldest, each one that shares no block with those chosen before. So no row counts twice.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from dpcore.answers.answer import Groups, frame_of, framed, groups_of
from dpcore.answers.choice import Choice, Member, choose, named_blocks
from dpcore.answers.evaluate import Prepared
from dpcore.answers.intervals import Basis, Interval, Intervals, checked_level, worst_of
from dpcore.answers.joined import joined_attribute
from dpcore.answers.periods import Periods
from dpcore.answers.query import Arithmetic, Number, Overall, Query
from dpcore.answers.release import open_release, universe_of
from dpcore.answers.summed import summed_release
from dpcore.errors import UsageError
from dpcore.object_store import AnyPath, any_path
from dpcore.release.integrity import MANIFEST, damaged, one_line
from dpcore.release.listing import Listed, listed_in
from dpcore.spec.blocks import BlocksSpec
from dpcore.universe import Attribute, Categorical, Date, Every, Universe
from dpcore.universe.blocks import Calendar, TimeBlock

progress = logging.getLogger("dpcore.progress")


@dataclass(frozen=True, eq=False)
class Series:
    """The releases of a dataset that are not withdrawn, and how its rows are divided into blocks. Keep it for several questions.

    Attributes:
        dataset: The dataset.
        calendar: Divides rows into blocks.
        members: The releases, the newest first.
        sums: What questions have been answered from, by the names of the releases.
    """

    dataset: str
    calendar: Calendar
    members: tuple[Member, ...]
    sums: dict[tuple[str, ...], Intervals] = field(default_factory=dict)

    @property
    def has_column(self) -> bool:
        """Whether the column that decides the blocks was released."""
        return self.calendar.column in self.members[0].universe.names

    @property
    def universe(self) -> Universe:
        """The columns that questions may use: those of the newest release, with the categories of all, and the one that decides the blocks."""
        attributes = {
            name: _with_all_values(name, newest, [member.universe.attributes.get(name) for member in self.members])
            for name, newest in self.members[0].universe.attributes.items()
        }
        if not self.has_column:
            attributes[self.calendar.column] = Date(minimum=date.min, maximum=date.max, every=Every.YEAR)
        return Universe(attributes)

    def periods(self, query: Query) -> Periods:
        """Return the days that matter to a question about the columns of `universe`."""
        universe, column = self.universe, self.calendar.column
        position, attribute = universe.names.index(column), universe.attributes[column]
        return Periods.of(self.calendar, query, position, attribute=attribute, published=self._published)

    def chosen(self, periods: Periods, query: Query) -> Choice:
        """Return the releases that a question is answered from.

        Raises:
            UsageError: If no release covers a block that the question needs, or one that does has other columns than the newest release.
        """
        choice = choose(self.members, periods, query)
        if not choice.members:
            published = named_blocks(block.name for block in sorted(set(self._published)))
            raise UsageError(
                f"no release of {one_line(self.dataset)} covers the time that the question asks about; published: {published}"
            )
        self._refuse_other_columns(choice.members)
        return choice

    def _refuse_other_columns(self, members: Sequence[Member]) -> None:
        """Raise if a release has other columns than the newest one. A question names columns by their positions in the newest one."""
        newest = self.members[0]
        for member in members:
            if difference := _difference(member.universe, newest.universe):
                raise UsageError(
                    f"{one_line(member.folder.name)} has other columns than {one_line(newest.folder.name)}, the newest release: {difference}; so "
                    f"a question about the series cannot be answered from it; name the folder of one release instead, such as "
                    f"{one_line(member.folder)}"
                )

    @property
    def _published(self) -> list[TimeBlock]:
        return [block for member in self.members for block in member.blocks]

    def answer(self, text: str, *, level: float) -> pd.DataFrame:
        """Answer a question. See `dpcore.answer`."""
        from dpcore.answers.sql import parse  # noqa: PLC0415  the parser takes longer to import than an answer

        universe = self.universe
        query = parse(text, universe, tables=("release", "series", self.dataset))
        checked_level(level)
        periods = self.periods(query)
        choice = self.chosen(periods, query)
        divided = [(query, (), choice.members)] if self.has_column else _divided(query, periods, choice.members)
        self._announce(choice)
        sums = [self._sum(members) for _, _, members in divided]
        parts = [
            _Part(*total.of(asked, level=level), removed)
            for total, (asked, removed, _) in zip(sums, divided, strict=True)
        ]
        frame = _frame_of_parts(query, parts, position=periods.position)
        frame.attrs |= {
            "releases": [member.folder.name for member in choice.members],
            "missing_blocks": list(choice.missing),
        }
        limits = {total.limit for total in sums if total.limit}
        frame.attrs |= {"limit": "; ".join(sorted(limits))} if limits else {}
        return frame

    def _sum(self, members: Sequence[Member]) -> Intervals:
        """Return the intervals of the sum of some releases, which is made once."""
        names = tuple(member.folder.name for member in members)
        if names not in self.sums:
            if len(members) > 1:
                progress.info("fitting a model to the sum of %d releases, %s", len(members), _span(members))
            self.sums[names] = Intervals(summed_release([open_release(member.folder) for member in members]))
        return self.sums[names]

    def _announce(self, choice: Choice) -> None:
        """Say what the answer was made from, and what it lacks."""
        chosen = choice.members
        if len(chosen) <= 3:
            for member in chosen:
                progress.info("answering from %s: %s", one_line(member.folder.name), _span([member]))
        else:
            progress.info("answering from %d releases, one or more blocks each: %s", len(chosen), _span(chosen))
        for warning in choice.warnings(so="the answer is about the other blocks only"):
            progress.warning("warning: %s", warning)
        for name in self.members[0].universe.names:
            attributes = {member.universe.attributes.get(name) for member in chosen}
            if len({attribute.values for attribute in attributes if isinstance(attribute, Categorical)}) > 1:
                progress.warning(
                    "warning: the releases have found different values of %s; in a release that has not found a value, its rows count as "
                    "other",
                    one_line(name),
                )


def open_series(folder: str | AnyPath) -> Series | None:
    """Return the series in the folder of a dataset; None if it is not such a folder, or its newest release does not cover blocks.

    Raises:
        ReleaseDamaged: If one of its releases is missing or damaged: it might cover any block.
        UsageError: If its releases divide rows differently, or cannot be read.
    """
    path = any_path(folder)
    live = [release for release in reversed(listed_in(path)) if release.notice is None]
    for release in live:
        if release.newest:
            release.require_readable()
    covered = [release.manifest["privacy"]["blocks"] for release in live if release.damage is None]
    if not covered or covered[0] is None:
        return None
    for release in live:
        release.require_readable()
    if any(blocks is None or blocks["by"] != covered[0]["by"] for blocks in covered):
        raise UsageError(
            f"the releases in {one_line(path)} divide rows into blocks in different ways, so they cannot be added; name one release"
        )
    calendar = _calendar(live[0])
    members = tuple(
        Member(
            release.folder,
            universe_of(release.manifest, release.folder),
            _blocks(release, calendar),
            release.manifest["privacy"]["max_rows_per_unit"],
        )
        for release in live
    )
    return Series(str(live[0].manifest["dataset"]), calendar, members)


def _blocks(release: Listed, calendar: Calendar) -> tuple[TimeBlock, ...]:
    """Return the blocks that a release covers."""
    try:
        blocks = tuple(sorted(calendar.block(name) for name in release.manifest["privacy"]["blocks"]["names"]))
    except UsageError:
        blocks = ()
    if not blocks:
        raise damaged(release.folder, f"the blocks in its {MANIFEST} are none of its calendar")
    return blocks


def _calendar(newest: Listed) -> Calendar:
    """Return how the newest release divides rows into blocks. Without a declared start, no period is too early."""
    spec = BlocksSpec.model_validate(newest.manifest["spec"]["blocks"])
    return Calendar(
        spec.column,
        Every(spec.every),
        start=spec.start or date.min,
        arrived=spec.arrived,
        grace_days=spec.grace_days,
        formats=tuple(spec.format or ()),
    )


def _with_all_values(name: str, newest: Attribute, others: Sequence[Attribute | None]) -> Attribute:
    """Return a column with the categories that any release has found."""
    if not isinstance(newest, Categorical):
        return newest
    alike = [own for own in others if isinstance(own, Categorical) and own.missing == newest.missing]
    return joined_attribute(name, [*alike, newest])


def _difference(own: Universe, newest: Universe) -> str | None:
    """Return how the columns of a release differ from those of the newest one, as text; None if a question means the same in both."""
    lacks = [one_line(name) for name in newest.names if name not in own.names]
    more = [one_line(name) for name in own.names if name not in newest.names]
    if lacks or more:
        parts = (("it lacks ", lacks), ("it also has ", more))
        return " and ".join(verb + ", ".join(names) for verb, names in parts if names)
    if own.names != newest.names:
        return "its columns are in another order"
    retyped = [one_line(name) for name in own.names if _kind(own.attributes[name]) != _kind(newest.attributes[name])]
    return f"the type of {', '.join(retyped)} is another one" if retyped else None


def _kind(attribute: Attribute) -> tuple[bool, Any]:
    """Return what decides how constants are compared with a column."""
    return isinstance(attribute, Categorical), attribute.arrow_type


def _divided(
    query: Query, periods: Periods, chosen: Sequence[Member]
) -> Sequence[tuple[Query, tuple[Any, ...], Sequence[Member]]]:
    """Divide a question about a column that was not released: by the values that it has in each release.

    Raises:
        UsageError: If one group would need different questions of different releases.
    """
    parts: list[tuple[Query, tuple[Any, ...], list[Member]]] = []
    for member in chosen:
        asked, removed = periods.without(query, member.blocks, release=member.folder.name)
        same = [part for part in parts if part[:2] == (asked, removed)]
        if same:
            same[0][2].append(member)
        elif any(part[1] == removed for part in parts):
            raise UsageError(
                f"{one_line(periods.calendar.column)} was not released, and the question asks for different rows of different periods in one "
                f"group; group by the period, such as by date_trunc('{periods.calendar.every}', {one_line(periods.calendar.column)}), or ask "
                "for the periods one by one"
            )
        else:
            parts.append((asked, removed, [member]))
    return parts


def _span(members: Sequence[Member]) -> str:
    return named_blocks(block.name for member in members for block in member.blocks)


@dataclass(frozen=True, eq=False)
class _Part:
    """The numbers of a part of a series.

    Attributes:
        prepared: The question about this part, without the keys whose value is the same in all of it.
        intervals: Its numbers.
        removed: The value of each of those keys, and the end of its interval.
    """

    prepared: Prepared
    intervals: dict[Number, Interval]
    removed: tuple[tuple[Any, Any], ...]

    def groups(self, query: Query, position: int) -> Groups:
        """Return the groups of this part, by all keys of the whole question. Those on a column lack here."""
        own, removed, count = groups_of(self.prepared), iter(self.removed), self.prepared.groups
        left = iter(zip(own.keys, own.highs, strict=True))
        ends = [
            tuple([end] * count for end in next(removed)) if key.term.column == position else next(left)
            for key in query.keys
        ]
        return Groups([keys for keys, _ in ends], [highs for _, highs in ends], own.possible)

    def numbers(self, query: Query) -> dict[Number, Interval]:
        """Return what this part gives for each number of the whole question. Different numbers may be the same in a part."""
        own = self.prepared.query.places()
        return {number: self.intervals[asked] for number, asked in zip(query.places(), own, strict=True)}


def _frame_of_parts(query: Query, parts: Sequence[_Part], *, position: int) -> pd.DataFrame:
    """Return the answer to a question as a table, given the answers of its parts, whose groups lie below each other.

    Args:
        query: The question.
        parts: The parts, in the order of their blocks.
        position: The column whose keys the parts lack.

    Raises:
        UsageError: If the question compares groups of different parts with each other.
    """
    first = parts[0].prepared
    if len(parts) == 1 and not parts[0].removed:
        return frame_of(first, parts[0].intervals)
    if len(parts) > 1 and any(_has_overall(number) for number in query.numbers()):
        raise UsageError(
            "a share of all groups, with over (), cannot be divided into periods here; ask for the counts of the periods, and for their total"
        )
    groups = [part.groups(query, position) for part in parts]
    keys, highs = (
        [[value for own in groups for value in getattr(own, end)[at]] for at in range(len(query.keys))]
        for end in ("keys", "highs")
    )
    order = _order(keys)
    numbers = [part.numbers(query) for part in parts]
    intervals = {number: _joined([own[number] for own in numbers], order) for number in query.numbers()}
    possible = np.concatenate([own.possible for own in groups])[order]
    sorted_keys, sorted_highs = ([[column[at] for at in order] for column in columns] for columns in (keys, highs))
    return framed(query, intervals, Groups(sorted_keys, sorted_highs, possible), first.column)


def _has_overall(number: Number) -> bool:
    if isinstance(number, Arithmetic):
        return _has_overall(number.left) or _has_overall(number.right)
    return isinstance(number, Overall)


def _order(keys: Sequence[list[Any]]) -> list[int]:
    """Return the groups sorted by their keys: categories in their declared order, all else ascending, and null last."""
    ranks = []
    for column in keys:
        distinct = list(dict.fromkeys(value for value in column if value is not None))
        if not all(isinstance(value, str | bool) for value in distinct):
            distinct.sort()
        rank = {value: at for at, value in enumerate([*distinct, None])}
        ranks.append([rank[value] for value in column])
    return sorted(range(len(keys[0])), key=lambda at: [rank[at] for rank in ranks])


def _joined(intervals: Sequence[Interval], order: list[int]) -> Interval:
    """Return the intervals of the groups of all parts."""
    worst = worst_of(interval.basis for interval in intervals)
    inferred = [basis is not Basis.MEASURED for interval in intervals for basis in interval.bases]
    ends = [[interval.value, interval.low, interval.high] for interval in intervals]
    value, low, high = np.concatenate(ends, axis=1)[:, order]
    return Interval(value, low, high, worst, np.array(inferred)[order])

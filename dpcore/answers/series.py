"""A series: releases of one dataset that cover disjoint blocks of it. A question about several of them is answered from their sum.

Which releases are read is a public rule: of the releases that are not withdrawn and cover a block that the question needs, from the newest to
the oldest, each one that shares no block with those chosen before. So no row counts twice.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pandas as pd

from dpcore.answers.choice import Choice, Member, choose, named_blocks
from dpcore.answers.intervals import Intervals, checked_level
from dpcore.answers.joined import joined_attribute
from dpcore.answers.periods import Periods
from dpcore.answers.query import Query
from dpcore.answers.release import open_release, universe_of
from dpcore.answers.stacked import Part, stacked_frame
from dpcore.answers.summed import summed_release
from dpcore.errors import UsageError
from dpcore.object_store import AnyPath, any_path
from dpcore.release.integrity import MANIFEST, damaged, one_line
from dpcore.release.listing import Listed, listed_in
from dpcore.spec.blocks import BlocksSpec
from dpcore.universe import Attribute, Categorical, Date, Every, Universe
from dpcore.universe.blocks import Calendar, TimeBlock

progress = logging.getLogger("dpcore.progress")

FEW = 3
"""At most so many releases are named one by one."""


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
        found = {
            name: _with_all_values(name, newest, [each.universe.attributes.get(name) for each in self.members])
            for name, newest in self.members[0].universe.attributes.items()
        }
        if not self.has_column:
            found[self.calendar.column] = Date(minimum=date.min, maximum=date.max, every=Every.YEAR)
        return Universe(found)

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
            published = named_blocks(block.name for block in sorted({*self._published}))
            raise UsageError(
                f"no release of {one_line(self.dataset)} covers the time that the question asks about; published: {published}"
            )
        self._refuse_other_columns(choice.members)
        return choice

    def _refuse_other_columns(self, members: Sequence[Member]) -> None:
        """Raise if a release has other columns than the newest one. A question names columns by their positions in the newest one."""
        newest = self.members[0]
        for each in members:
            if told := _difference(each.universe, newest.universe):
                raise UsageError(
                    f"{one_line(each.folder.name)} has other columns than {one_line(newest.folder.name)}, the newest release: {told}; so a "
                    f"question about the series cannot be answered from it; name the folder of one release instead, such as "
                    f"{one_line(each.folder)}"
                )

    @property
    def _published(self) -> Iterable[TimeBlock]:
        return (block for each in self.members for block in each.blocks)

    def answer(self, text: str, *, level: float) -> pd.DataFrame:
        """Answer a question. See `dpcore.answer`."""
        from dpcore.answers.sql import parse  # noqa: PLC0415  the parser takes longer to import than an answer

        universe = self.universe
        query = parse(text, universe, tables=("release", "series", self.dataset))
        checked_level(level)
        periods = self.periods(query)
        choice = self.chosen(periods, query)
        divided = [(query, (), choice.members)] if self.has_column else _divided(query, periods, choice.members)
        self._tell(choice)
        parts = [Part(*self._intervals(each).of(asked, level=level), removed) for asked, removed, each in divided]
        frame = stacked_frame(query, parts, position=periods.position)
        frame.attrs |= {
            "releases": [each.folder.name for each in choice.members],
            "missing_blocks": list(choice.missing),
        }
        limits = {limit for _, _, each in divided if (limit := self._intervals(each).limit)}
        frame.attrs |= {"limit": "; ".join(sorted(limits))} if limits else {}
        return frame

    def _intervals(self, members: Sequence[Member]) -> Intervals:
        """Return the intervals of the sum of some releases, which is made once."""
        names = tuple(each.folder.name for each in members)
        if names not in self.sums:
            if len(members) > 1:
                progress.info("fitting a model to the sum of %d releases, %s", len(members), _span(members))
            self.sums[names] = Intervals(summed_release([open_release(each.folder) for each in members]))
        return self.sums[names]

    def _tell(self, choice: Choice) -> None:
        """Say what the answer was made from, and what it lacks."""
        chosen = choice.members
        if len(chosen) <= FEW:
            for each in chosen:
                progress.info("answering from %s: %s", one_line(each.folder.name), _span([each]))
        else:
            progress.info("answering from %d releases, one or more blocks each: %s", len(chosen), _span(chosen))
        for warning in choice.warnings(so="the answer is about the other blocks only"):
            progress.warning("warning: %s", warning)
        for name in self.members[0].universe.names:
            found = {each.universe.attributes.get(name) for each in chosen}
            if len({each.values for each in found if isinstance(each, Categorical)}) > 1:
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
    live = [each for each in reversed(listed_in(path)) if each.notice is None]
    for each in live:
        if each.newest:
            each.require_readable()
    covered = [each.manifest["privacy"]["blocks"] for each in live if each.damage is None]
    if not covered or covered[0] is None:
        return None
    for each in live:
        each.require_readable()
    if any(each is None or each["by"] != covered[0]["by"] for each in covered):
        raise UsageError(
            f"the releases in {one_line(path)} divide rows into blocks in different ways, so they cannot be added; name one release"
        )
    calendar = _calendar(live[0])
    members = tuple(
        Member(
            each.folder,
            universe_of(each.manifest, each.folder),
            _blocks(each, calendar),
            each.manifest["privacy"]["max_rows_per_unit"],
        )
        for each in live
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
    formats = tuple(spec.format or ())
    return Calendar(
        spec.column,
        Every(spec.every),
        start=spec.start or date.min,
        arrived=spec.arrived,
        grace_days=spec.grace_days,
        formats=formats,
    )


def _with_all_values(name: str, newest: Attribute, others: Sequence[Attribute | None]) -> Attribute:
    """Return a column with the categories that any release has found."""
    if not isinstance(newest, Categorical):
        return newest
    alike = [each for each in others if isinstance(each, Categorical) and each.missing == newest.missing]
    return joined_attribute(name, [*alike, newest])


def _difference(own: Universe, newest: Universe) -> str | None:
    """Return how the columns of a release differ from those of the newest one, as text; None if a question means the same in both."""
    lacks = [one_line(name) for name in newest.names if name not in own.names]
    more = [one_line(name) for name in own.names if name not in newest.names]
    if lacks or more:
        told = (("it lacks ", lacks), ("it also has ", more))
        return " and ".join(verb + ", ".join(names) for verb, names in told if names)
    if own.names != newest.names:
        return "its columns are in another order"
    other = [one_line(name) for name in own.names if _kind(own.attributes[name]) != _kind(newest.attributes[name])]
    return f"the type of {', '.join(other)} is another one" if other else None


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
    found: list[tuple[Query, tuple[Any, ...], list[Member]]] = []
    for each in chosen:
        asked, removed = periods.without(query, each.blocks, release=each.folder.name)
        same = [part for part in found if part[:2] == (asked, removed)]
        if same:
            same[0][2].append(each)
        elif any(part[1] == removed for part in found):
            raise UsageError(
                f"{one_line(periods.calendar.column)} was not released, and the question asks for different rows of different periods in one "
                f"group; group by the period, such as by date_trunc('{periods.calendar.every}', {one_line(periods.calendar.column)}), or ask "
                "for the periods one by one"
            )
        else:
            found.append((asked, removed, [each]))
    return found


def _span(members: Sequence[Member]) -> str:
    return named_blocks(block.name for each in members for block in each.blocks)

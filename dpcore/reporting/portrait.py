"""What a release shows and how far it can be trusted, as figures: its columns, its pairs of columns, and its tables of counts.

Everything here is computed from a published model and its replicates. `answers.judging` computes it, and the card and the Prefect pages show it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dpcore.reporting.count import Count
from dpcore.reporting.ratings import Rating, rate

MEASURED, MODEL, INFERRED, GUESS = "measured", "model", "inferred", "guess"
"""What counts are based on, as in `dpflow answer`, but for `inferred`: a guess from measurements that connect its columns."""

_BASIS_WORDS = {
    MEASURED: "measured together",
    MODEL: "measured together in pairs or coarser groups",
    INFERRED: "inferred: columns of it were never measured together",
    GUESS: "guessed: no measurement connects its columns",
}
FEW = 3


@dataclass(frozen=True)
class CountTable:
    """A table of counts by some columns.

    Attributes:
        columns: The columns.
        cells: The number of counts.
        error: All expected errors together, as a share of the rows; None if there are too many counts to tell.
        basis: What the counts are based on.
        example: A large count of it: of a table that is not good, a large one that is off by more than usual.
        blurred: The share of pairs of rows that the cells of columns at full resolution do not tell apart, though their values would.
    """

    columns: tuple[str, ...]
    cells: int
    error: float | None
    basis: str
    example: Count | None = None
    blurred: float = 0.0

    @property
    def rating(self) -> Rating:
        """How far it can be trusted.

        The expected error cannot know of a relation between columns that were never measured together. So such a table is at best fair,
        and a guess is poor. Nor does it know of what is within cells that a run has found, so what they blur is added.
        """
        if self.error is None or self.basis == GUESS:
            return Rating.POOR
        rating = rate(self.error + self.blurred)
        return Rating.FAIR if self.basis == INFERRED and rating is Rating.GOOD else rating

    @property
    def is_blurred(self) -> bool:
        """Whether its cells are too wide for the rating that its counts would have."""
        return self.error is not None and rate(self.error + self.blurred) is not rate(self.error)

    @property
    def name(self) -> str:
        """Its columns, joined."""
        return " × ".join(self.columns)  # noqa: RUF001  a sign of multiplication

    @property
    def basis_words(self) -> str:
        """What its counts are based on, for a reader."""
        return _BASIS_WORDS[self.basis]


@dataclass(frozen=True)
class ColumnPicture:
    """A column: its distribution, and its table of counts.

    Attributes:
        table: Its table of counts.
        counts: The bars of its picture, of which each may have several cells.
        on_axis: Whether its bars stand on an axis: its values have an order, and all bars the same width.
        cells: What its cells are, such as `54 intervals`.
        note: A few words about the widths of its bars.
    """

    table: CountTable
    counts: tuple[Count, ...]
    on_axis: bool
    cells: str
    note: str = ""

    @property
    def name(self) -> str:
        """The column."""
        return self.table.columns[0]


@dataclass(frozen=True)
class PairPicture:
    """Two columns, by their positions among those that are shown.

    Attributes:
        first: The first column.
        second: The second one, which comes later.
        table: Their table of counts.
        dependence: Their normalised mutual information by the model, from 0 to 1; None if it is not known.
    """

    first: int
    second: int
    table: CountTable
    dependence: float | None


@dataclass(frozen=True)
class Portrait:
    """The figures of a release's pictures.

    Attributes:
        columns: The columns of the pictures, maybe not all.
        paired: The names of the columns whose pairs are shown, maybe not all.
        unpaired: The names of the other columns.
        pairs: All pairs of the columns of `paired`.
        tables: The known tables of counts, from the best to the worst.
        left_out: The pairs and measured tables whose errors are not listed, because they are too large or too many.
        more_columns: The number of columns without a picture.
        level: The level of all intervals.
        total: The number of rows by the model. A release may have another number of rows, if its spec says so.
    """

    columns: tuple[ColumnPicture, ...]
    paired: tuple[str, ...]
    pairs: tuple[PairPicture, ...]
    tables: tuple[CountTable, ...]
    unpaired: tuple[str, ...] = ()
    left_out: tuple[tuple[str, ...], ...] = ()
    more_columns: int = 0
    level: float = 0.95
    total: float = 0.0

    @property
    def trusted(self) -> tuple[CountTable, ...]:
        """A few of the best tables, each about other columns. Tables of several columns come first."""
        several = [table for table in self.tables if len(table.columns) > 1]
        single = [table for table in self.tables if len(table.columns) == 1]
        return _different(table for table in (*several, *single) if table.rating is Rating.GOOD and table.example)

    @property
    def doubtful(self) -> tuple[CountTable, ...]:
        """A few of the worst tables, likewise."""
        return _different(table for table in self.tables[::-1] if table.rating is not Rating.GOOD and table.example)


def _different(tables: Iterable[CountTable]) -> tuple[CountTable, ...]:
    """Return the first few tables that have no column in common; if there are fewer, also others, but no part of one that is there."""
    ahead = list(tables)
    chosen: list[CountTable] = []
    for apart in (set.isdisjoint, _neither_within):
        for table in ahead:
            if len(chosen) < FEW and all(apart(set(table.columns), set(earlier.columns)) for earlier in chosen):
                chosen.append(table)
    return tuple(sorted(chosen, key=ahead.index))


def _neither_within(columns: set[str], others: set[str]) -> bool:
    return not (columns <= others or others <= columns)

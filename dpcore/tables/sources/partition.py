"""Read a file by its place among the files of a source: by the names of its folders, and by what the other files hold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from dpcore.errors import SourceError
from dpcore.tables.sources.ids import numbers_in_text
from dpcore.tables.sources.part import Part


@dataclass(frozen=True)
class Partition(Part):
    """A part with additional text columns from its folder names. A column in the file itself takes precedence.

    Attributes:
        inner: The file, or a piece of it.
        keys: The columns that the folders name, with their values.
        numbers: The column of the ids, if other files hold numbers in it: see `numbers_in_text`.
    """

    inner: Part
    keys: tuple[tuple[str, str | None], ...]
    numbers: str | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name that messages use: the file name alone, since folders may be named after people."""
        return self.inner.name

    @property
    def damaged(self) -> str:  # type: ignore[override]
        """The message for a file that cannot be read to its end."""
        return self.inner.damaged

    def column_names(self) -> list[str]:
        """Return the columns of the file, then those of its folders."""
        names = self.inner.column_names()
        return names + [key for key, _ in self.keys if key not in names]

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Return the types of the file's columns, and text for those of its folders."""
        inside = self._inside(columns)
        types = dict(zip(inside, self.inner.column_types(inside), strict=True))
        return [types.get(column, pa.string()) for column in columns]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, in that order; those of the folders have one value in all rows."""
        inside, values = self._inside(columns), dict(self.keys)
        # if only folder columns are wanted, some column of the file must still give the number of rows
        for batch in self.inner.batches(inside or self._any_column()):
            arrays = [
                batch.column(column)
                if column in inside
                else pa.repeat(pa.scalar(values[column], pa.string()), batch.num_rows)
                for column in columns
            ]
            arrays = [
                numbers_in_text(array) if column == self.numbers else array
                for column, array in zip(columns, arrays, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def split(self) -> tuple["Partition", ...]:
        """Split the file, and give each piece the same folder columns."""
        return tuple(replace(self, inner=piece) for piece in self.inner.split())

    def _inside(self, columns: Sequence[str]) -> list[str]:
        names = set(self.inner.column_names())
        return [column for column in columns if column in names]

    def _any_column(self) -> list[str]:
        names = self.inner.column_names()
        once = [name for name in names if names.count(name) == 1]
        if not once:
            raise SourceError(
                f"{self.name} has no column of its own; each file needs at least one column besides those of its folders"
            )
        return once[:1]

"""Find and read the prior of a run: a public table, from which the weights of its model may start.

The run is bound to the prior. Its claim ends with the prior's identity, so that it can only be resumed with the very same rows.
"""

import hashlib
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.errors import SourceError, UsageError
from dpcore.ledger import Run
from dpcore.models.start import Gate, PublicRows
from dpcore.spec import Declaration
from dpcore.spec.source import SourceSpec
from dpcore.tables.sources.attempt import attempt
from dpcore.tables.sources.source import Source, check_types, read_piece
from dpcore.universe import Universe

_BOUND = re.compile(r"(\S+) with prior ([0-9a-f]{64})")


@dataclass(frozen=True, eq=False)
class Prior:
    """A public table that a spec names as its prior, not yet read.

    Attributes:
        name: The name of its file.
        sha256: The hash of its bytes.
    """

    name: str
    sha256: str
    _path: Path
    _source: Source

    @classmethod
    def of(cls, declaration: Declaration) -> "Prior | None":
        """Find the prior of a spec, and check that it has the spec's columns. Read no row. Return None if the spec has none.

        Raises:
            UsageError: If it cannot be read, or has another schema. Nothing was spent.
        """
        named = declaration.spec.prior
        if named is None:
            return None
        try:
            source = Source.locate(SourceSpec(path=named.path), base=declaration.path.parent)
            _check_columns(source, declaration)
        except SourceError as error:
            raise _unusable(str(error).removeprefix("source.path ")) from None
        if len(source.local_files) != 1:
            raise _unusable("it is not one file on this machine")
        (path,) = source.local_files
        return cls(path.name, _sha256(path), path, source)

    def refuse_private(self, source: Source) -> None:
        """Raise if the prior is one of the files of the private table, by whatever name."""
        if any(self._path.samefile(each) for each in source.local_files):
            raise _unusable(f"{self.name} is a file of the private table, whose rows are not public")

    def bound(self, claim: str) -> str:
        """Return the claim of a run, bound to this prior."""
        return f"{claim} with prior {self.sha256}"

    def require_same(self, run: Run) -> None:
        """Raise if a run was started with another version of this prior."""
        before = _BOUND.fullmatch(run.claim)
        if before and before[2] != self.sha256:
            raise UsageError(
                f"the prior {self.name} has changed since run {run.id} was started; restore the file whose SHA-256 is {before[2]} to resume "
                "it, or start a new run"
            )

    def read(self, declaration: Declaration) -> "PriorTable":
        """Read the columns of the table that can be compared with the spec's.

        Raises:
            UsageError: If it cannot be read, or has changed meanwhile.
        """
        columns = _compared(declaration)
        try:
            batches = [
                batch for piece in self._source.pieces() for batch in read_piece(piece, columns=columns, ids=None)
            ]
        except SourceError as error:
            raise _unusable(str(error)) from None
        if _sha256(self._path) != self.sha256:
            raise UsageError(f"the prior {self.name} was changed while it was read; start the run again")
        return PriorTable(self, tuple(batches), columns)


@dataclass(frozen=True, eq=False)
class PriorTable:
    """The rows of a prior, in memory."""

    prior: Prior
    batches: tuple[pa.RecordBatch, ...]
    columns: tuple[str, ...]

    def coded(self, universe: Universe) -> PublicRows:
        """Code the rows by a universe, as the private rows are coded. Rows that a column drops are left out."""
        known = Universe({name: universe.attributes[name] for name in self.columns})
        coded = [known.encode_rows(batch)[0] for batch in self.batches]
        codes = {
            universe.names.index(name): np.concatenate([np.zeros(0, dtype=np.int64), *(each[place] for each in coded)])
            for place, name in enumerate(self.columns)
        }
        return PublicRows(codes, rows=len(next(iter(codes.values()))))

    def described(self, rows: PublicRows, gate: Gate) -> dict[str, Any]:
        """Return what the manifest says about the prior."""
        told = {"kind": "public table", "name": self.prior.name, "sha256": self.prior.sha256, "rows": rows.rows}
        numbers = asdict(gate)
        return {**told, "used": numbers.pop("taken"), **numbers}


def _compared(declaration: Declaration) -> tuple[str, ...]:
    """Return the columns that a prior must have: all but that of the days of blocks, since other periods have other days."""
    days = None if declaration.calendar is None else declaration.calendar.column
    return tuple(name for name in declaration.universe.names if name != days)


def _check_columns(source: Source, declaration: Declaration) -> None:
    wanted = _compared(declaration)
    if not wanted:
        raise _unusable("the universe has no column but that of the blocks' days, in which periods differ")
    for part in source.parts:
        names = attempt(part.column_names, otherwise=part.damaged)
        if wrong := [name for name in wanted if list(names).count(name) != 1]:
            listed = ", ".join(map(repr, wrong))
            raise _unusable(f"{part.name} must have each column of the universe once, but not so {listed}")
    check_types(source, reads={name: declaration.universe.attributes[name].reads for name in wanted})


def _unusable(problem: str) -> UsageError:
    return UsageError(f"the prior cannot be used: {problem}; correct `prior` in the spec, or remove it")


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        raise _unusable(f"{path.name} cannot be read") from None

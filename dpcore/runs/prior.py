"""Read the prior of a run: public rows, from which the weights of its model may start. Here they are those of a public table.

The run is bound to the prior. Its claim ends with the prior's identity, so that it can only be resumed with the very same rows.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import SourceError, UsageError
from dpcore.ledger import Run
from dpcore.models.start import Gate, PublicRows
from dpcore.spec import Declaration
from dpcore.spec.source import SourceSpec
from dpcore.tables.sources.attempt import attempt
from dpcore.tables.sources.source import Source, check_types, read_piece
from dpcore.universe import Universe

_BOUND = re.compile(r"(\S+) with prior ([0-9a-f]{64})")


class Prior(ABC):
    """What a spec names as its prior, found and not yet read."""

    @abstractmethod
    def bound(self, claim: str) -> str:
        """Return the claim of a run, bound to this prior."""

    @abstractmethod
    def read(self, declaration: Declaration) -> "PriorTable":
        """Read the columns that can be compared with the spec's.

        Raises:
            UsageError: If they cannot be read, or have changed meanwhile. Nothing was spent.
        """

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is, as text."""

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """Return what the manifest says about where the rows are from."""


@dataclass(frozen=True, eq=False)
class PublicTable(Prior):
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
    def of(cls, path: str, declaration: Declaration, *, before: Run | None) -> "PublicTable":
        """Find the table of a spec, and check that it has the spec's columns. Read no row.

        Args:
            path: Its path, relative to the spec.
            declaration: The declaration of the run.
            before: The run as an earlier attempt has reserved it; None for a new run.

        Raises:
            UsageError: If it cannot be read, has another schema, or is not what the run was started with. Nothing was spent.
        """
        try:
            source = Source.locate(SourceSpec(path=path), base=declaration.path.parent)
            check_columns(source, declaration)
        except SourceError as error:
            raise unusable(str(error).removeprefix("source.path ")) from None
        if len(source.local_files) != 1:
            raise unusable("it is not one file on this machine")
        (file,) = source.local_files
        if _paid_by(file) == declaration.spec.dataset:
            raise unusable(
                f"{file.name} holds rows of an earlier release, which the promise has to count; write `prior: latest`"
            )
        found = cls(file.name, _sha256(file), file, source)
        if before is not None:
            found._require_same(before)
        return found

    def bound(self, claim: str) -> str:
        """Return the claim of a run, bound to this prior."""
        return f"{claim} with prior {self.sha256}"

    def _require_same(self, run: Run) -> None:
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
        columns = compared(declaration)
        try:
            batches = [batch for piece in self._source.pieces(ids=None) for batch in read_piece(piece, columns=columns)]
        except SourceError as error:
            raise unusable(str(error)) from None
        if _sha256(self._path) != self.sha256:
            raise UsageError(f"the prior {self.name} was changed while it was read; start the run again")
        return PriorTable(self, tuple(batches), columns)

    @property
    def words(self) -> str:
        """What it is, as text."""
        return f"the public table {self.name}"

    def described(self) -> dict[str, Any]:
        """Return what the manifest says about where the rows are from."""
        return {"kind": "public table", "name": self.name, "sha256": self.sha256}


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
        numbers = asdict(gate)
        return {**self.prior.described(), "rows": rows.rows, "used": numbers.pop("taken"), **numbers}


def compared(declaration: Declaration) -> tuple[str, ...]:
    """Return the columns that a prior must have: all but that of the days of blocks, since other periods have other days."""
    days = None if declaration.calendar is None else declaration.calendar.column
    return tuple(name for name in declaration.universe.names if name != days)


def check_columns(source: Source, declaration: Declaration, *, name: str | None = None) -> None:
    """Raise unless a prior has all columns that are compared, once each and in types that can be read. Read no row.

    Args:
        source: The prior.
        declaration: The declaration of the run.
        name: What errors call it; None for the name of the file.
    """
    wanted = compared(declaration)
    if not wanted:
        raise unusable("the universe has no column but that of the blocks' days, in which periods differ")
    for part in source.parts:
        names = attempt(part.column_names, otherwise=part.damaged)
        if wrong := [name for name in wanted if list(names).count(name) != 1]:
            listed = ", ".join(map(repr, wrong))
            raise unusable(f"{name or part.name} must have each column of the universe once, but not so {listed}")
    check_types(source, reads={name: declaration.universe.attributes[name].reads for name in wanted})


def unusable(problem: str) -> UsageError:
    """Return the error of a prior that cannot be used."""
    return UsageError(f"the prior cannot be used: {problem}; correct `prior` in the spec, or remove it")


def _paid_by(file: Path) -> str | None:
    """Return the account that has paid for the rows of a file, if its footer says that they were released."""
    try:
        stated = json.loads((pq.read_schema(file).metadata or {}).get(b"dpflow", b"{}"))
    except (OSError, pa.ArrowException, ValueError):  # it is no Parquet file, or not one of dpflow
        return None
    return stated.get("account") if isinstance(stated, dict) else None


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        raise unusable(f"{path.name} cannot be read") from None

"""The prior of a run: public rows, from which the weights of its model may start. Here they are those of a public table.

The run is bound to the prior. Its claim ends with the prior's identity, so that it can only be resumed with the very same rows.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.answers.release import Release
from dpcore.errors import SourceError, UsageError
from dpcore.ledger import Run
from dpcore.spec import Declaration
from dpcore.spec.source import SourceSpec
from dpcore.tables.reading.encoding import reads
from dpcore.tables.sources.attempt import attempt
from dpcore.tables.sources.source import Source, check_types, read_piece

_BOUND = re.compile(r"(\S+) with prior ([0-9a-f]{64})")


@dataclass(frozen=True, eq=False)
class Prior:
    """What a spec names as its prior, found and not yet read: rows and, of an earlier release, measurements.

    Attributes:
        words: What it is, as text.
        stated: What the manifest says about where it is from.
        binding: How the claim of a run ends that is bound to it.
        read: Reads these columns of its rows. It raises if they cannot be read or have changed meanwhile. None for a settled run that needs
            them no longer: its own release is in its place, or it has none. They may be gone.
        release: Opens the earlier release with its measurements; None if it is none, or gone.
        made_from: The runs that the earlier release is made from, as its manifest states them.
    """

    words: str
    stated: Mapping[str, Any]
    binding: str
    read: Callable[[Sequence[str]], Sequence[pa.RecordBatch]] | None
    release: Callable[[], Release] | None = None
    made_from: Sequence[Mapping[str, Any]] = ()


def public_table(path: str, declaration: Declaration, *, before: Run | None) -> Prior:
    """Find a public table, and check that it has the spec's columns. Read no row.

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
    sha256 = _sha256(file)
    bound = None if before is None else _BOUND.fullmatch(before.claim)
    if before is not None and bound and bound[2] != sha256:
        raise UsageError(
            f"the prior {file.name} has changed since run {before.id} was started; restore the file whose SHA-256 is {bound[2]} to resume "
            "it, or start a new run"
        )

    def read(columns: Sequence[str]) -> Sequence[pa.RecordBatch]:
        try:
            batches = [batch for piece in source.pieces(ids=None) for batch in read_piece(piece, columns=columns)]
        except SourceError as error:
            raise unusable(str(error)) from None
        if _sha256(file) != sha256:
            raise UsageError(f"the prior {file.name} was changed while it was read; start the run again")
        return batches

    return Prior(
        words=f"the public table {file.name}",
        stated={"kind": "public table", "name": file.name, "sha256": sha256},
        binding=f" with prior {sha256}",
        read=read,
    )


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
    required = compared(declaration)
    if not required:
        raise unusable("the universe has no column but that of the blocks' days, in which periods differ")
    for part in source.parts:
        names = attempt(part.column_names, otherwise=part.damaged)
        if wrong := [name for name in required if list(names).count(name) != 1]:
            listed = ", ".join(map(repr, wrong))
            raise unusable(f"{name or part.name} must have each column of the universe once, but not so {listed}")
    check_types(source, reads={name: partial(reads, declaration.universe.attributes[name]) for name in required})


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

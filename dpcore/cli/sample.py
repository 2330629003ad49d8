"""The verb that draws rows from a release: sample."""

import argparse
import io
import json
import logging
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpcore.cli.arguments import RELEASE, Subparsers, add_verb, argument
from dpcore.cli.output import Answer, UsedLedger
from dpcore.cli.verbs import VERBS
from dpcore.errors import UsageError
from dpcore.release.integrity import one_line

if TYPE_CHECKING:
    import pyarrow as pa

MORE = (
    "; reads the release's folder only, and charges nothing. The rows are drawn from the model that the release's own rows were drawn from, "
    "so more rows add no information. Without --output they are printed as CSV"
)
progress = logging.getLogger("dpcore.progress")


@dataclass(frozen=True)
class Printed:
    """Rows that are printed as they are drawn: as CSV, or as a JSON list of objects."""

    tables: "Iterator[pa.Table]"
    exit_code: ClassVar[int] = 0

    def pieces(self, *, as_json: bool, used: UsedLedger | None = None) -> Generator[str]:
        """Yield the output. No ledger was used."""
        del used
        return self._objects() if as_json else self._lines()

    def _lines(self) -> Generator[str]:
        from pyarrow import csv  # noqa: PLC0415

        for at, table in enumerate(self.tables):
            text = io.BytesIO()
            csv.write_csv(_plain(table), text, csv.WriteOptions(include_header=at == 0, quoting_style="needed"))
            yield text.getvalue().decode("utf-8")

    def _objects(self) -> Generator[str]:
        before = "["
        for table in self.tables:
            for row in table.to_pylist():
                yield before + json.dumps(row, default=lambda value: value.isoformat())
                before = ",\n"
        yield "]\n"


def add_verbs(verbs: Subparsers) -> None:
    """Add the verb to the parser."""
    add_verb(
        verbs,
        "sample",
        VERBS["sample"].about,
        RELEASE,
        argument("--rows", metavar="N", type=int, required=True, help="how many rows to draw"),
        argument(
            "--where",
            metavar="SQL",
            help='a condition that all rows satisfy, such as "age >= 65", as in `dpflow answer`',
        ),
        argument("--seed", metavar="N", type=int, help="the same seed gives the same rows; default: a new one"),
        argument("--output", metavar="FILE.parquet", type=Path, help="write the rows to this file"),
        run=_sample,
        more=MORE,
    )


def _sample(arguments: argparse.Namespace) -> Answer | Printed:
    # Other verbs start faster without these.
    from dpcore.answers.release import open_release  # noqa: PLC0415
    from dpcore.answers.sample import Sampler, new_seed  # noqa: PLC0415

    output: Path | None = arguments.output
    if output is not None and output.suffix != ".parquet":
        raise UsageError(
            f"{one_line(output)} does not end with .parquet; rename it, or redirect the CSV of standard output"
        )
    release = open_release(arguments.release)
    sampler = Sampler(release, arguments.where)
    seed = new_seed() if arguments.seed is None else arguments.seed
    tables = sampler.draw(arguments.rows, seed=seed)
    if sampler.expected is not None and sampler.expected < 20:  # noise and smoothing decide what they look like
        progress.warning(
            "warning: the release itself has about %.2g such rows, which is too few to know much about them",
            sampler.expected,
        )
    if output is None:
        return Printed(tables)
    drawn = {"release": release.manifest["release"], "rows": arguments.rows, "where": arguments.where, "seed": seed}
    _write(output, tables, {"dpflow": release.manifest["privacy"], "dpflow-sample": drawn})
    text = f"wrote {arguments.rows:,} rows to {output}, with seed {seed}"
    if arguments.where is not None and sampler.expected is not None:
        text += f"\nthe release itself has about {sampler.expected:,.4g} such rows of {sampler.total:,.0f}"
    return Answer({**drawn, "output": str(output), "expected": sampler.expected}, text)


def _write(path: Path, tables: "Iterator[pa.Table]", notes: dict[str, Any]) -> None:
    """Write the rows to a Parquet file, which appears complete or not at all. Its footer says where they come from."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    from dpcore.release.atomic_files import replacing  # noqa: PLC0415

    footer = {name.encode(): json.dumps(note).encode() for name, note in notes.items()}
    first = next(tables)  # before a file is made: a condition that cannot be satisfied leaves none
    schema = first.schema.with_metadata(footer)
    with (
        replacing(path.parent, [path.name]) as (partial,),
        pq.ParquetWriter(partial, schema, compression="zstd") as out,
    ):
        out.write_table(first.replace_schema_metadata(footer))
        for table in tables:
            out.write_table(table.replace_schema_metadata(footer))


def _plain(table: "pa.Table") -> "pa.Table":
    """Return a table with texts instead of dictionaries, which the CSV writer does not know."""
    import pyarrow as pa  # noqa: PLC0415

    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(field.type.value_type))
    return table

"""The verb that writes a spec to start from: an example, or one made from a table's metadata."""

import argparse
import os
import re
import sys
from functools import reduce
from itertools import groupby
from pathlib import Path

from dpcore.cli.arguments import Subparsers, add_verb, argument
from dpcore.cli.output import Answer
from dpcore.cli.verbs import VERBS
from dpcore.errors import OutputError, SpecError, UsageError
from dpcore.places import places_of_spec, using
from dpcore.spec.document import LARGEST_BYTES, read_document
from dpcore.spec.marks import MARK, report_marks
from dpcore.spec.parts import NAME
from dpcore.spec.release import STRATEGIES
from dpcore.starter import (
    HELP,
    KINDS,
    Description,
    Draft,
    describe,
    describe_public,
    draft_of,
    fill,
    located,
    spec_text,
)
from dpcore.steward.approvals import approval_of

_MORE = (
    ". With --from, the columns come from metadata: no row is read unless --epsilon pays for it, and the statistics of a Parquet file are not used. "
    f"What the metadata do not say is marked with {MARK}, and the spec is not valid before such a line is completed."
)
_SOURCE = (
    "a Parquet, Arrow or CSV file of which only the schema or the header is read; a dbt schema.yml; a Frictionless, Croissant or CSVW "
    "description; a data dictionary in JSON or CSV; a pandera or Great Expectations suite; the folder of an earlier release; or an "
    "environment variable that holds a database's address. Given again, it adds what the one before does not say"
)

STARTER = """\
# A release spec: the columns of the table, and the budget to spend on it. Check it with: dpflow check DATASET.yaml
dataset: DATASET                     # the ledger account that pays; open it once with:
                                     # dpflow ledger open DATASET --epsilon 10 --delta 1e-9 --unit row --neighbours add-remove

source: {path: DATASET.csv}          # CSV, Parquet or Arrow: a file, a folder, a pattern such as visits/*.parquet, or s3://bucket/visits
# source: {sql: select * from visits, url_env: CLINIC_DB}   # or a query; the environment variable holds the database URL

privacy:
  unit: row                          # the protected unit: row, or the column that identifies a person
  # max_rows_per_unit: 2             # with a person as unit: keep at most this many rows of each person; or auto
  # weight: {column: visits, max: 10}   # a column with each row's weight; larger weights are clipped to max
  neighbours: add-remove             # or replace-one, if the number of units is public
  epsilon: 1.0                       # the budget of this release
  delta: 1.0e-9                      # well below one over the number of people; 0 for pure differential privacy
  # expect_rows: [20000, 200000]     # measure the number of rows first, for 2 % of the budget, and stop before spending the rest
                                     # if the noisy total lies outside this range

# blocks: {column: joined, every: month, window: new}   # a separate budget for each month; each run reads only new months.
                                     # Open the account with: --blocks "month of joined"

# Only these columns are read and released. Declare them from what you know about the table, not by looking at the data:
# a value copied from the data into this file would be published without a charge.
universe:
  sex:    {type: categorical, values: [F, M], missing: true}      # keep nulls as nulls; missing: ["?"] also reads "?" as null
  age:    {type: integer, min: 0, max: 99}                        # every value; or bins of ten with width: 10; values outside are clipped
  member: {type: boolean}
  cost:   {type: number, min: 0, max: 10000, step: 0.01}          # or bins: edges: [0, 100, 500, 2000, 10000]
  joined: {type: date, min: 2025-01-01, max: 2026-12-31}          # or bins of the calendar with every: quarter
                                     # text dates are read as 2025-01-31; for others declare a format, such as format: "%m/%d/%Y", or a
                                     # list of formats: rows with dates in undeclared formats are dropped or counted as missing
  city:   {type: categorical, values: [north, south], outside: other}   # undeclared values share one cell
  # code: {type: categorical, values_from: icd9.txt, match: prefix}      # one value per line; 250.13 counts as 250
  # code: {type: categorical, discover: {most: 100, length: 6, share: 0.1}}   # or find the frequent values, for a tenth of the budget;
                                     # all other values count as other

workload:
  marginals: 2                       # the statistics to preserve: all 2-way marginals; or a list such as [[sex, age], [age, cost]],
                                     # whose entries may have weights: {columns: [age, cost], weight: 3}
  # target: member                   # only marginals with this column; its pairs with other columns are learned first
  # ranges: [age, joined]            # ordered columns for which range counts matter: up to a value, or between two values
# strategy: {name: mwem}             # STRATEGIES; default: chosen by workload and universe
output: {path: releases, rows: noisy}
# engine: {name: dask, scheduler: "tcp://10.0.0.5:8786"}   # reads and counts a table too large for this machine
"""
"""The commented spec that is written without --from."""


def add_verbs(verbs: Subparsers) -> None:
    """Add the verb to the parser."""
    add_verb(
        verbs,
        "init",
        VERBS["init"].about,
        argument("dataset", metavar="DATASET", help="the dataset's name, which is also the account that pays"),
        argument("--from", dest="sources", metavar="SOURCE", action="append", default=[], help=_SOURCE),
        argument(
            "--kind",
            action="append",
            default=[],
            choices=KINDS,
            metavar="KIND",
            help=f"what SOURCE is, one for each --from: {', '.join(KINDS)}; default: recognised by name and content",
        ),
        argument(
            "--like",
            metavar="PUBLIC",
            help="a public CSV, Parquet or Arrow file with the same columns, all of whose values are read: it adds types, ranges and values "
            "that no SOURCE gives",
        ),
        argument("--unit", metavar="UNIT", help="the protected unit: row, or the column that identifies a person"),
        argument(
            "--epsilon",
            metavar="E",
            type=float,
            help="spend this much of the account DATASET on noisy types, ranges and frequent values of the columns that nothing else describes; "
            "needs --unit, and one row of each unit counts",
        ),
        argument("--table", help="which table, if SOURCE describes several"),
        argument("--ask", action="store_true", help="ask for what SOURCE does not say, and fill in the answers"),
        run=_init,
        more=_MORE,
    )


def _init(arguments: argparse.Namespace) -> Answer:
    name: str = arguments.dataset
    if not re.fullmatch(NAME, name):
        raise UsageError(
            f"{name!r} is not a valid dataset name; use the letters a to z and A to Z, digits, dots, dashes and underscores"
        )
    path = Path(f"{name}.yaml")
    if not arguments.sources:
        _refuse_options(arguments)
        _write(path, STARTER.replace("STRATEGIES", " | ".join(STRATEGIES)).replace("DATASET", name))
        text = f"wrote {path}\nnext: declare your columns in it, then run: dpflow check {path}"
        return Answer({"spec": str(path)}, text)
    if path.exists():  # known before anybody answers questions
        raise _existing(path)
    origin = " and ".join(filter(None, (*arguments.sources, arguments.like)))
    description = _described(arguments)
    names = {column.name for column in description.columns}
    if arguments.unit not in {None, "row"} and arguments.unit not in names:
        raise UsageError(f"--unit: there is no column {arguments.unit!r}; write row, or the name of a column")
    draft = draft_of(description, dataset=name, origin=origin, unit=arguments.unit)
    if arguments.epsilon is not None:
        description = description.filled_by(_looked(draft, arguments, path))
        draft = draft_of(description, dataset=name, origin=origin, unit=arguments.unit)
    if arguments.ask:
        print(HELP, file=sys.stderr)  # noqa: T201
        draft = fill(draft, _ask)
    text = spec_text(draft)
    if len(text.encode()) > LARGEST_BYTES:
        raise SpecError(
            f"the spec would be larger than {LARGEST_BYTES >> 20} MiB; describe fewer columns, or fewer values of each"
        )
    _write(path, text)
    return _answer(path, draft)


def _looked(draft: Draft, arguments: argparse.Namespace, path: Path) -> Description:
    """Describe what is not known of the columns by a charged look at the table."""
    from dpcore.starter.charged_look import look  # noqa: PLC0415  init starts faster without it

    open_columns = [entry.name for entry in draft.declared if entry.marked]
    if arguments.unit is None:
        raise UsageError(
            "--epsilon needs the protected unit: add --unit row, or --unit with the column that identifies a person"
        )
    if MARK in draft.source.values():
        raise UsageError("--epsilon needs the table itself; name it with --from")
    if not open_columns:
        raise UsageError("every column is described already, so nothing would be bought; leave --epsilon out")
    if not os.access(path.absolute().parent, os.W_OK):  # known before anything is spent
        raise _unwritable(path)
    places = places_of_spec(path)
    with using(places):
        approval = approval_of(arguments.dataset) if places.found or places.named else None  # else there is no ledger
        if approval is not None and arguments.epsilon > approval.above:
            raise UsageError(
                f"account {arguments.dataset} needs the steward's approval above epsilon {approval.above!r}; ask for that or less"
            )
        return look(
            located(draft.source),
            open_columns,
            account=arguments.dataset,
            unit=arguments.unit,
            epsilon=arguments.epsilon,
            places=places,
        )


def _refuse_options(arguments: argparse.Namespace) -> None:
    named = (arguments.table, arguments.like, arguments.unit, arguments.epsilon)
    if arguments.kind or arguments.ask or any(option is not None for option in named):
        raise UsageError("the options of init are about a table; name it, or its metadata, with --from SOURCE")


def _described(arguments: argparse.Namespace) -> Description:
    sources: list[str] = arguments.sources
    if arguments.kind and len(arguments.kind) != len(sources):
        raise UsageError("write --kind once for each --from, in the same order, or not at all")
    kinds = arguments.kind or [None] * len(sources)
    first, *more = [
        (source, describe(source, kind=kind, table=arguments.table))
        for source, kind in zip(sources, kinds, strict=True)
    ]
    description = reduce(_filled, more, first[1])
    if arguments.like is not None:
        public = describe_public(arguments.like, private=description.source)
        description = _filled(description, (arguments.like, public))
    if not description.columns:
        raise UsageError(f"{sources[0]}: describes no columns; name other metadata")
    return description


def _filled(description: Description, addition: tuple[str, Description]) -> Description:
    """Return a description with what another source adds to it."""
    filled = description.filled_by(addition[1])
    if filled.columns == description.columns and filled.source == description.source:
        raise UsageError(
            f"{addition[0]}: says nothing about these columns that is not known yet; check the names in it, or leave it out. A CSV file is read "
            "as a data dictionary only if its name says so, or with --kind dictionary"
        )
    return filled


def _ask(prompt: str) -> str | None:
    """Ask at the terminal. Questions go to standard error, so that standard output holds only the result."""
    print(prompt, end="", file=sys.stderr, flush=True)  # noqa: T201
    answer = sys.stdin.readline()
    if not sys.stdin.isatty():  # nobody has typed the newline
        print(file=sys.stderr)  # noqa: T201
    return answer or None


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _existing(path) from None
    except OSError:
        raise _unwritable(path) from None


def _unwritable(path: Path) -> OutputError:
    return OutputError(f"cannot write {path} here; change to a folder that you can write to")


def _existing(path: Path) -> OutputError:
    return OutputError(f"{path} already exists; remove it or choose another name")


def _answer(path: Path, draft: Draft) -> Answer:
    document = read_document(path)
    report_marks(document)
    lines = sorted({mistake.line for mistake in document.mistakes})
    description = draft.description
    left_out = {entry.name: entry.left_out for entry in draft.entries if entry.left_out}
    data = {
        "spec": str(path),
        "columns": [entry.name for entry in draft.declared],
        "left_out": left_out,
        "marked_lines": lines,
        "caution": description.caution,
        "charged": description.charged,
    }
    text = [
        f"wrote {path}: {_count(len(draft.declared), 'column')} declared, {len(left_out)} left out",
        description.charged,
        f"caution: {description.caution}" if description.caution else "",
        f"{_count(len(lines), 'line')} marked with {MARK} must be completed: {_spans(lines)}" if lines else "",
        f"next: {'complete them, then run' if lines else 'run'}: dpflow check {path}",
    ]
    return Answer(data, "\n".join(filter(None, text)))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _spans(lines: list[int]) -> str:
    """Write line numbers in short.

    >>> _spans([3, 7, 8, 9, 12])
    '3, 7-9, 12'
    """
    groups = groupby(enumerate(lines), key=lambda pair: pair[1] - pair[0])  # neighbours have the same difference
    spans = [[line for _, line in group] for _, group in groups]
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)

"""The card of a release: one self-contained HTML page that states the privacy guarantee and how to check it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from dpcore.release.covered import consequences, coverage
from dpcore.release.draft import Draft
from dpcore.release.statement import Statement
from dpcore.reporting.formatting import at_most, column_type, figure, up
from dpcore.reporting.outcome import Round
from dpcore.reporting.plots import colours, data_uri, percent, rounds_plot, rounds_words
from dpcore.universe import Attribute

_MOST_LABELS, _MOST_CELLS = 8, 10_000

STYLE = (
    colours.variables(":root")
    + """
:root{color-scheme:light dark}
*{box-sizing:border-box}
body{margin:0;background:var(--panel);color:var(--ink);font:17px/1.55 system-ui,sans-serif}
main{max-width:56rem;margin:0 auto;padding:3rem 1.5rem 5rem}
h1{font-size:2.1rem;line-height:1.2;margin:0 0 1.2rem;overflow-wrap:anywhere}
h2{font-size:1.35rem;line-height:1.3;margin:3rem 0 .8rem;padding-top:1.2rem;border-top:1px solid var(--grid)}
p{max-width:44rem;margin:0 0 1rem;overflow-wrap:anywhere}
.kind{color:var(--quiet);margin:0 0 .3rem;font-size:.95rem}
.promise{font-size:1.2rem;font-weight:600;border-left:4px solid var(--spent);padding-left:1rem}
.wide{overflow-x:auto;margin:0 0 1.2rem}
table{border-collapse:collapse;font-size:.92rem}
caption{text-align:left;color:var(--quiet);padding:0 0 .4rem;max-width:min(46rem,88vw)}
th,td{text-align:left;vertical-align:top;padding:.42rem 1.1rem .42rem 0;border-bottom:1px solid var(--grid);overflow-wrap:break-word}
td{overflow-wrap:anywhere}
td:not(.number){min-width:10rem}
th[scope=row]{font-weight:600;min-width:4rem}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
pre{overflow-x:auto;padding:.9rem 1.1rem;border:1px solid var(--outline);border-radius:6px}
code{font:.88rem/1.5 ui-monospace,monospace}
img{max-width:100%;height:auto}
:focus-visible{outline:3px solid var(--spent);outline-offset:2px}
@media print{main{max-width:none;padding:0}.wide,pre{overflow:visible}}
"""
)
"""One text column, tables that scroll on their own, light or dark as the reader prefers."""


def card(draft: Draft, *, files: Sequence[Mapping[str, Any]]) -> str:
    """Return the card as HTML. `files` are the other files of the release, as the manifest lists them."""
    dataset, statement, rows = draft.declaration.spec.dataset, draft.statement, draft.rows.count
    title = f"Synthetic table {dataset}"
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}, release {escape(draft.name)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            f"<p class=kind>Release {escape(draft.name)}</p>",
            f"<h1>{escape(title)}</h1>",
            f"<p class=promise>{escape(statement.sentence)}</p>",
            _paragraph(
                f"{rows:,} rows, drawn from a model fitted to noisy counts. No row was copied from the real table."
            ),
            *(_paragraph(f"Warning: {warning}.") for warning in draft.warnings),
            *([] if statement.weight is None else [_weighed(statement)]),
            *_promise(statement),
            *_columns(draft),
            *_rounds(draft.rounds),
            *_files(files),
            *_check(statement),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _weighed(statement: Statement) -> str:
    return _paragraph(
        f"A row of the real table counted {statement.weighing}. All counts, and the number of rows here, are therefore sums of "
        f"{statement.weight}, not numbers of real rows."
    )


def _promise(statement: Statement) -> Iterator[str]:
    whom = "row" if statement.unit == "row" else statement.unit
    adding = statement.neighbours == "add-remove"
    step = f"in one {whom} that only one of them contains" if adding else f"in one {whom} that is replaced by another"
    plus = f", plus {at_most(statement.delta)}" if statement.delta else ""
    booked = statement.bookkeeping
    yield "<h2>What is promised</h2>"
    yield _paragraph(
        f"This release limits how much anyone can learn about one {whom} beyond what the other rows of the table reveal. The "
        "limit holds whatever else they know, and whatever they can feasibly compute, now or later."
    )
    yield _paragraph(
        f"In numbers: take two tables that differ {step}. Any output, and any conclusion drawn from it, is at most "
        f"{_factor(statement.epsilon)} as likely with one table as with the other{plus}."
    )
    yield _paragraph(
        "This promise covers this release alone. Other releases of the same table add to it; the steward's ledger keeps the total. "
        "Facts about many people at once, such as that smoking is harmful, are meant to be visible and are not hidden."
    )
    yield _paragraph(statement.sampling)
    if statement.blocks is not None:
        yield _paragraph(consequences(statement.blocks, unit=statement.unit, rows=statement.max_rows_per_unit))
    yield "<h2>What was protected</h2>"
    terms = [
        ("epsilon", at_most(statement.epsilon)),
        ("delta", at_most(statement.delta)),
        ("additional delta of the samplers", at_most(statement.sampler_delta)),
        *(
            (name, at_most(amount))
            for name, amount in (("rho", statement.rho), ("mu", statement.mu))
            if amount is not None
        ),
        ("unit", statement.unit),
        ("maximum rows per unit", _limit(statement)),
        *([] if statement.weight is None else [("a row counts", statement.weighing)]),
        (
            "neighbours",
            f"{statement.neighbours}: {'one unit added or removed' if adding else 'one unit replaced by another'}",
        ),
        *([] if statement.blocks is None else [("covers", coverage(statement.blocks))]),
        ("accounting", statement.accounting),
        ("account", statement.account),
        ("run", statement.run),
        (f"spent (bookkeeping), in {booked.counts}", f"{figure(booked.spent)} of {figure(booked.reserved)} reserved"),
    ]
    yield _table("The terms of the promise", ("term", "as promised"), terms)


def _limit(statement: Statement) -> str:
    """Return the limit on rows per unit, and how it was chosen if it was not declared."""
    chosen = "" if statement.chosen_limit is None else f", {statement.chosen_limit.words}"
    return f"{statement.max_rows_per_unit:,}{chosen}"


def _columns(draft: Draft) -> Iterator[str]:
    universe = draft.declaration.universe
    rows = [
        (field.name, column_type(str(field.type)), _values(universe.attributes[field.name]))
        for field in universe.schema
    ]
    yield "<h2>Columns</h2>"
    found = {each.column: each for each in draft.findings}
    if found:
        yield _paragraph(
            f"The possible values of the columns were declared in advance, not taken from the data, except for {', '.join(found)}. "
            "These were discovered in the data with noisy counts, whose price is part of the promise above."
        )
    else:
        yield _paragraph("The possible values of the columns were declared in advance, not taken from the data.")
    yield _table("The columns and their possible values", ("column", "type", "values"), rows)
    if found:
        figures = ("cells", "counts", "noise", "share of the budget")
        prices = [
            (
                each.column,
                f"{len(each.cells):,}",
                f"{sum(level.candidates for level in each.levels):,}",
                f"{max(level.noise for level in each.levels):,.1f}",
                percent(each.spent),
            )
            for each in found.values()
        ]
        caption = (
            "Discovered columns: the number of cells found, the number of noisy counts used, the largest standard deviation of their "
            "noise, and the share of the run's budget spent"
        )
        yield _table(caption, ("column", *figures), prices, right=figures)


def _rounds(rounds: Sequence[Round]) -> Iterator[str]:
    yield "<h2>How the model was made</h2>"
    yield _paragraph(
        "Each round measured, with noise, the columns where the model's error was largest, and corrected the model with the result. "
        "Once model and measurement are about as far apart as noise alone would make them, nothing is left to learn."
    )
    words = escape(rounds_words(rounds), quote=True)
    yield f'<p><img src="{data_uri(rounds_plot(rounds))}" alt="{words}"></p>'
    if rounds:
        figures = ("cells", "noise", "before", "after", "noise alone", "spent")
        rows = [
            (
                f"{each.number}",
                " × ".join(each.columns),  # noqa: RUF001  a sign of multiplication
                f"{each.cells:,}",
                f"{each.noise:,.1f}",
                *map(percent, (each.before, each.after, each.noise_floor, each.spent)),
            )
            for each in rounds
        ]
        caption = (
            "The rounds: the standard deviation of the noise in a count; the distance between model and measurement before and after the "
            "correction, and from noise alone, in percent of the rows; and the share of the run's budget spent so far"
        )
        yield _table(caption, ("round", "measured", *figures), rows, right=figures)


def _files(files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "<h2>Files</h2>"
    rows = [(file["path"], f"{file['rows']:,}", f"{file['bytes']:,}", file["sha256"]) for file in files]
    yield _table("The files beside this page", ("file", "rows", "bytes", "sha256"), rows, right=("rows", "bytes"))
    yield _paragraph(
        "measurements.parquet holds the noisy counts themselves, which are more accurate than the rows. manifest.json holds the content "
        "of this page in machine-readable form."
    )
    yield "<h2>How to read the data</h2>"
    yield _paragraph("In Python, from this folder, use either line:")
    yield _code(
        "import duckdb; rows = duckdb.read_parquet('data/*.parquet')",
        "import pandas; rows = pandas.read_parquet('data')",
    )


def _check(statement: Statement) -> Iterator[str]:
    yield "<h2>How to check the receipt</h2>"
    yield _paragraph(
        "Every charge is recorded in a ledger whose events form a hash chain. The head below identifies the whole history up to this "
        "release. Anyone with access to the ledger can run this command from this folder. It checks that the ledger still holds that "
        "history, and recomputes every price in it:"
    )
    yield _code(f"dpflow ledger verify --releases . --head {statement.ledger_head}")
    rows = [
        ("ledger", statement.ledger),
        ("ledger head", statement.ledger_head),
        ("sha256 of the spec", statement.spec_sha256),
        ("made by", ", ".join(f"{name} {number}" for name, number in statement.versions.items())),
    ]
    yield _table("The receipt", ("what", "value"), rows)


def _factor(epsilon: float) -> str:
    """Describe the factor by which an epsilon can change a probability."""
    return (
        f"{up(math.exp(epsilon), places=3)} times" if epsilon <= 10 else f"e to the power of {at_most(epsilon)} times"
    )


def _values(attribute: Attribute) -> str:
    if attribute.size > _MOST_CELLS:
        return f"{attribute.size:,} cells"
    labels = attribute.labels
    if len(labels) <= _MOST_LABELS:
        return ", ".join(labels)
    return f"{labels[0]}, {labels[1]}, … {labels[-1]}: {len(labels):,} cells"


def _paragraph(words: str) -> str:
    return f"<p>{escape(words)}</p>"


def _code(*lines: str) -> str:
    return f'<pre tabindex="0"><code>{escape(chr(10).join(lines))}</code></pre>'


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> str:
    """Return an HTML table. The first cell of each row is its heading. Wide tables scroll, with the keyboard too."""
    kinds = [" class=number" if head in right else "" for head in heads]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(heads, kinds, strict=True))
    lines = [f'<div class=wide tabindex="0" role="group" aria-label="{escape(caption, quote=True)}"><table>']
    lines += [f"<caption>{escape(caption)}</caption>", f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    for first, *others in rows:
        cells = [f"<td{kind}>{escape(str(cell))}</td>" for cell, kind in zip(others, kinds[1:], strict=True)]
        lines.append(f'<tr><th scope="row">{escape(str(first))}</th>{"".join(cells)}</tr>')
    return "\n".join([*lines, "</tbody></table></div>"])

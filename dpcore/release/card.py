"""The card of a release: one page for people, which needs nothing but itself and tells what was promised and how to check it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from dpcore.release.card_style import STYLE
from dpcore.release.covered import consequences, coverage
from dpcore.release.draft import Draft
from dpcore.release.statement import Statement
from dpcore.reporting.formatting import at_most, column_type, figure, up
from dpcore.reporting.outcome import Round
from dpcore.reporting.plots import data_uri, percent, rounds_plot, rounds_words
from dpcore.universe import Attribute

_MOST_LABELS, _MOST_CELLS = 8, 10_000


def card(draft: Draft, *, files: Sequence[Mapping[str, Any]]) -> str:
    """Write the page from the draft of a release and its other files, as the manifest lists them."""
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
                f"{rows:,} rows, drawn from a model that was made of noisy counts. No row was taken from the real table."
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
        f"A row of the real table counted {statement.weighing}. So all counts, and the number of rows here, are sums of {statement.weight} "
        "and not numbers of real rows."
    )


def _promise(statement: Statement) -> Iterator[str]:
    whom = "row" if statement.unit == "row" else statement.unit
    adding = statement.neighbours == "add-remove"
    step = f"by one {whom} that is in one of them only" if adding else f"in one {whom} that is exchanged for another"
    plus = f", plus {at_most(statement.delta)}" if statement.delta else ""
    booked = statement.bookkeeping
    yield "<h2>What is promised</h2>"
    yield _paragraph(
        f"How much anyone can learn from this release about one {whom}, beyond what the other rows of the table tell, is limited. The "
        "limit holds whatever else they know, and whatever they can feasibly compute, now and later."
    )
    yield _paragraph(
        f"In figures: take two tables that differ {step}. Whatever can come out, and whatever is concluded from it, is at most "
        f"{_factor(statement.epsilon)} as likely with one table as with the other{plus}."
    )
    yield _paragraph(
        "The promise is about this release. Others that were made of the same table add to it; the steward's ledger keeps the sum. "
        "What is true of many people at once, such as that smoking harms, is meant to be seen, and is not hidden."
    )
    yield _paragraph(statement.sampling)
    if statement.blocks is not None:
        yield _paragraph(consequences(statement.blocks, unit=statement.unit, rows=statement.max_rows_per_unit))
    yield "<h2>What was protected</h2>"
    terms = [
        ("epsilon", at_most(statement.epsilon)),
        ("delta", at_most(statement.delta)),
        ("delta of the samplers, on top", at_most(statement.sampler_delta)),
        *(
            (name, at_most(amount))
            for name, amount in (("rho", statement.rho), ("mu", statement.mu))
            if amount is not None
        ),
        ("unit", statement.unit),
        ("rows of a unit that count, at most", f"{statement.max_rows_per_unit:,}"),
        *([] if statement.weight is None else [("a row counts", statement.weighing)]),
        (
            "neighbours",
            f"{statement.neighbours}: {'one unit more or less' if adding else 'one unit exchanged for another'}",
        ),
        *([] if statement.blocks is None else [("covers", coverage(statement.blocks))]),
        ("accounting", statement.accounting),
        ("account", statement.account),
        ("run", statement.run),
        (f"spent (bookkeeping), in {booked.counts}", f"{figure(booked.spent)} of {figure(booked.reserved)} reserved"),
    ]
    yield _table("The terms of the promise", ("term", "as promised"), terms)


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
            f"What may be in a column was declared beforehand, and not taken from the data, but for {', '.join(found)}: what is in "
            "these was found in the data at a price, by noisy counts that are part of the promise above."
        )
    else:
        yield _paragraph("What may be in a column was declared beforehand, and not taken from the data.")
    yield _table("The columns and what may be in them", ("column", "type", "values"), rows)
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
        caption = "What was found in the data: how many cells, by how many noisy counts, the most noise in one of them, and at what price"
        yield _table(caption, ("column", *figures), prices, right=figures)


def _rounds(rounds: Sequence[Round]) -> Iterator[str]:
    yield "<h2>How the model was made</h2>"
    yield _paragraph(
        "Each round measured, with noise, the columns that the model got most wrong, and corrected the model by what was measured. "
        "Where model and measurement are about as far apart as noise alone would bring them, nothing is left to learn."
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
            "The rounds: the standard deviation of the noise in a count; the distance of model and measurement before and after the "
            "correction, and by noise alone, in percent of the rows; and how much of the run's budget was spent by then"
        )
        yield _table(caption, ("round", "measured", *figures), rows, right=figures)


def _files(files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "<h2>Files</h2>"
    rows = [(file["path"], f"{file['rows']:,}", f"{file['bytes']:,}", file["sha256"]) for file in files]
    yield _table("The files beside this page", ("file", "rows", "bytes", "sha256"), rows, right=("rows", "bytes"))
    yield _paragraph(
        "measurements.parquet holds the noisy counts themselves, which are more exact than the rows. manifest.json holds all that is "
        "on this page for programs."
    )
    yield "<h2>How to read the data</h2>"
    yield _paragraph("In Python, from this folder, with either of:")
    yield _code(
        "import duckdb; rows = duckdb.read_parquet('data/*.parquet')",
        "import pandas; rows = pandas.read_parquet('data')",
    )


def _check(statement: Statement) -> Iterator[str]:
    yield "<h2>How to check the receipt</h2>"
    yield _paragraph(
        "What was paid is written in a ledger, whose entries hold each other in place. The head below stands for all of it up to this "
        "release. Whoever has the ledger checks from this folder that it still holds that history, and every price in it:"
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
    """Say what an epsilon does to a probability."""
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
    """Write a table; the first cell of a row is its heading. One that is too wide can be scrolled, by keys too."""
    kinds = [" class=number" if head in right else "" for head in heads]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(heads, kinds, strict=True))
    lines = [f'<div class=wide tabindex="0" role="group" aria-label="{escape(caption, quote=True)}"><table>']
    lines += [f"<caption>{escape(caption)}</caption>", f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    for first, *others in rows:
        cells = [f"<td{kind}>{escape(str(cell))}</td>" for cell, kind in zip(others, kinds[1:], strict=True)]
        lines.append(f'<tr><th scope="row">{escape(str(first))}</th>{"".join(cells)}</tr>')
    return "\n".join([*lines, "</tbody></table></div>"])

"""The card as a whole: pictures of the data first, then the promise, then how the release was made."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpcore.release.card import making, pictures
from dpcore.release.draft import Draft
from dpcore.release.persons import PersonRows
from dpcore.release.statement import Statement
from dpcore.reporting.formatting import at_most, up
from dpcore.reporting.html import Markup, document, heading, paragraph, table
from dpcore.reporting.plots import colours
from dpcore.reporting.portrait import Portrait


def card(
    draft: Draft,
    *,
    files: Sequence[Mapping[str, Any]],
    portrait: Portrait | None,
    persons: PersonRows | None = None,
) -> str:
    """Return the card as HTML.

    Args:
        draft: The release.
        files: Its other files, as the manifest lists them.
        portrait: The figures of its pictures; None for a release without replicates, which has no pictures.
        persons: Its rows by person; None if it has no ids.
    """
    title = f"Synthetic table {draft.declaration.spec.dataset}"
    parts = [
        paragraph(f"Release {draft.name}", kind="kind"),
        heading(title, level=1),
        *_introduction(draft),
        *(() if portrait is None or not portrait.tables else _shown(portrait)),
        *promise(draft.statement),
        *making.functions(draft),
        *(() if persons is None else making.persons(persons)),
        *making.values(draft),
        *(() if draft.parts else making.rounds(draft.rounds)),
        *making.files(files),
        *(making.parts(draft.parts) if draft.parts else making.receipt(draft.statement)),
    ]
    return document(f"{title}, release {draft.name}", parts, style=STYLE)


def _introduction(draft: Draft) -> Iterator[Markup]:
    statement = draft.statement
    yield paragraph(
        f"{draft.rows.count:,} rows, drawn from a model fitted to noisy counts. No row was copied from the real table."
    )
    for warning in draft.warnings:
        yield paragraph(f"Warning: {warning}.")
    if statement.weight is not None:
        yield weighed(statement)
    if limit := pictures.limit_words(statement):
        yield paragraph(limit)


def _shown(portrait: Portrait) -> Iterator[Markup]:
    for part in (pictures.summary, pictures.columns, pictures.pairs, pictures.tables):
        yield from part(portrait)


def weighed(statement: Statement) -> Markup:
    """Say that rows were counted several times."""
    return paragraph(
        f"A row of the real table counted {statement.weighing}. All counts, and the number of rows here, are therefore sums of "
        f"{statement.weight}, not numbers of real rows."
    )


def promise(statement: Statement) -> Iterator[Markup]:
    """Yield the promise in words and in figures."""
    whom = "row" if statement.unit == "row" else statement.unit
    adding = statement.neighbours == "add-remove"
    step = f"in one {whom} that only one of them contains" if adding else f"in one {whom} that is replaced by another"
    plus = f", plus {at_most(statement.delta)}" if statement.delta else ""
    yield heading("What is promised")
    yield paragraph(statement.sentence, kind="promise")
    yield paragraph(
        f"This release limits how much anyone can learn about one {whom} beyond what the other rows of the table reveal. The "
        "limit holds whatever else they know, and whatever they can feasibly compute, now or later."
    )
    yield paragraph(
        f"In numbers: take two tables that differ {step}. Any output, and any conclusion drawn from it, is at most "
        f"{_factor(statement.epsilon)} as likely with one table as with the other{plus}."
    )
    several = len(statement.made_from) > 1
    alone = "this release and those of all runs that it is made from" if several else "this release alone"
    yield paragraph(
        f"This promise covers {alone}. Other releases of the same table add to it; the steward's ledger keeps the total. "
        "Facts about many people at once, such as that smoking is harmful, are meant to be visible and are not hidden."
    )
    yield paragraph(statement.sampling)
    if statement.blocks is not None:
        yield paragraph(statement.blocks.consequences(unit=statement.unit, rows=statement.max_rows_per_unit))
    yield heading("What was protected")
    yield table("The terms of the promise", ("term", "as promised"), list(statement.terms()))


def _factor(epsilon: float) -> str:
    """Describe the factor by which an epsilon can change a probability."""
    return (
        f"{up(math.exp(epsilon), places=3)} times" if epsilon <= 10 else f"e to the power of {at_most(epsilon)} times"
    )


STYLE = (
    colours.variables(":root")
    + """
:root{color-scheme:light dark}
*{box-sizing:border-box}
body{margin:0;background:var(--panel);color:var(--ink);font:17px/1.55 system-ui,sans-serif}
main{max-width:56rem;margin:0 auto;padding:3rem 1.5rem 5rem}
h1{font-size:2.1rem;line-height:1.2;margin:0 0 1.2rem;overflow-wrap:anywhere}
h2{font-size:1.35rem;line-height:1.3;margin:3rem 0 .8rem;padding-top:1.2rem;border-top:1px solid var(--grid)}
h3{font-size:1.05rem;margin:1.6rem 0 .5rem}
p,ul{max-width:44rem;margin:0 0 1rem;overflow-wrap:anywhere}
li{margin:0 0 .5rem}
.kind{color:var(--quiet);margin:0 0 .3rem;font-size:.95rem}
.promise{font-size:1.2rem;font-weight:600;border-left:4px solid var(--spent);padding-left:1rem}
.good{color:var(--good);font-weight:600;white-space:nowrap}
.fair{color:var(--fair);font-weight:600;white-space:nowrap}
.poor{color:var(--poor);font-weight:600;white-space:nowrap}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr));gap:1.4rem;margin:0 0 1.2rem}
figure{margin:0;min-width:0}
figure img{width:100%}
figcaption{font-size:.95rem;margin:0 0 .4rem;overflow-wrap:anywhere}
.wide{overflow-x:auto;margin:0 0 1.2rem}
.wide img{max-width:none}
table{border-collapse:collapse;font-size:.92rem}
caption{text-align:left;color:var(--quiet);padding:0 0 .4rem;max-width:min(46rem,88vw)}
th,td{text-align:left;vertical-align:top;padding:.42rem 1.1rem .42rem 0;border-bottom:1px solid var(--grid);overflow-wrap:break-word}
td{overflow-wrap:anywhere}
td:not(.number,.rating){min-width:10rem}
th[scope=row]{font-weight:600;min-width:4rem}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
pre{overflow-x:auto;padding:.9rem 1.1rem;border:1px solid var(--outline);border-radius:6px}
code{font:.88rem/1.5 ui-monospace,monospace}
img{max-width:100%;height:auto;vertical-align:top}
summary{cursor:pointer;margin:0 0 1rem;color:var(--quiet)}
:focus-visible{outline:3px solid var(--spent);outline-offset:2px}
.wide:focus-visible{outline-offset:-3px}
@property --fade{syntax:"<length>";inherits:false;initial-value:0px}
@keyframes fade{from{--fade:4rem}to{--fade:0px}}
@supports (animation-timeline:scroll(self inline)){
.wide{mask-image:linear-gradient(to left,transparent,#000 var(--fade));animation:fade linear both;animation-timeline:scroll(self inline)}
}
@media print{
main{max-width:none;padding:0}
.wide,pre{overflow:visible}
.wide img{max-width:100%}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
figure,tr{break-inside:avoid}
table{width:100%;font-size:.75rem}
th,td{padding-right:.6rem;overflow-wrap:anywhere}
td:not(.number,.rating),th[scope=row]{min-width:0}
details::details-content{content-visibility:visible;block-size:auto}
}
"""
)

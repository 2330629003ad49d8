"""The card as a whole: pictures of the data first, then the promise, then how the release was made."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from dpcore.release.card import making, pictures
from dpcore.release.card.elements import Markup, paragraph
from dpcore.release.card.promise import promise, weighed
from dpcore.release.card.style import STYLE
from dpcore.release.draft import Draft
from dpcore.release.persons import PersonRows
from dpcore.reporting.portrait import Portrait

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


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
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}, release {escape(draft.name)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            paragraph(f"Release {draft.name}", kind="kind"),
            f"<h1>{escape(title)}</h1>",
            *_introduction(draft),
            *(() if portrait is None or not portrait.tables else _shown(portrait)),
            *promise(draft.statement),
            *making.functions(draft),
            *(() if persons is None else making.persons(persons)),
            *making.values(draft),
            *(() if draft.parts else making.rounds(draft.rounds)),
            *making.files(files),
            *(making.parts(draft.parts) if draft.parts else making.receipt(draft.statement)),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


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

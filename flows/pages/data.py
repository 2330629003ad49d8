"""The page of a release's data in Markdown: what can be relied on, and the pictures of its card. All of it is public."""

from dpcore.reporting.markdown import image, page, plain
from dpcore.reporting.outcome import Report
from dpcore.reporting.portrait import CountTable, Portrait
from dpcore.reporting.portrait_plots import (
    column_plot,
    column_words,
    error_words,
    paired_words,
    pairs_plot,
    pairs_words,
)
from dpcore.reporting.ratings import Rating

MOST_BYTES = 300_000
"""The most bytes of pictures. The server stores every page in its database, and sends it whole."""


def data_page(report: Report, portrait: Portrait) -> str:
    """Return the page with the pictures of a release."""
    pictures, left_out = _pictures(portrait)
    return page(
        f"# {plain(report.outcome.account)}: the data",
        "Every figure is an estimate, because counts are protected by noise. The thin lines and the figures after ± are 95 % intervals. "
        "`card.html` in the folder of the release has the same pictures, and tells more.",
        "## What you can rely on",
        "\n".join(map(_line, (*portrait.trusted, *portrait.doubtful))),
        " ".join(f"{rating.symbol} {rating}: {plain(rating.meaning)}." for rating in Rating),
        *(_pairs(portrait) if portrait.pairs else ()),
        "## The columns",
        *pictures,
        f"The pictures of {left_out:,} more columns are in `card.html`." if left_out else "",
    )


def _pairs(portrait: Portrait) -> tuple[str, ...]:
    return (
        "## Pairs of columns",
        image(pairs_plot(portrait), plain(pairs_words(portrait))),
        (
            "Below the diagonal: how much two columns tell about each other, from 0 to 100. Above it: whether counts by both can be trusted; m: "
            "measured together, i: inferred."
        ),
        paired_words(portrait),
    )


def _pictures(portrait: Portrait) -> tuple[list[str], int]:
    """Return the pictures of the first columns, as many as there is room for, and the number of the others."""
    parts: list[str] = []
    room = MOST_BYTES - len(image(pairs_plot(portrait), ""))
    for number, column in enumerate(portrait.columns):
        drawn = image(column_plot(column), plain(column_words(column)))
        room -= len(drawn)
        if room < 0:
            return parts, len(portrait.columns) - number + portrait.more_columns
        parts += [f"**{plain(column.name)}** {column.table.rating.symbol} {column.table.rating}", drawn]
    return parts, portrait.more_columns


def _line(table: CountTable) -> str:
    """Return what is known of a table of counts, as a line of a list: the UI would cut off a wide table."""
    columns = " × ".join(map(plain, table.columns))  # noqa: RUF001  a sign of multiplication
    example = "" if table.example is None else f". For example, {plain(table.example.words)}"
    return (
        f"- {table.rating.symbol} {table.rating}: counts by **{columns}**, expected error {error_words(table)}{example}"
    )

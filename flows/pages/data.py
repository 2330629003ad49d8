"""The page of a release's data in Markdown: what can be relied on, and the pictures of its card. All of it is public."""

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
from flows.pages.markdown import image, page, plain

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
        "\n".join(_line(each) for each in (*portrait.trusted, *portrait.doubtful)),
        " ".join(f"{rating.symbol} {rating}: {plain(rating.meaning)}." for rating in Rating),
        "## Pairs of columns" if portrait.pairs else "",
        image(pairs_plot(portrait), plain(pairs_words(portrait))) if portrait.pairs else "",
        "Below the diagonal: how much two columns tell about each other, from 0 to 100. Above it: whether counts by both can be trusted; m: "
        "measured together, i: inferred."
        if portrait.pairs
        else "",
        paired_words(portrait) if portrait.pairs else "",
        "## The columns",
        *pictures,
        f"The pictures of {left_out:,} more columns are in `card.html`." if left_out else "",
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


def _line(found: CountTable) -> str:
    """Return what is known of a table of counts, as a line of a list: the UI would cut off a wide table."""
    columns = " × ".join(map(plain, found.columns))  # noqa: RUF001  a sign of multiplication
    example = "" if found.example is None else f". For example, {plain(found.example.words)}"
    return (
        f"- {found.rating.symbol} {found.rating}: counts by **{columns}**, expected error {error_words(found)}{example}"
    )

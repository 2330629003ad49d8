"""The first part of the card: what can be relied on, pictures of the columns and their pairs, and the best and worst tables of counts."""

import shlex
from collections.abc import Iterator, Sequence

from dpcore.release.statement import Statement
from dpcore.reporting.html import (
    Markup,
    bullets,
    code,
    folded,
    heading,
    image,
    joined,
    paragraph,
    picture,
    rated,
    scrolling,
    strong,
    table,
)
from dpcore.reporting.plots import percent
from dpcore.reporting.portrait import GUESS, INFERRED, ColumnPicture, CountTable, PairPicture, Portrait
from dpcore.reporting.portrait_plots import (
    column_plot,
    column_words,
    error_words,
    paired_words,
    pairs_plot,
    pairs_words,
)
from dpcore.reporting.ratings import Rating

OPEN_COLUMNS, LISTED, MOST_PAIRS = 12, 5, 150


def summary(portrait: Portrait) -> Iterator[Markup]:
    """Yield in words what can be relied on and what not."""
    yield heading("What you can rely on")
    yield paragraph(
        "The counts of the real table are protected by noise, so every figure is an estimate. Beside it stands its 95 % interval, which is made "
        "to contain the real count in 95 of 100 cases. The narrower the interval, the more you can trust the figure."
    )
    yield paragraph(
        f"All counts are estimates for the real table, of which about {portrait.total:,.0f} rows were counted."
    )
    if portrait.trusted:
        yield paragraph(joined(rated(Rating.GOOD), ". You can trust figures such as these:"))
        yield bullets(_figure(trusted) for trusted in portrait.trusted)
    if portrait.doubtful:
        yield paragraph(
            joined(rated(Rating.POOR), " or ", rated(Rating.FAIR), ". Do not rely on figures such as these:")
        )
        yield bullets(joined(_figure(doubtful), ". ", _reason(doubtful)) for doubtful in portrait.doubtful)
    else:
        yield paragraph(_all_good(portrait))
    yield paragraph(_numbers(portrait))


def _all_good(portrait: Portrait) -> str:
    if not portrait.left_out:
        return "All columns, pairs of columns and measured tables are good."
    return (
        "All columns, pairs of columns and measured tables are good, as far as their errors are known. Larger tables without known errors: "
        f"{len(portrait.left_out):,}."
    )


def _figure(counted: CountTable) -> Markup:
    example = counted.example
    if example is None:
        return joined(strong(counted.name))
    words = f": for example, {example.value:,.0f} rows have {example.label}; interval {example.low:,.0f} to {example.high:,.0f}"
    return joined(strong(counted.name), words)


def _reason(counted: CountTable) -> str:
    """Say why a table is not good."""
    if counted.basis == GUESS:
        return "No measurement connects these columns, so they are taken to be independent, which may be wrong."
    if counted.error is None:
        return "It has too many counts to tell."
    if counted.basis == INFERRED:
        return "Columns of it were never measured together, so a relation between them may be missing."
    if counted.is_blurred:
        return "Too few of its values stood out of the noise: where values lie within its cells is hardly known."
    return f"A typical one of its {counted.cells:,} counts is off by {percent(counted.error)} of itself. Larger groups are more accurate."


def _numbers(portrait: Portrait) -> str:
    columns = [column.table for column in portrait.columns]
    parts = [f"Of {len(columns):,} columns, {_by_rating(columns)}"]
    if portrait.pairs:
        among = f" among the {len(portrait.paired):,} that depend most on another" if portrait.unpaired else ""
        parts.append(
            f"of {len(portrait.pairs):,} pairs of columns{among}, {_by_rating([pair.table for pair in portrait.pairs])}"
        )
    return f"{'; '.join(parts)}."


def _by_rating(tables: Sequence[CountTable]) -> str:
    numbers = [(rating, sum(counted.rating is rating for counted in tables)) for rating in Rating]
    return ", ".join(f"{number:,} {'is' if number == 1 else 'are'} {rating}" for rating, number in numbers if number)


def limit_words(statement: Statement) -> str:
    """Say how many rows the limit on rows per unit removed, as far as public figures tell."""
    if statement.unit == "row":
        return ""
    most, unit, chosen = statement.max_rows_per_unit, statement.unit, statement.chosen_limit
    if chosen is not None and chosen.sizes is not None:
        counted = (
            f"as many as keep the norm of its counts within {most:,}" if statement.by_norm else f"at most {most:,}"
        )
        return (
            f"Of the rows of each {unit}, {counted} are counted, chosen at random. Counts were then corrected by how many rows each {unit} has, as far as "
            "the noisy histogram tells. So all counts and intervals are about all rows."
        )
    limit = f"At most {most:,} row{'' if most == 1 else 's'} of each {unit} {'is' if most == 1 else 'are'} kept, chosen at random."
    if chosen is None:
        return f"{limit} How many rows this left out was not measured, so no public figure tells. All counts and intervals are about the kept rows."
    if chosen.lost is None:
        return f"{limit} The noisy histogram of rows per {unit} does not tell how many rows this left out."
    about = "at least about" if chosen.lost_at_least else "about"
    return (
        f"{limit} By the noisy histogram of rows per {unit}, this left out {about} {percent(max(chosen.lost, 0.0))} of the rows. All counts "
        "and intervals are about the kept rows."
    )


def columns(portrait: Portrait) -> Iterator[Markup]:
    """Yield the pictures of all columns, the first ones open."""
    yield heading("The columns")
    yield paragraph(
        "Bars are counts of rows. The thin line at the end of a bar is its 95 % interval. Hatched bars are rows without a value."
    )
    yield paragraph(joined(*_meanings()))
    yield _grid(portrait.columns[:OPEN_COLUMNS])
    if more := portrait.columns[OPEN_COLUMNS:]:
        yield folded(f"{len(more):,} more columns", [_grid(more)])
    if portrait.more_columns:
        yield paragraph(
            f"{portrait.more_columns:,} more columns have no picture here. errors.parquet has their counts."
        )


def _meanings() -> Iterator[str]:
    for rating in Rating:
        yield rated(rating)
        yield f": {rating.meaning}. "


def _grid(pictures: Sequence[ColumnPicture]) -> Markup:
    drawn = [
        picture(
            column_plot(column),
            column_words(column),
            caption=joined(strong(column.name), " ", rated(column.table.rating), f", {_cells(column)}"),
        )
        for column in pictures
    ]
    return Markup("\n".join(["<div class=pictures>", *drawn, "</div>"]))


def _cells(column: ColumnPicture) -> str:
    """Say what was counted, and that the picture has fewer bars than that."""
    bars = len(column.counts)
    return column.cells if bars >= column.table.cells else f"{column.cells} in {bars:,} bars"


def pairs(portrait: Portrait) -> Iterator[Markup]:
    """Yield the picture of all pairs, and their table."""
    if not portrait.pairs:
        return
    yield heading("Pairs of columns")
    yield paragraph(
        "Below the diagonal: how much two columns tell about each other, from 0 (nothing) to 100 (each determines the other). The darker, the "
        "more. Above the diagonal: whether counts by both columns can be trusted."
    )
    yield bullets(
        [
            joined(strong("m, measured"), ": one noisy measurement covers both columns, maybe in coarser groups."),
            joined(
                strong("i, inferred"),
                ": they were measured with other columns, but never together. A relation between the two may be missing, whatever the error says.",
            ),
            joined(
                strong("✗ without a letter, guessed"),
                ": no measurement connects them, so they are taken to be independent.",
            ),
        ]
    )
    if portrait.unpaired:
        yield paragraph(paired_words(portrait))
        hint = "dpflow answer gives counts by any columns, with their intervals."
        yield folded(
            f"Columns left out: {len(portrait.unpaired):,}", [paragraph(f"{', '.join(portrait.unpaired)}. {hint}")]
        )
    yield scrolling(image(pairs_plot(portrait), pairs_words(portrait)), about="Pairs of columns")
    yield _pair_table(portrait)


def _pair_table(portrait: Portrait) -> Markup:
    """Return the table of the pairs, with the strongest dependence first."""
    shown = sorted(portrait.pairs, key=_dependent)[:MOST_PAIRS]
    rows = [
        (
            pair.table.name,
            rated(pair.table.rating),
            pair.table.basis_words,
            "not known" if pair.dependence is None else percent(pair.dependence),
            error_words(pair.table),
        )
        for pair in shown
    ]
    which = (
        "All pairs" if len(shown) == len(portrait.pairs) else f"The {len(shown):,} pairs with the strongest dependence"
    )
    among = f", among {len(portrait.paired):,} of the columns" if portrait.unpaired else ""
    heads = ("pair", "rating", "how it is known", "dependence", "expected error")
    caption = f"{which}{among}. Expected error: of a count, in percent of the mean count"
    return folded(f"{which} as a table", [table(caption, heads, rows, right=heads[3:])])


def _dependent(pair: PairPicture) -> tuple[float, str]:
    return -(pair.dependence or 0.0), pair.table.name


def tables(portrait: Portrait) -> Iterator[Markup]:
    """Yield the best and the worst tables of counts."""
    several = [counted for counted in portrait.tables if len(counted.columns) > 1] or list(portrait.tables)
    if not several:
        return
    yield heading("The best and the worst tables of counts")
    yield paragraph(
        "These are the pairs of columns, and larger tables that were measured. The expected error is that of a count, in percent of the table's "
        "mean count, so large counts are more accurate. errors.parquet has every count of all these tables with its interval."
    )
    if portrait.left_out:
        yield paragraph(_left_out_words(portrait))
    among = f" of {len(several):,} tables with known errors" if portrait.left_out else ""
    yield _listed(f"The {min(LISTED, len(several)):,} best{among}", several[:LISTED])
    if len(several) > LISTED:
        worst = several[LISTED:][-LISTED:][::-1]
        yield _listed(f"The {len(worst):,} worst{among}", worst)
    yield paragraph("For any other number and its interval, run in this folder:")
    question = f"select {_column(portrait)}, count(*) from release group by all"  # noqa: S608  a command for the reader
    yield code(f"dpflow answer . {shlex.quote(question)}")


def _left_out_words(portrait: Portrait) -> str:
    """Say which tables are not among the best and the worst, and why."""
    named = "; ".join(" × ".join(columns) for columns in portrait.left_out[:LISTED])  # noqa: RUF001  a sign of multiplication
    number = len(portrait.left_out)
    what, have = (
        ("pair or measured table is", "it has") if number == 1 else ("pairs or measured tables are", "they have")
    )
    return (
        f"{number:,} {what} not listed, because {have} too many counts: {named}"
        f"{'; …' if len(portrait.left_out) > LISTED else ''}. Their errors are not known here, and may be larger than those of the worst tables "
        "below. dpflow answer gives each of their counts with its interval."
    )


def _listed(caption: str, listed: Sequence[CountTable]) -> Markup:
    heads = ("table", "rating", "counts", "expected error", "how it is known", "a count, with its interval")
    rows = [
        (
            counted.name,
            rated(counted.rating),
            f"{counted.cells:,}",
            error_words(counted),
            counted.basis_words,
            "" if counted.example is None else counted.example.words,
        )
        for counted in listed
    ]
    return table(caption, heads, rows, right=heads[2:4])


def _column(portrait: Portrait) -> str:
    """Return the first column as SQL names it, in quotation marks: its name may be a word of SQL."""
    return '"' + portrait.columns[0].name.replace('"', '""') + '"'

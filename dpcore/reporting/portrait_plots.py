"""Draw the portrait of a release: its columns, and its pairs of columns. The card and the Prefect pages have the same pictures."""

from dpcore.reporting.plots import Tile, counts_plot, counts_words, percent, tiles_plot
from dpcore.reporting.portrait import GUESS, INFERRED, ColumnPicture, CountTable, PairPicture, Portrait
from dpcore.reporting.ratings import Rating

SHADES = (0.01, 0.05, 0.2, 0.5)
"""From these dependences on, tiles are darker."""


def column_plot(column: ColumnPicture) -> str:
    """Draw the distribution of a column."""
    return counts_plot(column.counts, title=column.name, upright=column.on_axis, note=column.note)


def column_words(column: ColumnPicture) -> str:
    """Describe the distribution of a column in words."""
    note = f" {column.note.capitalize()}." if column.note else ""
    return f"{column.name}. {counts_words(column.counts)}{note}"


def error_words(table: CountTable) -> str:
    """Return a table's expected error for a reader, as far as it is known. Of columns that were never measured together, it may be larger."""
    if table.error is None or table.basis == GUESS:
        return "not known"
    error = f"at least {percent(table.error)}" if table.basis == INFERRED else percent(table.error)
    return f"{error}, in wide cells" if table.is_blurred else error


def pairs_plot(portrait: Portrait) -> str:
    """Draw all pairs of columns: their dependence below the diagonal, and above it how far they can be trusted."""
    tiles: dict[tuple[int, int], Tile] = {}
    for pair in portrait.pairs:
        tiles[pair.second, pair.first] = _dependence(pair)
        tiles[pair.first, pair.second] = _trust(pair)
    legend = [
        (Tile("shade-3", "35"), "dependence in percent"),
        (Tile("shade-1", "2?"), "inferred: may be more"),
        (Tile("shade-0", "?"), "not known"),
        (Tile("good", "✓m"), "good: measured together"),
        (Tile("fair", "~m"), "fair: measured, but noisy"),
        (Tile("fair", "~i"), "fair: inferred"),
        (Tile("poor", "✗m"), "poor: too much noise"),
        (Tile("poor", "✗i"), "poor: inferred and noisy"),
        (Tile("poor", "✗"), "poor: guessed"),
    ]
    return tiles_plot(portrait.paired, tiles, legend, title="Pairs of columns", words=pairs_words(portrait))


def pairs_words(portrait: Portrait) -> str:
    """Describe the pairs in words: how many are good, fair and poor, and which depend most on each other."""
    if not portrait.pairs:
        return "There is only one column, so there are no pairs."
    numbers = [sum(pair.table.rating is rating for pair in portrait.pairs) for rating in Rating]
    ratings = ", ".join(f"{number:,} {rating}" for number, rating in zip(numbers, Rating, strict=True))
    dependent = sorted(
        (pair for pair in portrait.pairs if pair.dependence), key=lambda pair: -(pair.dependence or 0.0)
    )[:3]
    strongest = "; ".join(f"{pair.table.name} {100 * (pair.dependence or 0.0):.0f} %" for pair in dependent)
    among = f" of {len(portrait.paired):,} of the columns" if portrait.unpaired else ""
    return f"{len(portrait.pairs):,} pairs{among}: {ratings}." + (
        f" The strongest dependences: {strongest}." if dependent else ""
    )


def paired_words(portrait: Portrait) -> str:
    """Say how many columns are not among the pairs, and why; nothing if all are."""
    shown, others = len(portrait.paired), len(portrait.unpaired)
    if not others:
        return ""
    return (
        f"Only {shown:,} of the {shown + others:,} columns are shown here: those that depend most on another column, as far as the model "
        f"could compare them. {others:,} {'is' if others == 1 else 'are'} left out, because a picture with more columns could not be read."
    )


def _dependence(pair: PairPicture) -> Tile:
    if pair.dependence is None:
        return Tile("shade-0", "?")
    shade = sum(pair.dependence >= least for least in SHADES)
    doubt = "?" if pair.table.basis == INFERRED else ""
    return Tile(f"shade-{shade}", f"{100 * pair.dependence:.0f}{doubt}")


def _trust(pair: PairPicture) -> Tile:
    rating, basis = pair.table.rating, pair.table.basis
    letter = {INFERRED: "i", GUESS: ""}.get(basis, "m")
    return Tile(str(rating), f"{rating.symbol}{letter}")

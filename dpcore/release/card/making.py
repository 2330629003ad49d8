"""The last part of the card: the columns and their values, how the model was made, the files, and how to check the receipt."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpcore.release.descriptors import sentence, words_about
from dpcore.release.draft import Draft
from dpcore.release.persons import PersonRows
from dpcore.release.statement import Statement
from dpcore.reporting.formatting import at_most, column_type
from dpcore.reporting.html import Markup, code, folded, heading, image, paragraph, table
from dpcore.reporting.outcome import Round
from dpcore.reporting.plots import percent, rounds_plot, rounds_words
from dpcore.universe import Attribute

_MOST_LABELS, _MOST_CELLS = 8, 10_000
FEW_ROUNDS = 12


def values(draft: Draft) -> Iterator[Markup]:
    """Yield the columns and their possible values."""
    universe = draft.declaration.universe
    about = {name: sentence(words) for name, words in words_about(draft.declaration.spec).items()}
    heads = ("column", "type", "values", "meaning")[: 4 if any(about.values()) else 3]
    rows = [
        (field.name, column_type(str(field.type)), _values(universe.attributes[field.name]), about[field.name])
        for field in universe.schema
    ]
    yield heading("The possible values")
    discovered = {finding.column: finding for finding in draft.findings}
    if discovered:
        yield paragraph(
            f"The possible values of the columns were declared in advance, not taken from the data, except for {', '.join(discovered)}. "
            "These were discovered in the data with noisy counts, whose price is part of the promise above."
        )
    else:
        yield paragraph("The possible values of the columns were declared in advance, not taken from the data.")
    yield table("The columns and their possible values", heads, [row[: len(heads)] for row in rows])
    if discovered:
        figures = ("cells", "counts", "noise", "share of the budget")
        prices = [
            (
                finding.column,
                f"{len(finding.cells):,}",
                f"{sum(level.candidates for level in finding.levels):,}",
                f"{max(level.noise for level in finding.levels):,.1f}",
                percent(finding.spent),
            )
            for finding in discovered.values()
        ]
        caption = (
            "Discovered columns: the number of cells found, the number of noisy counts used, the largest standard deviation of their "
            "noise, and the share of the run's budget spent"
        )
        yield table(caption, ("column", *figures), prices, right=figures)


def functions(draft: Draft) -> Iterator[Markup]:
    """Yield which columns determine others, and the functions that were learned."""
    for function in draft.functions:
        named = function.words.replace("->", "→")
        yield heading(f"What determines {function.determined}")
        yield paragraph(
            f"Every row of this release obeys one function, {named}. It was learned from noisy counts, whose noise has a standard deviation of "
            f"{function.noise:,.1f}, for {percent(function.spent)} of the budget. For {function.clear:,} of {len(function.rows):,} values, the largest count stood "
            f"out clearly{'; the others may be guesses' if function.clear < len(function.rows) else ''}."
        )
        listed = table(
            f"The learned function {named}", (*function.given, function.determined), function.rows[:_MOST_CELLS]
        )
        yield folded(f"The values of {function.determined}", [listed])


def persons(person_rows: PersonRows) -> Iterator[Markup]:
    """Yield how rows belong to synthetic persons, and how many rows they have."""
    stated = person_rows.to_json()
    column, constant = stated["column"], stated["constant"]
    yield heading("The persons")
    agree = f" They agree in {', '.join(constant)}." if constant else ""
    yield paragraph(
        f"Rows with the same {column} belong to one synthetic person: {stated['persons']:,} in all.{agree} The ids are numbers from 1 up, and "
        "mean nothing outside this release. Nothing else about the rows of one person was learned together: given the columns in which they "
        "agree, they are independent."
    )
    if stated["measured"] is None:
        yield paragraph("Each person has one row: at most one row of a person counts, so nothing had to be measured.")
        return
    figures = ("learned", "in this release")
    rows = [(name, *map(percent, shares)) for name, *shares in person_rows.by_class()]
    measured = person_rows.persons.sizes.by_size
    caption = (
        f"Persons by their number of rows, in percent of all persons: as learned from noisy numbers of persons, whose noise has a standard "
        f"deviation of {measured.noise:,.1f}, for {percent(stated['spent'])} of the budget; and in this release"
    )
    yield table(caption, ("rows", *figures), rows, right=figures)


def rounds(done: Sequence[Round]) -> Iterator[Markup]:
    """Yield what each round measured, and how much that improved the model."""
    yield heading("How the model was made")
    yield paragraph(
        "Each round measured, with noise, a table of counts that the model got wrong, and corrected the model with the result. "
        "Once model and measurement are about as far apart as noise alone would make them, nothing is left to learn."
    )
    yield paragraph(
        "The distance adds up the differences of all counts of the measured table, in percent of the rows. In a table with many small counts, the "
        "noise alone may add up to more than 100 %. This says nothing about the error of the model, which has many measurements to go by: the "
        "expected errors above do."
    )
    yield Markup(f"<p>{image(rounds_plot(done), rounds_words(done))}</p>")
    if done:
        figures = ("cells", "noise", "before", "after", "noise alone", "spent")
        rows = [
            (
                f"{measured.number}",
                " × ".join(measured.columns),  # noqa: RUF001  a sign of multiplication
                f"{measured.cells:,}",
                f"{measured.noise:,.1f}",
                *map(percent, (measured.before, measured.after, measured.noise_floor, measured.spent)),
            )
            for measured in done
        ]
        caption = (
            "The rounds: the standard deviation of the noise in a count; the distance between model and measurement before and after the "
            "correction, and from noise alone, in percent of the rows; and the share of the run's budget spent so far"
        )
        listed = table(caption, ("round", "measured", *figures), rows, right=figures)
        yield folded(f"All {len(done):,} rounds", [listed]) if len(done) > FEW_ROUNDS else listed


def files(listed: Sequence[Mapping[str, Any]]) -> Iterator[Markup]:
    """Yield the other files, and how to read them."""
    yield heading("Files")
    rows = [(file["path"], f"{file['rows']:,}", f"{file['bytes']:,}", file["sha256"]) for file in listed]
    yield table("The files beside this page", ("file", "rows", "bytes", "sha256"), rows, right=("rows", "bytes"))
    yield paragraph(
        "measurements.parquet holds the noisy counts themselves, which are more accurate than the rows. errors.parquet holds the counts of the "
        "model with their intervals, and uncertainty.parquet what dpflow answer needs for the intervals of other numbers. manifest.json holds the "
        "promise, the columns and the rounds in machine-readable form."
    )
    yield heading("How to read the data")
    yield paragraph("In Python, from this folder, use either line:")
    yield code(
        "import duckdb; rows = duckdb.read_parquet('data/*.parquet')",
        "import pandas; rows = pandas.read_parquet('data')",
    )


def receipt(statement: Statement) -> Iterator[Markup]:
    """Yield how to check the release against the ledger."""
    yield heading("How to check the receipt")
    yield paragraph(
        "Every charge is recorded in a ledger whose events form a hash chain. The head below identifies the whole history up to this "
        "release. Anyone with access to the ledger can run this command from this folder. It checks that the ledger still holds that "
        "history, and recomputes every price in it:"
    )
    yield code(f"dpflow ledger verify --releases . --head {statement.ledger_head}")
    rows = [
        ("ledger", statement.ledger),
        ("ledger head", statement.ledger_head),
        ("sha256 of the spec", statement.spec_sha256),
        ("made by", ", ".join(f"{name} {number}" for name, number in statement.versions.items())),
    ]
    yield table("The receipt", ("what", "value"), rows)


def parts(added: Sequence[Mapping[str, Any]]) -> Iterator[Markup]:
    """Yield the releases that a merged release is the sum of. The ledger has recorded these, not the sum."""
    yield heading("What was added")
    yield paragraph(
        "This release was computed from the published releases below, whose blocks are disjoint. Nothing was charged for it. Its model was "
        "fitted to the sums of their measurements. The ledger has recorded each of them, and each can be checked by its own card."
    )
    rows = [
        (release["release"], ", ".join(release["blocks"]), at_most(release["epsilon"]), release["manifest_sha256"])
        for release in added
    ]
    yield table("The releases", ("release", "blocks", "epsilon", "sha256 of its manifest"), rows)


def _values(attribute: Attribute) -> str:
    if attribute.size > _MOST_CELLS:
        return f"{attribute.size:,} cells"
    labels = attribute.labels
    if len(labels) <= _MOST_LABELS:
        return ", ".join(labels)
    return f"{labels[0]}, {labels[1]}, … {labels[-1]}: {len(labels):,} cells"

"""The second part of the card: what is promised, and what was protected."""

import math
from collections.abc import Iterator

from dpcore.release.card.elements import Markup, heading, paragraph, table
from dpcore.release.statement import Statement
from dpcore.reporting.formatting import at_most, up


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

"""Warn about questionable choices in a valid spec. The warnings follow from the declarations alone; no data is read."""

import re
from collections.abc import Iterator

from dpcore.spec.declaration import Declaration
from dpcore.universe import Attribute, Categorical, Integer
from dpcore.universe.leaves import Fine
from dpcore.universe.numeric import UnevenInteger

MOST_DELTA = 1e-3
MOST_EPSILON = 20
DELTA_TIMES_ROWS = 0.1
"""Delta counts as far below one over the number of rows if delta times rows is below this."""
FEW_CELLS = 50
"""A column with fewer cells than this cannot identify people, whatever its name."""
MANY_VALUES = 10_000
ROWS_PER_VALUE = 0.5
"""A column with more values than this share of the rows has a value of its own for most people."""
MANY_NUMBERS = 100_000

_ID_WORD = re.compile(
    "ids?|uid|uuid|guid|identifier|ssn|sin|nino|nhs|mrn|passport|licen[cs]e|plate|iban|e?mail|phone|telephone|mobile|cell|fax|"
    "names?|firstname|lastname|surname|forename|fullname|username|login|address|street|ip|mac|imei|serial|token"
)
_PERSON = "patient|person|customer|user|participant|respondent"
_NAME_OF_UNIT = re.compile(
    rf"(.* )?(ids?|uid|uuid|guid|pid|identifier|ssn|nino|nhs|mrn|{_PERSON}|({_PERSON}) (nr|nbr|no|num|number|key|code|ref|hash))"
)


def advice(declaration: Declaration) -> tuple[str, ...]:
    """Return warnings about a delta or epsilon that protects little, and about columns that look like ids."""
    privacy = declaration.spec.privacy
    said = budget_advice(epsilon=privacy.epsilon, delta=privacy.delta, expect_rows=privacy.expect_rows)
    return (*said, *_about_columns(declaration))


def looks_like_id(name: str) -> bool:
    """Return whether a column's name contains a word that is typical of ids and other identifying data.

    >>> [name for name in ("patientID", "e-mail", "valid", "paid", "last_name", "humidity") if looks_like_id(name)]
    ['patientID', 'e-mail', 'last_name']
    """
    return any(map(_ID_WORD.fullmatch, _words(name)))


def names_unit(name: str) -> bool:
    """Return whether a column has the name of an id, or of a person: only such a column is proposed as the unit to protect.

    >>> [name for name in ("patientID", "PID", "user", "customer_no", "Street", "last_name", "user_agent") if names_unit(name)]
    ['patientID', 'PID', 'user', 'customer_no']
    """
    return _NAME_OF_UNIT.fullmatch(" ".join(_words(name))) is not None


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name.replace("e-mail", "email"))]


def budget_advice(*, epsilon: float, delta: float, expect_rows: tuple[int, int] | None = None) -> Iterator[str]:
    """Yield warnings about a spec's or account's delta or epsilon if it protects little."""
    if delta > MOST_DELTA:
        yield (
            f"`delta` is {delta!r}: each person may be exposed with that probability; choose one far below one over the number "
            "of people, such as 1e-9"
        )
    elif expect_rows is not None and delta * expect_rows[1] > DELTA_TIMES_ROWS:
        yield (
            f"`delta` is {delta!r}, which is not far below one over the expected {expect_rows[1]:,} rows; "
            f"write {DELTA_TIMES_ROWS / 100 / expect_rows[1]:.0e} or less"
        )
    if epsilon > MOST_EPSILON:
        yield (
            f"`epsilon` is {epsilon!r}, which hardly limits what a release reveals about one person; 1 is usual, {MOST_EPSILON} is already weak"
        )


def suspected_ids(declaration: Declaration, *, rows: int | None) -> dict[str, str]:
    """Return the columns that look like ids, each with the reason. The declaration tells, by name and by number of cells.

    Args:
        declaration: The declaration of the run.
        rows: The fewest rows that the table may have; None if nobody has said.
    """
    suspected, discovered = {}, declaration.descents()
    for name, attribute in declaration.universe.attributes.items():
        why = _why_an_id(name, attribute, discovered=name in discovered)
        if why is None and rows is not None:
            why = _as_many_as_rows(attribute, rows)
        if why is not None:
            suspected[name] = why
    return suspected


def _about_columns(declaration: Declaration) -> Iterator[str]:
    expected = declaration.spec.privacy.expect_rows
    for name, why in suspected_ids(declaration, rows=None if expected is None else expected[0]).items():
        yield f"`{name}` looks like an id: {why}; leave columns that identify people out of the universe, or declare coarser cells"


def _as_many_as_rows(attribute: Attribute, rows: int) -> str | None:
    """Return the reason if the column has about as many values as the table has rows."""
    if not isinstance(attribute, Categorical) or attribute.cells < max(FEW_CELLS, ROWS_PER_VALUE * rows):
        return None
    return f"it has {attribute.cells:,} values, about as many as there may be rows"


def _why_an_id(name: str, attribute: Attribute, *, discovered: bool) -> str | None:
    if looks_like_id(name) and attribute.cells >= FEW_CELLS:
        up_to = "up to " if discovered else ""
        return f"it has the name of one, and {up_to}{attribute.cells:,} cells"
    if isinstance(attribute, Categorical) and attribute.cells >= MANY_VALUES:
        return f"it has {attribute.cells:,} values"
    plain = isinstance(attribute, Integer) and not isinstance(attribute, UnevenInteger | Fine)
    if plain and attribute.cells >= MANY_NUMBERS and attribute.width == 1:  # type: ignore[attr-defined]
        return f"it has {attribute.cells:,} cells of one number each"
    return None

"""Likely causes why a table has other rows or values than its spec says, from the spec alone."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from dpcore.reporting.formatting import some_of
from dpcore.spec import Declaration
from dpcore.universe import Attribute, Boolean, Categorical, Date, Datetime, Outside
from dpcore.universe.constraints import Violations
from dpcore.universe.dependencies import Depends


def causes_of_column(attribute: Attribute) -> Iterator[str]:
    """Yield why values of a column may not be declared ones."""
    if isinstance(attribute, Date | Datetime):
        if attribute.formats:
            yield "the dates in the table do not have the declared `format`"
        else:
            yield "the values are read as ISO dates such as 2025-01-31: if the table has another format, declare `format`"
    elif isinstance(attribute, Categorical):
        blanks = "with blanks at their ends, which `match: exact` compares, " if attribute.exact else ""
        yield f"the table writes the values otherwise than `values` lists them, such as {blanks}in upper or lower case, or with other characters"
    elif isinstance(attribute, Boolean):
        yield "the table writes true and false in another way than true, t, yes, y, 1 and false, f, no, n, 0"
    else:
        yield "the table writes the numbers otherwise than 1234.5, such as with a unit or a comma"
    if attribute.ordered and attribute.outside is not Outside.CLIP:
        yield "the values lie outside of `min` and `max`"
    if attribute.nulls:
        yield "one of `nulls` is a value"


def causes_of_few_rows(declaration: Declaration) -> Iterator[str]:
    """Yield why fewer rows may count than expected."""
    columns, privacy = declaration.universe.attributes, declaration.spec.privacy
    dropping = [name for name, attribute in columns.items() if attribute.outside is Outside.DROP]
    strict = [
        name for name, attribute in columns.items() if attribute.outside is Outside.CLIP and not attribute.missing
    ]
    columns_of = defaultdict[str, list[str]](list)
    for name in (*dropping, *strict):
        for cause in causes_of_column(columns[name]):
            columns_of[cause].append(name)
    if dropping:
        yield f"a row is dropped if its value of {_named(dropping)} is not declared (`outside: drop`)"
    if strict:
        yield f"a row is dropped if its value of {_named(strict)} is null or unreadable (no `missing: true`)"
    yield from (f"{_named(names)}: {cause}" for cause, names in columns_of.items())
    constrained = [
        column
        for constraint in declaration.universe.constraints
        if constraint.violations is Violations.DROP and not isinstance(constraint, Depends)
        for column in constraint.columns
    ]
    if constrained:
        named = _named(list(dict.fromkeys(constrained)))
        yield f"a row is dropped if it contradicts a constraint on {named} (write `violations: repair` to keep it)"
    calendar = declaration.calendar
    if calendar is not None:
        how = "in ISO form" if not calendar.formats else "in the declared `format`"
        yield f"only rows whose `{calendar.column}` is a day {how} within the blocks that were read count"
    if privacy.unit != "row":
        limit = declaration.protection.rows_per_unit
        yield f"at most {limit:,} row{'s' if limit > 1 else ''} of each `{privacy.unit}` count, and none without one"
    if privacy.weight is not None:
        yield f"a row counts as often as `{privacy.weight.column}` says, and not at all if that is not a number of 1 or more"
    yield _source(declaration) + " may hold fewer rows than you think"


def causes_of_many_rows(declaration: Declaration) -> Iterator[str]:
    """Yield why more rows may count than expected."""
    privacy = declaration.spec.privacy
    if privacy.weight is not None:
        yield f"a row counts as often as `{privacy.weight.column}` says, at most {privacy.weight.max:,} times"
    yield _source(declaration) + " may hold more rows than you think, or some of them twice"


def _source(declaration: Declaration) -> str:
    source = declaration.spec.source
    if source.sql is not None:
        return "the result of `sql`"
    return "the table" if source.path is None else "the files of `source`"


def _named(columns: Sequence[str]) -> str:
    return some_of([f"`{name}`" for name in columns], joint="or", most=5)

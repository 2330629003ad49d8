"""Divide a condition into disjoint boxes, in each of which every column satisfies a condition of its own.

A model is restricted column by column without becoming larger. `and` of conditions on single columns is one box. `or` needs more: `a or b` is
the box where a holds, and the box where b holds but a does not. One column after the other is decided: for each combination of truths that
its elementary conditions have somewhere, the rest of the condition is a shorter one about the other columns.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.answers.cells import Column, Floats
from dpcore.answers.query import All, Always, AnyOf, Condition, IsTrue, Not, leaves
from dpcore.errors import UsageError

MOST_BOXES = 1024

Pieces = npt.NDArray[np.bool_]
"""Whether each piece of a column is allowed."""

Box = Mapping[int, Pieces]
"""What is allowed in some columns, by their positions. All other columns are free."""


def boxes_of(condition: Condition, column: Callable[[int], Column]) -> tuple[Box, ...]:
    """Return disjoint boxes that together are where a condition is true.

    Args:
        condition: The condition.
        column: Returns a column by its position, divided where the condition changes.

    Raises:
        UsageError: If there are too many boxes.
    """
    boxes = tuple(islice(_divided(reduced(condition), column, {}), MOST_BOXES + 1))
    if len(boxes) > MOST_BOXES:
        raise UsageError(
            f"the condition joins too many columns with `or`: it has more than {MOST_BOXES:,} combinations; use fewer of them at once"
        )
    return boxes


def _divided(condition: Condition, column: Callable[[int], Column], box: Box) -> Iterator[Box]:
    if isinstance(condition, Always):
        if condition.truth:
            yield box
        return
    parts = [part for part in leaves(condition) if not isinstance(part, Always)]
    axis = parts[0].term.column
    parts = list(dict.fromkeys(part for part in parts if part.term.column == axis))
    by_part = np.stack([column(axis).truths(part) for part in parts], axis=1)
    truths, kind = np.unique(by_part, axis=0, return_inverse=True)
    allowed: dict[Condition, Pieces] = {}
    for number, row in enumerate(truths.tolist()):
        rest = reduced(condition, dict(zip(parts, row, strict=True)))
        allowed[rest] = allowed.get(rest, False) | (kind.ravel() == number)
    for rest, pieces in allowed.items():
        yield from _divided(rest, column, {**box, axis: pieces})


def reduced(condition: Condition, truths: Mapping[Any, int] | None = None, *, unknown: bool = False) -> Condition:
    """Return a condition that is true for the same rows, as short as the known truths of some elementary conditions allow.

    What is unknown is no reason to count a row. So it is false, and true within `not`.

    >>> from dpcore.answers.query import IsNull, Term
    >>> one, other = IsNull(Term(0)), IsNull(Term(1))
    >>> reduced(AnyOf((Not(one), All((one, other)))), {one: 2})
    IsNull(term=Term(column=1, transform=None))

    Args:
        condition: The condition.
        truths: 0 for each elementary condition that is false, 1 if it is unknown, and 2 if it is true.
        unknown: What is the same as unknown here.
    """
    match condition:
        case Not(part):
            inner = reduced(part, truths, unknown=not unknown)
            return Always(truth=not inner.truth) if isinstance(inner, Always) else Not(inner)
        case IsTrue(part):
            inner = reduced(part, truths)
            return IsTrue(inner) if unknown and not isinstance(inner, Always) else inner
        case All(parts) | AnyOf(parts):
            neutral, deciding = Always(truth=isinstance(condition, All)), Always(truth=isinstance(condition, AnyOf))
            short = (reduced(part, truths, unknown=unknown) for part in parts)
            left = tuple(part for part in short if part != neutral)
            if deciding in left or not left:
                return deciding if left else neutral
            return left[0] if len(left) == 1 else type(condition)(left)
    truth = (truths or {}).get(condition)
    return condition if truth is None else Always(truth=unknown if truth == 1 else truth == 2)


def weights_of(column: Column, allowed: Pieces) -> Floats:
    """Return the share of each cell of a column that is allowed: exactly 1 if all of it is."""
    size = column.attribute.size
    inside = np.bincount(column.cell, weights=np.where(allowed, column.share, 0.0), minlength=size)
    outside = np.bincount(column.cell, weights=np.where(allowed, 0.0, column.share), minlength=size)
    return np.where(outside > 0, inside, np.where(inside > 0, 1.0, 0.0))

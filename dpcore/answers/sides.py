"""How far numbers may be off to either side for one reason, and what that makes of numbers that are computed from them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpcore.answers.evaluate import combined
from dpcore.answers.query import Aggregate, Arithmetic, Count, Number, Sum
from dpcore.answers.shares import is_share
from dpcore.models.model import Weights

Values = Mapping[Aggregate, Weights]


@dataclass(frozen=True, eq=False)
class Sides:
    """The squares of how far the number of each group may be too high, and too low. Those of independent reasons add up."""

    below: Weights
    above: Weights

    @classmethod
    def none(cls, groups: int) -> "Sides":
        """Return those of numbers that this is no reason to doubt."""
        return cls(np.zeros(groups), np.zeros(groups))

    @classmethod
    def of(cls, changes: Weights) -> "Sides":
        """Return those of numbers that change by one of several amounts, each in a row."""
        return cls(np.minimum(changes, 0.0).min(axis=0) ** 2, np.maximum(changes, 0.0).max(axis=0) ** 2)

    def __add__(self, more: "Sides") -> "Sides":
        return Sides(self.below + more.below, self.above + more.above)

    def times(self, factor: float) -> "Sides":
        """Return those of numbers that are off so many times as far."""
        return Sides(factor**2 * self.below, factor**2 * self.above)

    @property
    def largest(self) -> Weights:
        """How far each number may be off at most."""
        return np.sqrt(np.maximum(self.below, self.above))

    def or_larger(self, more: "Sides") -> "Sides":
        """Return the larger one of each side, for two reasons that explain the same error."""
        return Sides(np.maximum(self.below, more.below), np.maximum(self.above, more.above))


def carried(number: Number, values: Values, moves: Iterable[Sequence[Values]], *, groups: int) -> Sides:
    """Return how far a number may be off because the aggregates that it is computed from may be.

    Args:
        number: The number.
        values: The values of its aggregates.
        moves: For each of some independent reasons, the values that they may have instead.
        groups: The number of groups.
    """
    usual, sides = combined(number, values.__getitem__, groups=groups), Sides.none(groups)
    for cases in moves:
        numbers = [combined(number, case.__getitem__, groups=groups, overall=values.__getitem__) for case in cases]
        sides += Sides.of(np.nan_to_num(np.array(numbers) - usual))
    return sides


def moved(number: Number, values: Values, sides: Mapping[Count | Sum, Sides]) -> Iterator[Sequence[Values]]:
    """Yield the values of a number's aggregates with counts that have moved for one reason, to either side.

    A share's two counts often count the same values of a leaf. Then they move together, as far as both of them may.

    Args:
        number: The number.
        values: The values of its aggregates.
        sides: How far each of its counts and sums may move.
    """
    match number:
        case Arithmetic("/", Count() as part, Count() as whole) if is_share(number) and part != whole:
            ways = []
            for sign, of_part, of_whole in (
                (-1, sides[part].below, sides[whole].below),
                (1, sides[part].above, sides[whole].above),
            ):
                both = np.minimum(of_part, of_whole)
                cases = []
                for part_moves, whole_moves in ((of_part - both, 0.0), (0.0, of_whole - both), (both, both)):
                    count = np.maximum(values[part] + sign * np.sqrt(part_moves), 0.0)
                    rows = np.maximum(values[whole] + sign * np.sqrt(whole_moves), count)
                    cases.append({**values, part: count, whole: rows})
                ways.append(cases)
            yield from zip(*ways, strict=True)
        case _:
            for aggregate, own in sides.items():
                less, more = values[aggregate] - np.sqrt(own.below), values[aggregate] + np.sqrt(own.above)
                less = np.maximum(less, 0.0) if isinstance(aggregate, Count) else less
                yield {**values, aggregate: less}, {**values, aggregate: more}

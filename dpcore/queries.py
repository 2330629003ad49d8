"""What an analyst will ask: marginals of the universe, and workloads of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Workload:
    """The marginals that matter, each as the sorted indices of its attributes in the universe.

    >>> Workload.all_of(attributes=3, order=2).marginals
    ((0, 1), (0, 2), (1, 2))
    """

    marginals: tuple[Axes, ...]

    @classmethod
    def all_of(cls, *, attributes: int, order: int) -> "Workload":
        """Return all marginals of `order` attributes; of all attributes, if there are fewer."""
        return cls(tuple(combinations(range(attributes), min(order, attributes))))

    @classmethod
    def of(cls, marginals: Iterable[Iterable[int]]) -> "Workload":
        """Return the listed marginals, each once."""
        return cls(tuple(dict.fromkeys(tuple(sorted(set(marginal))) for marginal in marginals)))

    def candidates(self) -> dict[Axes, int]:
        """Return every marginal worth measuring, and its weight: all parts of the workload's marginals.

        A marginal's weight is the number of attributes it shares with each marginal of the workload, added up: what is
        measured helps every query that it overlaps (McKenna et al. 2022, AIM, section 4).

        >>> Workload.of([(0, 1)]).candidates()
        {(0,): 1, (1,): 1, (0, 1): 2}
        """
        parts = {
            part for axes in self.marginals for size in range(1, len(axes) + 1) for part in combinations(axes, size)
        }
        sets = [frozenset(axes) for axes in self.marginals]
        return {
            part: sum(len(axes.intersection(part)) for axes in sets)
            for part in sorted(parts, key=lambda p: (len(p), p))
        }

"""What an analyst will ask: marginals of the universe, and workloads of them."""

from collections import Counter
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

    def weighted_parts(self) -> dict[Axes, int]:
        """Return every part of the workload's marginals, and in how many of them it lies.

        >>> Workload.all_of(attributes=3, order=2).weighted_parts()[(0,)]
        2
        """
        return dict(
            Counter(
                part for axes in self.marginals for size in range(1, len(axes) + 1) for part in combinations(axes, size)
            )
        )

    def parts(self) -> tuple[Axes, ...]:
        """Return every marginal that says something about one of the workload's: all their parts, smaller ones first.

        >>> Workload.of([(0, 1)]).parts()
        ((0,), (1,), (0, 1))
        """
        return tuple(sorted(self.weighted_parts(), key=lambda part: (len(part), part)))

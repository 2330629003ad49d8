"""Divide synthetic rows into synthetic persons: by how many rows persons have, and so that constant columns are constant.

The rows are those that the model has drawn. None is added, removed or changed, so all that is true of the rows stays true. Rows that
agree in all constant columns form a group, and each person gets rows of one group. Where the groups are large, the numbers of rows per
person follow the learned distribution exactly, up to rounding. A group with fewer rows than a person should have gets a smaller person.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.marginals.measurements import LEAST_NOISE
from dpcore.marginals.shrinkage import project, shrunk
from dpcore.models.exchange import numbered
from dpcore.models.model import RowCodes

Numbers = NDArray[np.int64]
Shares = NDArray[np.float64]


def size_ends(limit: int) -> tuple[int, ...]:
    """Return the most rows of each class of sizes, up to a limit on the rows of a person.

    The classes are wider where sizes are large. The limit is a class of its own: there are all persons who have more rows than are kept.

    >>> size_ends(1), size_ends(4), size_ends(20)
    ((1,), (1, 2, 3, 4), (1, 2, 4, 8, 16, 19, 20))
    """
    powers = [1 << power for power in range(limit.bit_length()) if 1 << power < limit - 1]
    return tuple(sorted({*powers, max(1, limit - 1), limit}))


@dataclass(frozen=True)
class NoisyPersons:
    """Noisy numbers of persons, with the standard deviation of their noise."""

    numbers: tuple[int, ...]
    noise: float


@dataclass(frozen=True)
class PersonSizes:
    """How many rows persons have, by two measurements: the persons of each size, and of each class of sizes.

    The sum of many noisy numbers is far noisier than one number, and one number says nothing about sizes within its class. So both are
    measured, and `shares` combines them.

    Attributes:
        by_size: The numbers of persons with 1, 2, ... rows, up to the limit on the rows of a person.
        by_class: The numbers of persons in each class of sizes, as `size_ends` says.
    """

    by_size: NoisyPersons
    by_class: NoisyPersons

    @classmethod
    def of_one(cls) -> "PersonSizes":
        """Return the sizes of persons who have one row each, which needs no measurement."""
        exact = NoisyPersons((1,), noise=LEAST_NOISE)
        return cls(exact, exact)

    @property
    def limit(self) -> int:
        """The most rows of a person."""
        return len(self.by_size.numbers)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, such as 1, 2, 3-4 and 5."""
        bounds = pairwise((0, *size_ends(self.limit)))
        return tuple(f"{high}" if high == low + 1 else f"{low + 1}-{high}" for low, high in bounds)

    def shares(self) -> Shares:
        """Return the share of persons with 1, 2, ... rows.

        Each class has the mean of what both measurements say, weighted by their precision. Within a class, sizes are equally frequent
        except as far as the differences between them stand out of the noise. None is negative.

        >>> noisy = NoisyPersons((50, 30, 90, 10, -3), noise=2.0), NoisyPersons((52, 29, 101, 1), noise=2.0)
        >>> PersonSizes(*noisy).shares().round(2).tolist()
        [0.28, 0.16, 0.5, 0.06, 0.0]
        """
        ends = size_ends(self.limit)
        sizes = np.array(self.by_size.numbers, dtype=np.float64)
        noise, class_noise = max(self.by_size.noise, LEAST_NOISE), max(self.by_class.noise, LEAST_NOISE)
        widths = np.diff((0, *ends))
        precise = 1 / class_noise**2, 1 / (widths * noise**2)
        summed = np.add.reduceat(sizes, (0, *ends[:-1]))
        totals = (precise[0] * np.array(self.by_class.numbers) + precise[1] * summed) / (precise[0] + precise[1])
        totals = project(totals, max(float(totals.sum()), 1.0))
        parts = (
            project(total / width + shrunk(sizes[end - width : end], variance=noise**2), total)
            for total, width, end in zip(totals.tolist(), widths.tolist(), ends, strict=True)
        )
        shares: Shares = np.concatenate(list(parts))
        shares /= shares.sum()
        return shares

    def in_classes(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Sum numbers by size over each class."""
        return np.add.reduceat(numbers, (0, *size_ends(self.limit)[:-1]))


@dataclass(frozen=True, eq=False)
class Division:
    """Rows divided into persons: the rows in their new order, and the number of rows of each person."""

    order: Numbers
    sizes: Numbers

    @property
    def firsts(self) -> Numbers:
        """The position of each person's first row in the new order."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def persons(self) -> Numbers:
        """The person of each row in the new order, counted from 0."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def divide(codes: Sequence[RowCodes], *, constant: Sequence[int], shares: Shares, rng: np.random.Generator) -> Division:
    """Divide rows into persons. The rows of a person agree in the constant columns and are next to each other.

    Args:
        codes: The rows, one array for each column, in random order.
        constant: The positions of the constant columns.
        shares: The wanted share of persons with 1, 2, ... rows.
        rng: Draws which group a person gets its rows from, and the order of the persons.
    """
    columns = ((codes[axis], int(codes[axis].max(initial=0)) + 1) for axis in constant)
    groups = np.unique(numbered(columns, len(codes[0])), return_inverse=True)[1]
    order = np.argsort(groups, kind="stable")
    sizes = _sizes(np.bincount(groups).astype(np.int64), shares, rng=rng)
    starts = np.cumsum(sizes) - sizes
    shuffled = rng.permutation(len(sizes))
    sizes, starts = sizes[shuffled], starts[shuffled]
    places = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(len(order))
    return Division(order[places], sizes)


def _sizes(room: Numbers, shares: Shares, *, rng: np.random.Generator) -> Numbers:
    """Return the sizes of the persons of each group, group after group, which add up to the rows of the group.

    The largest persons are placed first, since they fit into few groups, and the smallest fill what is left. Persons of one size are
    spread in proportion to the rows that the groups have left. What cannot be placed is passed on to the next smaller size.
    """
    room, rows = room.copy(), int(room.sum())
    persons = rows / float(shares @ np.arange(1, len(shares) + 1)) * shares
    owners, sizes, owed = [], [], 0.0  # owed: rows that larger persons should have had
    for size in range(len(shares), 0, -1):
        owed += size * float(persons[size - 1])
        number = int(room.sum()) if size == 1 else math.floor(owed / size + 1e-9)
        if number:
            placed = _spread(number, room // size, weights=room, rng=rng)
            room -= size * placed
            owed -= size * int(placed.sum())
            owners.append(np.repeat(np.arange(len(room)), placed))
            sizes.append(np.full(int(placed.sum()), size, dtype=np.int64))
    if not owners:
        return np.zeros(0, dtype=np.int64)
    return np.concatenate(sizes)[np.argsort(np.concatenate(owners), kind="stable")]


def _spread(number: int, capacity: Numbers, *, weights: Numbers, rng: np.random.Generator) -> Numbers:
    """Spread persons over groups in proportion to weights, at most as many in each as it has capacity for."""
    placed = np.zeros_like(capacity)
    for _ in range(4):  # until full groups make it pointless
        left, spare = number - int(placed.sum()), capacity - placed
        ends = np.cumsum(np.where(spare > 0, weights, 0))
        if not left or not ends[-1]:
            return placed
        positions = (np.arange(left) + rng.random()) * (int(ends[-1]) / left)
        groups = np.searchsorted(ends, np.minimum(positions, np.nextafter(float(ends[-1]), 0.0)), side="right")
        placed += np.minimum(np.bincount(groups, minlength=len(capacity)), spare)
    order = rng.permutation(len(capacity))
    spare = (capacity - placed)[order]
    before = np.cumsum(spare) - spare
    placed[order] += np.clip(number - int(placed.sum()) - before, 0, spare)
    return placed

"""A noisy count of the rows that have a property."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from dpcore.mechanisms.bounded_rows import Column, Mask, Wholes, kept_rows
from dpcore.mechanisms.query import Exact, NoisyNumbers, Query
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection, Sensitivity
from dpcore.tables.reading.encoding import encode, reads
from dpcore.universe import Boolean

MOST_TARGET = 1 << 60
"""The most rows that a count can be compared with."""

_TRUTH = Boolean()


@dataclass(frozen=True, kw_only=True)
class NoisyCount(NoisyNumbers, Query[int]):
    """Count the rows that have a property, with noise.

    >>> from dpcore.privacy.protection import Neighbours
    >>> patients = Protection(unit="patient", rows_per_unit=2, neighbours=Neighbours.ADD_REMOVE)
    >>> count = NoisyCount.for_epsilon(1.0, delta=0, protection=patients)
    >>> count.sensitivity.l1, count.scale, count.price(Currency.PURE)
    (2, 2.0, 1000000000000)

    Guarantee:
        That of its noise on one whole number: pure epsilon for discrete Laplace, rho for the Gaussian ones, mu^2 for the
        rounded one.

    Sensitivity:
        The most that a unit counts, m = k w for k rows that count up to w each, under either relation: replacing a unit
        takes at most m away and adds at most m. This mechanism enforces the bound of k rows itself, among the rows that
        have the property.

    Randomness:
        The operating system's, through `entropy`, for the noise and for which rows of a unit are kept.

    Reference:
        Dwork, McSherry, Nissim and Smith 2006.

    Attributes:
        noise: The kind of noise.
        scale: The scale, or sigma, of the noise.
        protection: The unit to protect, and the neighbouring relation.
    """

    name: ClassVar[str] = "noisy-count"
    otherwise: ClassVar[str] = "keep fewer rows per unit"

    protection: Protection

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, protection: Protection) -> Self:
        """Return the count with the least noise that costs at most `amount`."""
        return cls._bought(amount, currency=currency, protection=protection)

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one neighbour step can move the count."""
        return self.protection.count_sensitivity

    def read(self, property_of_rows: Column, *, ids: Column = None, weights: Column = None) -> Exact:
        """Return the exact number of rows, bounded by unit, for `answer` to add noise. Raise for unusable columns.

        Args:
            property_of_rows: Whether each row has the property, such as `table["age"] >= 65`. A null counts as false.
            ids: The unit id of each row. Required if the unit is a person, rejected if it is a row.
            weights: How often each row counts. Required if the protection names a weight column, rejected otherwise.
        """
        return counts_of([property_of_rows], protection=self.protection, ids=ids, weights=weights)

    def answer(self, exact: Exact) -> int:
        """Return the number with its noise."""
        return int(self.on_numbers.draw(exact.for_noise())[0])


def counts_of(properties: Iterable[Column], *, protection: Protection, ids: Column, weights: Column) -> Exact:
    """Return the exact number of rows with each property. Of these rows, each unit keeps at most as many as declared."""
    kept = (
        kept_rows(column, reads=partial(reads, _TRUTH), code=_has, protection=protection, ids=ids, weights=weights)
        for column in properties
    )
    return Exact(np.array([times.sum() for _, times in kept], dtype=np.int64), protection=protection)


def _has(part: pa.Array) -> tuple[Wholes, Mask]:
    has = encode(_TRUTH, part) == 1
    return has.astype(np.int64), has

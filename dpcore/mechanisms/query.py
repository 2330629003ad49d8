"""Queries: a statistic of a private table, bounded by unit, with the noise that its sensitivity needs."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar

from dpcore.mechanisms.descriptions import checked_protection
from dpcore.mechanisms.mechanism import Mechanism
from dpcore.mechanisms.noise import KIND_OF_NOISE, LEAST_NOISE, Noise, bought_noise
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection, Sensitivity
from dpcore.private import Private

Answer = TypeVar("Answer")

COARSER = "choose a coarser step"


class Exact(Private):
    """The exact answer to a query, before its noise: private, and used only by the query that computed it.

    Attributes:
        protection: The protection that bounded the rows behind it. It is public.
    """

    __slots__ = ("_answer", "protection")

    def __init__(self, answer: Any, *, protection: Protection) -> None:
        self._answer = answer
        self.protection = protection

    def for_noise(self) -> Any:
        """Return the exact answer, for a mechanism to add its noise. It is private and must not be shown."""
        return self._answer


class Query(Mechanism, Generic[Answer]):
    """A mechanism that reads a table, keeps no more rows of a unit than its protection declares, and adds noise in a separate step."""

    protection: Protection

    def __post_init__(self) -> None:
        """Validate the protection before any draw."""
        checked_protection(self.protection)

    def draw(self, *columns: Any, **ids_and_weights: Any) -> Answer:
        """Return the answer with its noise. The arguments are those of `read`."""
        return self.answer(self.read(*columns, **ids_and_weights))

    @abstractmethod
    def read(self, *args: Any, **kwargs: Any) -> Exact:
        """Return the exact answer, for `answer` to add noise. Raise for unusable columns.

        Args:
            args: The private columns.
            kwargs: `ids`, the unit id of each row: required if the unit is a person, rejected if it is a row. And `weights`, how often
                each row counts: required if the protection names a weight column, rejected otherwise.
        """

    @abstractmethod
    def answer(self, exact: Exact) -> Answer:
        """Return the answer with its noise."""


@dataclass(frozen=True, kw_only=True)
class NoisyNumbers(Mechanism):
    """A mechanism that adds noise of one kind and one scale to whole numbers, for a sensitivity that it derives from its declaration.

    Attributes:
        noise: The kind of noise.
        scale: The scale, or sigma, of the noise, in the unit of the whole numbers.
    """

    otherwise: ClassVar[str]
    """What else would help if an amount is too small."""

    noise: Shape
    scale: float

    def __post_init__(self) -> None:
        """Validate the noise before any draw."""
        super().__post_init__()
        self._normalise(noise=Shape(self.noise))
        self._normalise(scale=self.on_numbers.scale)

    @classmethod
    def _bought(cls, amount: int, *, currency: Currency, **declared: Any) -> Self:
        """Return the mechanism with the least noise that costs at most `amount`."""
        kind = LEAST_NOISE[Currency(currency)]
        draft = cls(noise=kind.shape, scale=1.0, **declared)
        return replace(
            draft,
            scale=bought_noise(amount, currency=currency, sensitivity=draft.sensitivity, otherwise=cls.otherwise).scale,
        )

    @property
    @abstractmethod
    def sensitivity(self) -> Sensitivity:
        """How far one neighbour step can move the numbers."""

    @cached_property
    def on_numbers(self) -> Noise:
        """The noise on the whole numbers."""
        return KIND_OF_NOISE[self.noise](scale=self.scale, sensitivity=self.sensitivity)

    @property
    def standard_deviation(self) -> float:
        """The noise's standard deviation, in the answer's own unit."""
        return self.on_numbers.standard_deviation

    def price(self, currency: Currency) -> int:
        """Return the price of one draw over all numbers, as an amount."""
        return self.on_numbers.price(currency)

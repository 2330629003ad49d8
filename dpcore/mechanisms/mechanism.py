"""What every mechanism has: parameters that are described and read back, a price, and the least noise that a promise allows."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, Self, get_type_hints

from dpcore.mechanisms.descriptions import Description, Form, form_of
from dpcore.privacy.accounting import Currency, budget_of


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """A statistic with its noise. Its fields are its public parameters, and its price is separate from its draw.

    A ledger row describes all fields but those that are not compared, which a price does not need: they are read back as None.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:  # noqa: B027  a mechanism may have nothing to validate
        """Validate the parameters before any draw."""

    @classmethod
    def for_amount(cls, *args: Any, **parameters: Any) -> Self:
        """Return the mechanism with the least noise that costs at most an amount of a currency."""
        raise NotImplementedError

    @classmethod
    def for_epsilon(cls, epsilon: float, *, delta: float, currency: Currency | None = None, **parameters: Any) -> Self:
        """Return the mechanism with the least noise that satisfies (epsilon, delta).

        Args:
            epsilon: The epsilon to satisfy.
            delta: The delta to satisfy.
            currency: The currency of the account that pays. Without it, pure epsilon at delta 0, and zCDP otherwise.
            parameters: The other parameters of `for_amount`.
        """
        chosen, amount = budget_of(epsilon, delta=delta, currency=currency)
        return cls.for_amount(amount, currency=chosen, **parameters)

    @abstractmethod
    def price(self, currency: Currency) -> int:
        """Return the price of one draw as an amount, rounded up."""

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can recompute the price."""
        described: Description = {"name": self.name}
        for name, form in _forms(type(self)).items():
            described |= form.write(name, getattr(self, name))
        return described

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from its description."""
        forms = _forms(cls)
        return cls(
            **{
                field.name: forms[field.name].read(description, field.name) if field.name in forms else None
                for field in fields(cls)
            }
        )

    def _normalise(self, **values: object) -> None:
        """Replace fields by their checked values. Only `__post_init__` may do this."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


@lru_cache(maxsize=64)
def _forms(kind: type[Mechanism]) -> Mapping[str, Form]:
    types = get_type_hints(kind)
    return {field.name: form_of(types[field.name]) for field in fields(kind) if field.compare}

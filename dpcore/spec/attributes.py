"""The spec models of all kinds of attributes."""

from typing import Annotated

from pydantic import Field

from dpcore.spec.categories import BooleanSpec, CategoricalSpec
from dpcore.spec.days import DateSpec, DatetimeSpec, Day, Formats, Moment
from dpcore.spec.numbers import IntegerSpec, NumberSpec, Whole
from dpcore.spec.parts import Finite, SpecPart

__all__ = [
    "AttributeSpec",
    "BooleanSpec",
    "CategoricalSpec",
    "DateSpec",
    "DatetimeSpec",
    "Day",
    "Finite",
    "Formats",
    "IntegerSpec",
    "Moment",
    "NumberSpec",
    "SpecPart",
    "Whole",
]

AttributeSpec = Annotated[
    CategoricalSpec | BooleanSpec | IntegerSpec | NumberSpec | DateSpec | DatetimeSpec,
    Field(discriminator="type"),
]

"""The universe: the declared columns of a table, and total functions that map values to cells and back."""

from dpcore.universe.attribute import Attribute, Codes, Outside
from dpcore.universe.categorical import Boolean, Categorical
from dpcore.universe.numeric import Integer, Number
from dpcore.universe.places import CompactCodes, code_type
from dpcore.universe.temporal import Date, Datetime, Every
from dpcore.universe.universe import Universe

__all__ = [
    "Attribute",
    "Boolean",
    "Categorical",
    "Codes",
    "CompactCodes",
    "Date",
    "Datetime",
    "Every",
    "Integer",
    "Number",
    "Outside",
    "Universe",
    "code_type",
]

"""The universe: the declared columns of a table, their cells, and the values that are drawn from them."""

from dpcore.universe.attribute import Attribute, Codes, CompactCodes, Outside, code_type
from dpcore.universe.categorical import Boolean, Categorical
from dpcore.universe.numeric import Integer, Number
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

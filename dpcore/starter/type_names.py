"""Understand the names that descriptions give to types: of SQL, pandas, Frictionless, XML Schema, Croissant, and everyday words."""

import re

from dpcore.starter.description import Stored

_WORDS: dict[Stored, str] = {
    "boolean": "bool|boolean|logical|bit|yes/no",
    "integer": "u?int|u?int(8|16|32|64)|integer|tinyint|smallint|mediumint|bigint|hugeint|int[248]|serial|bigserial|long|short|byte|whole number|count|year|gyear|"
    "nonnegativeinteger|positiveinteger|unsignedint|unsignedlong|unsignedshort|unsignedbyte|negativeinteger|nonpositiveinteger",
    "number": "float|float(16|32|64)|double|double precision|real|number|numeric|decimal|money|continuous|float[48]",
    "date": "date|date32|date64|day",
    "datetime": "datetime|datetime64|timestamp|timestamptz|datetimetz|datetimestamp|timestamp_ntz|timestamp_tz|timestamp with(out)? time zone",
    "text": "str|string|large_string|text|char|character|varchar|nvarchar|nchar|bpchar|character varying|object|category|categorical|nominal|ordinal|factor|enum|token|normalizedstring|anyuri|uri|url",
}
_PATTERNS: dict[Stored, re.Pattern[str]] = {stored: re.compile(words) for stored, words in _WORDS.items()}


def stored_as(name: str) -> Stored | None:
    """Return the type that a name stands for; None if it is unknown.

    >>> stored_as("VARCHAR(20)"), stored_as("datetime64[ns]"), stored_as("xsd:nonNegativeInteger"), stored_as("sc:Date"), stored_as("geometry")
    ('text', 'datetime', 'integer', 'date', None)
    """
    plain = re.sub(r"\(.*?\)|\[.*?\]", "", name[:100]).strip().lower()
    plain = re.split(r"[/#]", plain)[-1] if "://" in plain else plain.rpartition(":")[2]
    return next((stored for stored, pattern in _PATTERNS.items() if pattern.fullmatch(plain.strip())), None)

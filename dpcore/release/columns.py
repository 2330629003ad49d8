"""What the spec says about its columns in words: in the footer of the rows, in the descriptors and on the card."""

from collections.abc import Mapping

import pyarrow as pa

from dpcore.spec.release import ReleaseSpec

DESCRIPTION, UNIT = "description", "unit"
"""The names that other programs have for these words. In a spec, the unit of a column is `measured_in`: `unit` is the protected one."""


def words_about(spec: ReleaseSpec) -> dict[str, dict[str, str]]:
    """Return what is said about each column of the universe, without what is not said."""
    found = {}
    for name, column in spec.universe.items():
        told = {DESCRIPTION: column.description, UNIT: getattr(column, "measured_in", None)}
        found[name] = {key: text for key, text in told.items() if text is not None}
    return found


def with_words(schema: pa.Schema, about: Mapping[str, Mapping[str, str]]) -> pa.Schema:
    """Return the schema of the rows, with the words as the metadata of its fields."""
    return pa.schema(
        [field.with_metadata(about[field.name]) if about.get(field.name) else field for field in schema],
        metadata=schema.metadata,
    )


def sentence(words: Mapping[str, str]) -> str:
    """Return the words about a column as one text; empty if there are none.

    >>> sentence({"description": "Price of the visit", "unit": "EUR"}), sentence({"unit": "EUR"}), sentence({})
    ('Price of the visit. Measured in EUR.', 'Measured in EUR.', '')
    """
    said = [words.get(DESCRIPTION, ""), f"Measured in {words[UNIT]}" if UNIT in words else ""]
    return " ".join(text if text.endswith((".", "!", "?")) else f"{text}." for text in said if text)

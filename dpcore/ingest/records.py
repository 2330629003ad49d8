"""The private table as codes of the declared universe, with no more rows of one unit than declared."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.ingest.bounding import bound_rows
from dpcore.ingest.source import Source, check_columns, check_types, read_batches
from dpcore.ingest.units import can_identify, canonical_ids, unit_codes
from dpcore.privacy import Protection
from dpcore.private import Private
from dpcore.universe import Universe

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]

UNIT_IS_ROW = "row"


class Records(Private):
    """Rows as one array of codes per attribute, each in the smallest unsigned type that its size allows."""

    __slots__ = ("_codes",)

    def __init__(self, codes: Sequence[Codes]) -> None:
        self._codes = tuple(codes)

    def codes(self, axis: int) -> Codes:
        """Return one attribute's codes, row by row: for counting on the private side only."""
        return self._codes[axis]


def code_type(size: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest unsigned type for codes of an attribute with that many cells.

    >>> code_type(256), code_type(257)
    (<class 'numpy.uint8'>, <class 'numpy.uint16'>)
    """
    if size <= 1 << 8:
        return np.uint8
    return np.uint16 if size <= 1 << 16 else np.uint32


def ingest(source: Source, *, universe: Universe, protection: Protection) -> Records:
    """Read the source's declared columns, encode them, and keep what the protection allows of each unit.

    A row that the universe's policy drops is dropped before the bounding, so that a person's k rows are rows that
    count. Either order keeps the bound: whether a row is dropped depends on that row alone, and the choice on one
    person's rows alone. For the unit `row` there is nothing to bound, and no id is read.

    Memory: a batch, the codes, and for units their ids, each distinct one once per batch.
    """
    by_row = protection.unit == UNIT_IS_ROW
    columns = universe.names if by_row else tuple(dict.fromkeys((*universe.names, protection.unit)))
    check_columns(source, columns=columns)
    reads = {name: attribute.reads for name, attribute in universe.attributes.items()}
    check_types(source, reads=reads if by_row else {protection.unit: can_identify, **reads})
    pieces: list[list[Codes]] = [[] for _ in universe.names]
    ids: list[pa.DictionaryArray] = []
    for batch in read_batches(source, columns=columns):
        codes, keep = universe.encode_rows(batch)
        for piece, code, size in zip(pieces, codes, universe.shape, strict=True):
            piece.append(code.astype(code_type(size)))
        if not by_row:
            ids.append(canonical_ids(batch.column(protection.unit)).filter(pa.array(keep)))

    joined = [_joined(piece, size=size) for piece, size in zip(pieces, universe.shape, strict=True)]
    if by_row:
        return Records(joined)
    kept = bound_rows(unit_codes(ids), rows_per_unit=protection.rows_per_unit)
    return Records([code[kept] for code in joined])


def _joined(pieces: list[Codes], *, size: int) -> Codes:
    """Join one attribute's pieces, letting go of them, so that only one attribute is ever held twice."""
    whole = np.concatenate([np.empty(0, code_type(size)), *pieces])
    pieces.clear()
    return whole

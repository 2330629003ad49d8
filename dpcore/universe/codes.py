"""The types of codes: as small as the number of cells allows."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

CompactCodes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Codes of rows that are kept."""

SignedCodes: TypeAlias = npt.NDArray[np.signedinteger[Any]]
"""Codes of rows of which some may be dropped."""


def code_type(size: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest unsigned type for codes of an attribute with that many cells.

    >>> code_type(256), code_type(257)
    (<class 'numpy.uint8'>, <class 'numpy.uint16'>)
    """
    if size <= 1 << 8:
        return np.uint8
    return np.uint16 if size <= 1 << 16 else np.uint32


def signed_type(size: int) -> type[np.signedinteger[Any]]:
    """Return the smallest signed type for codes below size and the marks below zero.

    >>> signed_type(128), signed_type(129)
    (<class 'numpy.int8'>, <class 'numpy.int16'>)
    """
    if size <= 1 << 7:
        return np.int8
    return np.int16 if size <= 1 << 15 else np.int32


def compact(codes: SignedCodes, *, size: int) -> CompactCodes:
    """Return codes of which none is negative in their unsigned type, without a copy where the width is the same."""
    kind = np.dtype(code_type(size))
    return codes.view(kind) if codes.dtype.itemsize == kind.itemsize else codes.astype(kind)

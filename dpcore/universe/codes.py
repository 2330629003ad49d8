"""The integer types of codes: the smallest that hold all codes of an attribute."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

CompactCodes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Codes of rows that are kept."""

SignedCodes: TypeAlias = npt.NDArray[np.signedinteger[Any]]
"""Codes of rows, some of which may be dropped: their codes are negative."""


def code_type(size: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest unsigned type for the codes of an attribute with `size` codes.

    >>> code_type(256), code_type(257)
    (<class 'numpy.uint8'>, <class 'numpy.uint16'>)
    """
    if size <= 1 << 8:
        return np.uint8
    return np.uint16 if size <= 1 << 16 else np.uint32


def signed_type(size: int) -> type[np.signedinteger[Any]]:
    """Return the smallest signed type for codes below `size` and for the negative places.

    >>> signed_type(128), signed_type(129)
    (<class 'numpy.int8'>, <class 'numpy.int16'>)
    """
    if size <= 1 << 7:
        return np.int8
    return np.int16 if size <= 1 << 15 else np.int32


def compact(codes: SignedCodes, *, size: int) -> CompactCodes:
    """Convert non-negative codes to their unsigned type, without a copy if the width is the same."""
    kind = np.dtype(code_type(size))
    return codes.view(kind) if codes.dtype.itemsize == kind.itemsize else codes.astype(kind)

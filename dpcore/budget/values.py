"""Values that are kept in the ledger: JSON, with arrays and bytes.

A value is read back from a ledger that others write to as well, so nothing here can run code, as a pickle would.
"""

import base64
import json
import math
from datetime import date, time
from pathlib import PurePath
from typing import Any

import numpy as np

from dpcore.errors import UsageError

_ARRAY, _BYTES = "__array__", "__bytes__"
_KINDS = "biufSU"


def to_bytes(value: object) -> bytes:
    """Write a value. Raise if reading it back would give another one.

    >>> from_bytes(to_bytes({"mean": 4.5, "quartiles": (1, 2, 3), "counts": np.array([1, 2])}))
    {'mean': 4.5, 'quartiles': [1, 2, 3], 'counts': array([1, 2])}
    """
    return json.dumps(_plain(value), separators=(",", ":"), allow_nan=True).encode("utf-8")


def from_bytes(written: bytes) -> Any:
    """Read a value back. Tuples have become lists."""
    return json.loads(written, object_hook=_restored)


def _plain(value: object) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value) and not {_ARRAY, _BYTES} & value.keys():
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, bytes):
        return {_BYTES: _as_text(value)}
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        data = np.ascontiguousarray(value).tobytes()
        return {_ARRAY: _as_text(data), "dtype": value.dtype.str, "shape": list(value.shape)}
    raise UsageError(
        "only numbers, text, bytes, arrays of these, lists and dictionaries with text as keys can be kept; return the noisy figures, or bytes"
    )


def _as_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _restored(part: dict[str, Any]) -> Any:
    if _BYTES in part:
        return base64.b64decode(part[_BYTES])
    if _ARRAY in part:
        data = base64.b64decode(part[_ARRAY])
        return np.frombuffer(data, dtype=np.dtype(part["dtype"])).reshape(part["shape"]).copy()
    return part


def arguments_text(arguments: dict[str, Any]) -> str:
    """Write the arguments of a function, by which its calls are told apart. Raise for one that is no public, plain value."""
    for name, value in arguments.items():
        try:
            _checked(value)
        except UsageError:
            raise UsageError(
                f"argument {name} is not a plain value by which this step could be found again; pass numbers, texts, paths or dates, such as "
                "the path of a table and not the table, or give the step a name"
            ) from None
    return json.dumps(arguments, sort_keys=True, default=str, separators=(",", ":"))


def _checked(value: object) -> None:
    if isinstance(value, list | tuple):
        for part in value:
            _checked(part)
    elif isinstance(value, dict) and all(isinstance(name, str) for name in value):
        _checked(list(value.values()))
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise UsageError("no finite number")
    elif not (value is None or isinstance(value, str | int | PurePath | date | time)):
        raise UsageError("no plain value")

"""Read metadata files: JSON and YAML, with the position of every part, in bounded time and memory."""

import datetime as dt
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import SpecError
from dpcore.spec.document import LARGEST_BYTES, MOST_PARTS, Document, Mistake, Place, read_document
from dpcore.starter.description import Bound

LARGEST_JSON = 8 << 20
MOST_DEPTH = 100
_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def as_bound(text: str) -> Bound | None:
    """Return the limit of a range from its text: a finite number, or the text of a date; None if there is no text.

    >>> as_bound("12"), as_bound("-0.5"), as_bound("2025-01-01"), as_bound("inf"), as_bound("")
    (12, -0.5, '2025-01-01', None, None)
    """
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else None
    return text.strip() or None


@dataclass(frozen=True)
class Node:
    """One part of a metadata file. Its methods raise an error with line and column if the part has another form."""

    document: Document
    place: Place
    data: Any

    def fail(self, message: str) -> SpecError:
        """Return an error at the position of this part."""
        self.document.mistake(self.place, message)
        mistake = self.document.mistakes[-1]
        return SpecError(f"{self.document.path}:{mistake.line}:{mistake.column}: {mistake.message}")

    def __contains__(self, key: str) -> bool:
        return isinstance(self.data, dict) and self.data.get(key) is not None

    def get(self, *keys: str) -> "Node | None":
        """Return the part below the first of these keys that this block has; None if it has none."""
        for key in keys:
            if key in self:
                return self.at(key)
        return None

    def at(self, key: str | int) -> "Node":
        """Return the part below a key that exists."""
        return Node(self.document, (*self.place, key), self.data[key])

    def items(self, what: str) -> Iterator["Node"]:
        """Yield the items of a list. `what` says what it should be, such as "a list of columns"."""
        if not isinstance(self.data, list):
            raise self.fail(f"{self.shown} must be {what}")
        for index in range(len(self.data)):
            yield self.at(index)

    def fields(self, what: str) -> Iterator[tuple[str, "Node"]]:
        """Yield the keys and parts of a block of keys."""
        for key in self.block(what).data:
            yield key, self.at(key)

    def block(self, what: str) -> "Node":
        """Return this part if it is a block of keys."""
        if not isinstance(self.data, dict):
            raise self.fail(f"{self.shown} must be {what}")
        return self

    def text(self, *keys: str) -> str:
        """Return the text at the first of these keys; empty if there is none."""
        found = self.get(*keys)
        if found is None:
            return ""
        if not isinstance(found.data, str):
            raise found.fail(f"{found.shown} must be text")
        return found.data

    def texts(self, *keys: str) -> tuple[str, ...]:
        """Return the text, or the texts of the list, at the first of these keys. What is no text is left out."""
        found = self.get(*keys)
        listed = () if found is None else found.data if isinstance(found.data, list) else (found.data,)
        return tuple(each for each in listed if isinstance(each, str))

    def name(self, *keys: str) -> str:
        """Return the name at the first of these keys, which must exist."""
        self.block("a block of keys")
        found = self.text(*keys)
        if not found:
            raise self.fail(f"`{keys[0]}` is missing; every column needs its name")
        return found

    def number(self, *keys: str) -> int | float | None:
        """Return the finite number at the first of these keys; None if there is none, or if it is something else."""
        found = self.get(*keys)
        data = None if found is None else found.data
        if isinstance(data, bool) or not isinstance(data, int | float):
            return None
        return data if abs(data) < float("inf") else None

    def bound(self, *keys: str) -> Bound | None:
        """Return the limit of a range at the first of these keys: a number, also if it is written as text, or the text of a date."""
        found = self.get(*keys)
        if found is None:
            return None
        if isinstance(found.data, dt.date):
            return found.data.isoformat()
        return as_bound(found.data) if isinstance(found.data, str) else self.number(*keys)

    def values(self, *keys: str) -> tuple[str | int | float | bool, ...] | None:
        """Return the scalars of the list at the first of these keys, without nulls; None if there is no list, or an empty one."""
        found = self.get(*keys)
        if found is None:
            return None
        kept = [each for each in found.items("a list of values") if each.data is not None]
        for each in kept:
            if not isinstance(each.data, str | int | float | bool):
                raise each.fail("a value must be text, a number or a boolean")
        return tuple(each.data for each in kept) or None

    @property
    def shown(self) -> str:
        """How a message names this part."""
        if not self.place:
            return "the file"
        last = self.place[-1]
        return f"item {last + 1}" if isinstance(last, int) else f"`{last}`"


def read_metadata(path: Path) -> Node:
    """Read a JSON or YAML file. Raise an error with line and column if it is malformed."""
    limit = LARGEST_JSON if path.suffix.lower() not in {".yaml", ".yml"} else LARGEST_BYTES
    content = read_bytes(path, limit=limit)
    is_yaml = limit == LARGEST_BYTES
    document = read_document(path) if is_yaml else _json_document(path, _decoded(path, content))
    document.raise_mistakes()
    return Node(document, (), document.data)


def read_bytes(path: Path, *, limit: int) -> bytes:
    """Read a whole metadata file of at most `limit` bytes."""
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError:
        raise SpecError(f"{path}: cannot be read; check that it exists and who may read it") from None
    if len(content) > limit:
        raise SpecError(
            f"{path}: is larger than {limit >> 20} MiB, too large for metadata; keep only the part about this table"
        )
    return content


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise SpecError(f"{path}:{line}:{column}: is not UTF-8 text; convert it to UTF-8") from None


class _Malformed(Exception):  # noqa: N818  never leaves this module
    def __init__(self, offset: int, message: str, *, remedy: str = "check quotes, commas and brackets") -> None:
        super().__init__(f"not valid JSON: {message}; {remedy}")
        self.offset = offset


def _json_document(path: Path, text: str) -> Document:
    """Parse JSON and record the position of every key and item, as the YAML reader does."""
    document = Document(path)
    reader = _JsonReader(text, document)
    try:
        document.data = reader.whole()
    except _Malformed as error:
        line, column = reader.position(error.offset)
        document.mistakes.append(Mistake(line, column, str(error)))
    return document


class _JsonReader:
    """A JSON reader that keeps positions. The standard library's decoder reads the scalars."""

    def __init__(self, text: str, document: Document) -> None:
        self.text = text
        self.document = document
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._line = 0

    def whole(self) -> Any:
        """Read the value that the text holds."""
        data, end = self.value(0, ())
        if (rest := self.skip(end)) < len(self.text):
            raise _Malformed(rest, "text after the end of the JSON value")
        return data

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, counted from 1. Offsets mostly grow, so the search begins at the last line."""
        if offset < self._starts[self._line]:
            self._line = 0
        while self._line + 1 < len(self._starts) and self._starts[self._line + 1] <= offset:
            self._line += 1
        return self._line + 1, offset - self._starts[self._line] + 1

    def skip(self, offset: int) -> int:
        """Return the offset of the next character that is no white space."""
        blank = _BLANK.match(self.text, offset)
        return blank.end() if blank else offset

    def value(self, offset: int, place: Place) -> tuple[Any, int]:
        """Read the value at an offset; return it and the offset after it."""
        start = self.skip(offset)
        positions = self.document.positions
        positions.setdefault(place, self.position(start))
        if len(place) > MOST_DEPTH or len(positions) > MOST_PARTS:
            raise _Malformed(
                start,
                f"more than {MOST_DEPTH} levels or {MOST_PARTS:,} parts",
                remedy="keep only the part about this table",
            )
        match self.text[start : start + 1]:
            case "{":
                return self._object(start + 1, place)
            case "[":
                return self._array(start + 1, place)
        return self._scalar(start)

    def _scalar(self, start: int) -> tuple[Any, int]:
        try:
            return _DECODER.raw_decode(self.text, start)
        except json.JSONDecodeError as error:
            raise _Malformed(error.pos, error.msg) from None
        except ValueError:
            raise _Malformed(start, "a number with too many digits") from None

    def _array(self, offset: int, place: Place) -> tuple[list[Any], int]:
        items: list[Any] = []
        offset = self.skip(offset)
        while self.text[offset : offset + 1] != "]":
            if items:
                offset = self._expect(",", offset)
            item, offset = self.value(offset, (*place, len(items)))
            items.append(item)
            offset = self.skip(offset)
        return items, offset + 1

    def _object(self, offset: int, place: Place) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        offset = self.skip(offset)
        while self.text[offset : offset + 1] != "}":
            if found:
                offset = self._expect(",", offset)
            start = self.skip(offset)
            if self.text[start : start + 1] != '"':
                raise _Malformed(start, "a key in double quotes is expected")
            key, offset = self._scalar(start)
            if key in found:
                raise _Malformed(start, "a key is written twice")
            self.document.positions[(*place, key)] = self.position(start)
            found[key], offset = self.value(self._expect(":", offset), (*place, key))
            offset = self.skip(offset)
        return found, offset + 1

    def _expect(self, character: str, offset: int) -> int:
        offset = self.skip(offset)
        if self.text[offset : offset + 1] != character:
            raise _Malformed(offset, f"{character!r} is expected")
        return offset + 1

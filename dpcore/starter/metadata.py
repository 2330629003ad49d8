"""Read metadata files: JSON and YAML, with the position of every part, in bounded time and memory."""

import datetime as dt
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from dpcore.errors import SpecError, UsageError
from dpcore.scalars import is_number
from dpcore.spec.document import LARGEST_BYTES, MOST_PARTS, Document, Place, read_document
from dpcore.starter.csv_header import usual_delimiter
from dpcore.starter.description import Bound, Value, as_bound

MOST_DEPTH = 100
MOST_NAMED = 20
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s,:{}\[\]"]+')

Table = TypeVar("Table")


def chosen(tables: Mapping[str, Table], table: str | None, *, where: object, what: str = "table") -> Table:
    """Return the table of a description that `--table` names; None stands for the only one."""
    if table is None and len(tables) == 1:
        return next(iter(tables.values()))
    if table is not None and table in tables:
        return tables[table]
    names = sorted(tables)
    listed = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "") or "none"
    if table is None:
        raise UsageError(f"{where} has {len(names)} {what}s; choose one with --table: {listed}")
    raise UsageError(f"{where} has no {what} {table!r}; its {what}s are {listed}")


@dataclass(frozen=True)
class Node:
    """One part of a metadata file; a part that is missing has no data. Its methods raise an error with line and column if it has another form."""

    document: Document
    place: Place
    data: Any

    def fail(self, message: str) -> SpecError:
        """Return an error at the position of this part."""
        self.document.mistake(self.place, message)
        mistake = self.document.mistakes[-1]
        return SpecError(f"{self.document.path}:{mistake.line}:{mistake.column}: {mistake.message}")

    def __bool__(self) -> bool:
        return self.data is not None

    def __contains__(self, key: str) -> bool:
        return isinstance(self.data, dict) and self.data.get(key) is not None

    def get(self, *keys: str) -> "Node":
        """Return the part below the first of these keys that this block has; a missing part if it has none."""
        key = next((key for key in keys if key in self), keys[0])
        return Node(self.document, (*self.place, key), self.data[key] if key in self else None)

    def need(self, key: str, why: str) -> "Node":
        """Return the part below a key of this block, which must exist."""
        part = self.block("a block of keys").get(key)
        if not part:
            raise self.fail(f"`{key}` is missing; {why}")
        return part

    def items(self, what: str) -> Iterator["Node"]:
        """Yield the items of a list, none if it is missing. `what` says what it should be, such as "a list of columns"."""
        if not isinstance(self.data, list | None):
            raise self.fail(f"{self.shown} must be {what}")
        for index, item in enumerate(self.data or ()):
            yield Node(self.document, (*self.place, index), item)

    def fields(self, what: str) -> Iterator[tuple[str, "Node"]]:
        """Yield the keys and parts of a block of keys, none if it is missing."""
        for key, part in self.block(what).data.items() if self else ():
            yield key, Node(self.document, (*self.place, key), part)

    def block(self, what: str) -> "Node":
        """Return this part if it is a block of keys."""
        if not isinstance(self.data, dict):
            raise self.fail(f"{self.shown} must be {what}")
        return self

    def text(self, *keys: str) -> str:
        """Return the text at the first of these keys; empty if there is none."""
        part = self.get(*keys)
        if not isinstance(part.data, str | None):
            raise part.fail(f"{part.shown} must be text")
        return part.data or ""

    def texts(self, *keys: str) -> tuple[str, ...]:
        """Return the text, or the texts of the list, at the first of these keys. What is no text is left out."""
        data = self.get(*keys).data
        return tuple(part for part in (data if isinstance(data, list) else (data,)) if isinstance(part, str))

    def name(self, *keys: str) -> str:
        """Return the name at the first of these keys, which must exist."""
        self.block("a block of keys")
        if name := self.text(*keys):
            return name
        raise self.fail(f"`{keys[0]}` is missing; every column needs its name")

    def flag(self, key: str) -> bool | None:
        """Return whether a key is set to anything that counts as true; None if it is missing."""
        part = self.get(key)
        return bool(part.data) if part else None

    def number(self) -> int | float | None:
        """Return this part if it is a finite number; None if it is something else."""
        return self.data if is_number(self.data) and abs(self.data) < float("inf") else None

    def bound(self) -> Bound | None:
        """Return this part as the limit of a range: a number, also if it is written as text, or the text of a date."""
        if isinstance(self.data, dt.date):
            return self.data.isoformat()
        return as_bound(self.data) if isinstance(self.data, str) else self.number()

    def values(self) -> tuple[Value, ...] | None:
        """Return the scalars of this list, without nulls; None if there is no list, or an empty one."""
        items = [item for item in self.items("a list of values") if item]
        return tuple(item.scalar() for item in items) or None

    def scalar(self) -> Value:
        """Return this part, which must be one value."""
        if not isinstance(self.data, str | int | float | bool):
            raise self.fail("a value must be text, a number or a boolean")
        return self.data

    @property
    def shown(self) -> str:
        """How a message names this part."""
        if not self.place:
            return "the file"
        last = self.place[-1]
        return f"item {last + 1}" if isinstance(last, int) else f"`{last}`"


def source_of(address: Node, *, dialect: Node, encoding: str) -> dict[str, Any] | None:
    """Return the keys of a spec's `source`: a file, and how it is written if that is unusual. None if no file is named."""
    path = address.data
    if not (isinstance(path, str) and path):
        return None
    keys = {
        "path": path,
        "delimiter": dialect.text("delimiter"),
        "quote": dialect.text("quoteChar"),
        "encoding": encoding,
    }
    usual = {"delimiter": {usual_delimiter(path), ""}, "quote": {'"', ""}, "encoding": {"utf-8", "utf8", ""}}
    return {key: text for key, text in keys.items() if text.lower() not in usual.get(key, ())}


def read_metadata(path: Path) -> Node:
    """Read a JSON or YAML file. Raise an error with line and column if it is malformed."""
    is_yaml = path.suffix.lower() in {".yaml", ".yml"}
    content = read_bytes(path, limit=LARGEST_BYTES if is_yaml else 8 << 20)
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


def _json_document(path: Path, text: str) -> Document:
    """Parse JSON and record the position of every key and item, as the YAML reader does."""
    document = Document(path)
    starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def record(place: Place, offset: int) -> None:
        line = bisect_right(starts, offset)
        document.positions[place] = line, offset - starts[line - 1] + 1

    def refuse(offset: int, message: str, remedy: str = "check quotes, commas and brackets") -> None:
        record((), offset)
        document.mistake((), f"not valid JSON: {message}; {remedy}")
        document.raise_mistakes()

    too_large = f"more than {MOST_DEPTH} levels or {MOST_PARTS:,} parts", "keep only the part about this table"
    try:
        document.data = json.loads(text)
    except json.JSONDecodeError as error:
        refuse(error.pos, error.msg)
    except RecursionError:
        refuse(0, *too_large)
    except ValueError:
        refuse(0, "a number with too many digits")
    tokens = _JSON_TOKEN.finditer(text)
    first = next(tokens)
    record((), first.start())
    for place, offset in _json_places(first, tokens, ()):
        if place in document.positions:
            refuse(offset, "a key is written twice")
        if len(place) > MOST_DEPTH or len(document.positions) > MOST_PARTS:
            refuse(offset, *too_large)
        record(place, offset)
    return document


def _json_places(token: re.Match[str], tokens: Iterator[re.Match[str]], place: Place) -> Iterator[tuple[Place, int]]:
    """Yield the keys and items below a token of valid JSON, each with its offset."""
    if token[0] == "[":
        for index in count():
            if (item := next(tokens))[0] == "]":
                return
            yield (*place, index), item.start()
            yield from _json_places(item, tokens, (*place, index))
    elif token[0] == "{":
        while (key := next(tokens))[0] != "}":
            yield (*place, json.loads(key[0])), key.start()
            yield from _json_places(next(tokens), tokens, (*place, json.loads(key[0])))

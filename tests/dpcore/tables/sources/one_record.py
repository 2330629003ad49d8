"""One record of arbitrary bytes more, less or changed, in every kind of source: how far do the counts move?

A kind of source writes a table of records, whose values are bytes, in its own form. A case is a few records and the same with one inserted,
removed or replaced. The counts of both are compared over the whole universe; what moves further than one record may move them is a
violation, and so is a refusal, unless the kind says that one constant sentence may refuse a case.

More is asked than the bound alone: a record that comes takes nothing away, and one that goes brings nothing. Else a record that makes the next
one vanish, and does not count itself, would pass.

Many cases share a table, each in a world of its own, which a declared column names. A record that is read as it should moves the counts of its
own world alone. One that changes how others are read moves some world's counts further.
"""

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dpcore.errors import DpflowError, SourceBroken
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.tables.ingest import Coding, Draws, Source
from dpcore.tables.ingest.bounding import bound
from dpcore.tables.ingest.coded import Coded
from dpcore.tables.sources.source import check_columns, check_types, read_piece
from dpcore.universe import Categorical, Date, Every, Integer, Outside, Universe

Record = Mapping[str, bytes]
Counts = Mapping[int, Counter[tuple[int, ...]]]
Write = Callable[[Path, Sequence[Record]], Source]

PERSON, NOTE, WORLD = "person", "note", "world"
MOST_WORLDS = 20
WORLDS = tuple(f"w{number}" for number in range(MOST_WORLDS))
UNIVERSE = Universe(
    {
        WORLD: Categorical(WORLDS, outside=Outside.OTHER),
        "sex": Categorical(("F", "M"), missing=True, outside=Outside.DROP),
        "age": Integer(minimum=0, maximum=9, missing=True, outside=Outside.CLIP),
        "code": Categorical(("01", "02", "o\r\nk", "Z\u00fcrich", "1", "2"), outside=Outside.OTHER),
        "day": Date(
            minimum=dt.date(2025, 1, 1),
            maximum=dt.date(2025, 12, 31),
            every=Every.MONTH,
            missing=True,
            outside=Outside.OTHER,
        ),
    }
)
COLUMNS = (*UNIVERSE.names, PERSON, NOTE)
BY_ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
BY_PERSON = Protection(unit=PERSON, rows_per_unit=2, neighbours=Neighbours.ADD_REMOVE)
ROWS_OF_PERSON = 4  # of the one who comes or goes: more than count
CHUNK, LARGEST = 509, 1300

SMALL = {
    "dpcore.tables.sources.csv_file.CHUNK_BYTES": (CHUNK, LARGEST),
    "dpcore.tables.sources.csv_records.TAIL_BYTES": 50,
    "dpcore.tables.sources.parquet_file.BATCH_ROWS": 17,
    "dpcore.tables.sources.parquet_file.PIECE_ROWS": 40,
    "dpcore.tables.sources.parquet_file.TRIAL_ROWS": 8,
    "dpcore.tables.sources.arrow_file.BATCH_ROWS": 13,
    "dpcore.tables.sources.memory_table.BATCH_ROWS": 14,
    "dpcore.tables.sources.query.BATCH_ROWS": 15,
    "dpcore.tables.reading.column.CHUNK_ROWS": 11,
}


def small_chunks(patch: pytest.MonkeyPatch) -> None:
    """Make everything that is read in one go so small that records lie on every border."""
    for name, value in SMALL.items():
        patch.setattr(name, value)


GOOD: Mapping[str, tuple[bytes, ...]] = {
    "sex": (b"F", b"M", b""),
    "age": (b"1", b"7", b"03", b""),
    "code": (b"01", b"02", b"o\r\nk", b"x", "Z\u00fcrich".encode()),
    "day": (b"2025-01-31", b"2025-06-01", b""),
    NOTE: (b"", b"a note", b"it's 5\" long", b"l1\r\nl2", b"a;b,c|d\te"),
}
FRAGMENTS = (
    *(bytes([byte]) for byte in b"\0\x01\x02\x03\x0e\x0f\x1a\x1b \n\r\",;|\t'\\~+-.0123456789eEF\x7f"),
    *(
        b"\r\n",
        b"\n\r",
        b'""',
        b'"\r\n"',
        b'",',
        b',"',
        b"''",
        b"\x1b$B",
        b"\x1b(B",
        b"~{",
        b"~}",
        b"+AGE-",
        b"\\n",
        b"\x0e\x0f",
    ),
    *(
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\xfe\xff",
        b"\xff\xfe\0\0",
        b"\0\0\xfe\xff",
        b"\x2b\x2f\x76\x38",
    ),  # byte order marks
    *(b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xed\xa0\xbd\xed\xb8\x80"),  # surrogates
    *(
        b"\xc0\x80",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xf8\x88\x80\x80\x80",
        b"\xf4\x90\x80\x80",
    ),  # overlong
    *(
        b"\xc3",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\x81",
        b"\x8e",
        b"\x8f\xa1",
        b"\xa4\xd4",
        b"\xe0",
        b"\xfc",
        b"\xff",
        b"\x80",
        b"\xbf",
    ),
    *(b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9", b"\xc2\xa0", b"\xd9\xa3", b"\xef\xbc\x97", b"\xf0\x9f\x98\x80"),
)
WHOLE = (
    *(
        b"9" * 30,
        b"9" * 400,
        b"-" + b"9" * 5000,
        b"1e999",
        b"-1e400",
        b"0x10",
        b"1_000",
        b"7.0",
        b"-0",
        b"nan",
        b"NaN",
        b"inf",
        b"NULL",
    ),
    *(
        b"true",
        b"2025-13-45",
        b"0000-00-00",
        b"99999-01-01",
        b"infinity",
        b"2025-01-31T23:59:60Z",
        b"\\N",
        b"#N/A",
        b"=1+1",
    ),
)


def value(chance: random.Random) -> bytes:
    """Make up one value of arbitrary bytes, at times as long as a chunk, or longer than any record may be."""
    match chance.randrange(12):
        case 0 | 1:
            return chance.randbytes(chance.randrange(1, 24))
        case 2:
            return chance.choice(WHOLE)
        case 3:
            near = chance.choice((CHUNK // 4, CHUNK, 2 * CHUNK)) + chance.randrange(-60, 8)
            return (chance.choice(FRAGMENTS) * near)[:near]
        case 4:
            near = LARGEST + chance.randrange(-60, 8)
            return chance.choice((b"x", b"\r\n", b'"', b"\xff", b"\0", b",")) * (near + chance.choice((0, 0, LARGEST)))
        case _:
            return b"".join(chance.choices(FRAGMENTS, k=chance.choice((1, 1, 2, 3, 8))))


def good_record(chance: random.Random, world: str, person: str) -> dict[str, bytes]:
    values = {name: chance.choice(values) for name, values in GOOD.items()}
    return values | {WORLD: world.encode(), PERSON: f"{world}{person}".encode()}


def odd_record(chance: random.Random, world: str) -> Record:
    """Make up a record in which any value, declared or not, may be anything."""
    record = good_record(chance, world, "new")
    for name in chance.sample(COLUMNS, k=chance.choice((1, 1, 2, 3, len(COLUMNS)))):
        record[name] = value(chance)
    return record


@dataclass(frozen=True)
class Kind:
    """One kind of source.

    Attributes:
        name: What it is.
        write: Writes records and returns the source that reads them.
        refusal: The beginning of the one sentence by which a table may be refused, with the reservation kept; none if empty.
        odd: Makes up the record of a world that comes, goes or changes.
        worlds: How many cases share a table: one, if one may refuse it.
    """

    name: str
    write: Write
    refusal: str = ""
    odd: Callable[[random.Random, str], Record] = odd_record
    worlds: int = MOST_WORLDS


@dataclass
class Tally:
    """What became of the cases of one kind."""

    cases: int = 0
    refused: int = 0
    moved: int = 0
    violations: list[str] = field(default_factory=list)


def counted(source: Source, *, protection: Protection, draws: Draws) -> Counts:
    """Read, code and bound a table as a worker does, and count it over the universe."""
    coding = Coding(universe=UNIVERSE, protection=protection, window=None)
    check_columns(source, columns=coding.columns)
    check_types(source, reads=coding.reads)
    coded = []
    for number, piece in enumerate(source.pieces(ids=coding.ids)):
        start = 0
        for batch in read_piece(piece, columns=coding.columns):
            coded.append(coding.code(batch, draws=draws, piece=number, start=start))
            start += batch.num_rows
    if not coded:
        return {}
    rows = Coded.joined(coded)
    if coding.by_unit:
        rows = bound(rows, rows_per_unit=protection.rows_per_unit)
    counts: dict[int, Counter[tuple[int, ...]]] = {}
    for world, *cell in zip(*(codes.tolist() for codes in rows.codes), strict=True):
        counts.setdefault(world, Counter())[tuple(cell)] += 1
    return counts


def moved(one: Counts, other: Counts, world: int) -> tuple[int, int]:
    """Return how many rows a world has more, and how many less, cell by cell."""
    before, after = (counts.get(world, Counter()) for counts in (one, other))
    return (after - before).total(), (before - after).total()


@dataclass(frozen=True)
class Case:
    """The records of one world before and after a change, and how many rows may be more and less after it."""

    before: list[Record]
    after: list[Record]
    more: int
    less: int


def case(kind: Kind, chance: random.Random, world: str, *, by_person: bool) -> Case:
    """Make up a few records of at most two rows a person, and change one of them, or let a person come who has more."""
    base: list[Record] = [good_record(chance, world, f"p{place // 2}") for place in range(chance.randrange(1, 6))]
    odd, place = kind.odd(chance, world), chance.randrange(len(base) + 1)
    inserted = [*base[:place], odd, *base[place:]]
    if by_person:
        for _ in range(ROWS_OF_PERSON - 1):
            again = {**odd, "code": chance.choice(GOOD["code"])}
            inserted.insert(chance.randrange(len(inserted) + 1), again)
        return Case(base, inserted, BY_PERSON.rows_per_unit, 0)
    match chance.randrange(3):
        case 0:
            return Case(base, inserted, 1, 0)
        case 1:
            return Case(base, [*base[:place], odd, *base[place + 1 :]], 1, 1)
        case _:  # another record goes, and this one stays
            gone = chance.randrange(len(inserted))
            return Case(inserted, [*inserted[:gone], *inserted[gone + 1 :]], 0, 1)


def tables(made: Sequence[Case]) -> tuple[list[Record], list[Record]]:
    """Return the tables that cases share, before and after."""
    return [record for one in made for record in one.before], [record for one in made for record in one.after]


def check(kind: Kind, folder: Path, *, count: int, seed: int = 1) -> Tally:
    """Try so many cases, and tell what moved too far."""
    chance, draws, tally = random.Random(f"{kind.name} {seed}"), Draws.fresh(), Tally()  # noqa: S311  not for secrets
    while tally.cases < count:
        by_person = chance.random() < 0.3
        made = [case(kind, chance, world, by_person=by_person) for world in WORLDS[: kind.worlds]]
        tally.cases += len(made)
        try:
            before, after = (
                counted(kind.write(folder, table), protection=BY_PERSON if by_person else BY_ROW, draws=draws)
                for table in tables(made)
            )
        except DpflowError as error:
            if kind.refusal and isinstance(error, SourceBroken) and str(error).startswith(kind.refusal):
                tally.refused += len(made)
            else:
                tally.violations.append(f"{kind.name} is refused: {error}")
            continue
        for world, one in enumerate(made):
            more, less = moved(before, after, world)
            tally.moved += more + less > 0
            if more > one.more or less > one.less:
                tally.violations.append(f"{kind.name}: {more} rows more and {less} less by {one}")
        more, less = moved(before, after, MOST_WORLDS)  # of records that name no world
        if more > sum(one.more for one in made) or less > sum(one.less for one in made):
            tally.violations.append(f"{kind.name}: {more} rows more and {less} less without a world")
    return tally

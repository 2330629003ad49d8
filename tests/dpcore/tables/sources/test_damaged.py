"""Damaged tables are read by the declared policy or refused in our own words: nothing of their content gets out."""

import datetime as dt
import random
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpcore.errors import SourceError
from dpcore.spec.source import SourceSpec
from dpcore.tables.reading.encoding import encode_rows, reads
from dpcore.tables.sources import csv_file
from dpcore.tables.sources.source import Source, check_columns, check_types
from dpcore.universe import Categorical, Date, Every, Integer, Number, Outside, Universe
from tests.campaign import often
from tests.dpcore.tables.sources.sources import (
    CANARY,
    arrow_bytes,
    check_silent,
    gzipped,
    located,
    parquet_bytes,
    read_batches,
    sqlite_bytes,
    write,
    zstd,
)

UNIVERSE = Universe(
    {
        "sex": Categorical(("F", "M"), missing=True, outside=Outside.OTHER),
        "age": Integer(minimum=0, maximum=99, missing=True),
        "cost": Number(edges=(0.0, 10.0, 100.0, 1000.0), missing=True),
        "day": Date(
            minimum=dt.date(2025, 1, 1),
            maximum=dt.date(2025, 12, 31),
            every=Every.MONTH,
            missing=True,
            outside=Outside.DROP,
        ),
    }
)
COLUMNS = UNIVERSE.names
HEAD = "sex,age,cost,day,undeclared note\n"
GOOD = f"F,7,5.5,2025-01-31,{CANARY}\n"
FOUND = (0, 7, 0, 0)  # what a good row is
OTHER, NO_SEX, NO_AGE, NO_COST, NO_DAY = 2, 3, 100, 3, 12
WHOLE = HEAD + GOOD * 3
DECLARED = "'sex', 'age', 'cost', 'day'"

CSV_REFUSED = "'t.csv' is not a complete CSV file"
PARQUET_REFUSED = "'t.parquet' is not a complete Parquet file"
ARROW_REFUSED = "'t.arrow' is not a complete Arrow file"
QUERY_REFUSED = "the query of source.sql failed or was interrupted"
LACKS = f"lacks the declared columns {DECLARED}"


def table(rows: int = 3, **changed: Any) -> pa.Table:
    columns: dict[str, Any] = {
        "sex": ["F"] * rows,
        "age": [7] * rows,
        "cost": [5.5] * rows,
        "day": [dt.date(2025, 1, 31)] * rows,
        "undeclared note": [CANARY] * rows,
    }
    return pa.table(columns | changed)


def broken(content: bytes, *, before: bytes, length: int = 40) -> bytes:
    place = content.index(before)
    return content[: place - length] + b"\xff" * length + content[place:]


def unchecked(*texts: bytes) -> pa.Array:
    raw = pa.array(texts, pa.binary())
    return pa.StringArray.from_buffers(len(raw), raw.buffers()[1], raw.buffers()[2], raw.buffers()[0])


@pytest.fixture(autouse=True)
def private_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a database says about a query in a folder of the test's own."""
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "private"))


@dataclass(frozen=True)
class Case:
    """A table with something wrong, and the one thing that may come of it: rows of codes, or an error that says this."""

    files: Mapping[str, bytes]
    outcome: list[tuple[int, ...]] | str
    path: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def csv(content: str | bytes, outcome: list[tuple[int, ...]] | str, *, name: str = "t.csv", **options: Any) -> Case:
    return Case({name: content.encode() if isinstance(content, str) else content}, outcome, options=options)


def parquet(content: pa.Table | bytes, outcome: list[tuple[int, ...]] | str) -> Case:
    return Case({"t.parquet": content if isinstance(content, bytes) else parquet_bytes(content)}, outcome)


def arrow(content: pa.Table | bytes, outcome: list[tuple[int, ...]] | str) -> Case:
    return Case({"t.arrow": content if isinstance(content, bytes) else arrow_bytes(content)}, outcome)


def garbage(seed: int) -> bytes:
    return random.Random(seed).randbytes(1 << 14) + CANARY.encode()  # noqa: S311  not noise


PLAIN_PARQUET = parquet_bytes(table(100), use_dictionary=False, compression="none", write_page_checksum=True)

CASES = {
    # CSV: what its rows hold
    "one ragged row of each kind": csv(HEAD + "F\n" + GOOD + "F,7\n" + GOOD[:-1] + ",more\n" + GOOD, [FOUND] * 2),
    "numbers written as texts": csv(HEAD + 'F," 7 ",5.50e0,2025-01-31,\nM,7.0,"5,5",2025-01-31,\n', [FOUND, (1, 7, NO_COST, 0)]),
    "words in place of numbers": csv(HEAD + f"F,seven,{CANARY},2025-01-31,\n" + GOOD, [(0, NO_AGE, NO_COST, 0), FOUND]),
    "dates in three formats": csv(
        HEAD + "F,7,5.5,2025-01-31,\nF,7,5.5,31.01.2025,\nF,7,5.5,01/31/2025,\n", [FOUND]
    ),
    "days that there are not": csv(HEAD + "F,7,5.5,2025-02-30,\nF,7,5.5,0000-00-00,\n" + GOOD, [FOUND]),
    "NaN and nulls": csv(HEAD + "F,NaN,nan,NaT,\n,,,,\n", [(0, NO_AGE, NO_COST, NO_DAY), (NO_SEX, NO_AGE, NO_COST, NO_DAY)]),
    "infinities": csv(HEAD + "F,inf,Infinity,,\nF,-inf,-inf,,\n", [(0, 99, 2, 12), (0, 0, 0, 12)]),
    "huge integers": csv(
        HEAD + f"F,{10**30},1e400,,\nF,-{10**400},-{10**30},,\n", [(0, 99, 2, 12), (0, 0, 0, 12)]
    ),
    "NUL bytes in values": csv(WHOLE.replace("F,", "F\0,"), [(OTHER, 7, 0, 0)] * 3),
    "mixed encodings": csv(WHOLE.encode() + b"m\xe4nnlich,7,5.5,2025-01-31,\xff\xfe\n", [FOUND] * 3 + [(OTHER, 7, 0, 0)]),
    "a row of garbage": csv(WHOLE.encode() + b"\xff\xfe\0\x01\x02,,,,,,\n", [FOUND] * 3),
    "line breaks of three kinds": csv(HEAD[:-1] + "\r\n" + GOOD[:-1] + "\r" + GOOD + GOOD, [FOUND] * 3),
    "no rows": csv(HEAD, []),
    "a byte order mark, quoted names": csv('\ufeff"sex","age","cost","day"\nF,7,5.5,2025-01-31', [FOUND]),
    "a value of a megabyte": csv(HEAD + f'F,7,5.5,2025-01-31,"{CANARY * 90_000}"\n', [FOUND]),
    "semicolons, and told so": csv(WHOLE.replace(",", ";"), [FOUND] * 3, delimiter=";"),
    "an old encoding, and told so": csv(WHOLE.encode("cp437"), [FOUND] * 3, encoding="cp437"),
    "quotation marks in text, and told so": csv(HEAD + 'F",7,5.5,,5" pipe\n', [(OTHER, 7, 0, 12)], quote="none"),
    "bytes that the encoding does not know": csv(
        HEAD.encode() + b"\x81,7,5.5,2025-01-31,\n", [(OTHER, 7, 0, 0)], encoding="cp1252"
    ),
    # CSV: what its files are
    "zero bytes": csv(b"", "'t.csv' is empty"),
    "blank lines only": csv(b"\n\n\n", LACKS),
    "a header of other columns": csv(f"{CANARY},x\n1,2\n", LACKS),
    "one column missing": csv(WHOLE.replace("age,", "years,", 1), "lacks the declared column 'age'"),
    "duplicate headers": csv(WHOLE.replace("undeclared note", "age"), "more than one of the declared column 'age'"),
    "duplicate headers that nobody declared": csv(HEAD[:-1] + ",undeclared note\n" + GOOD[:-1] + ",\n", [FOUND]),
    "semicolons, and not told so": csv(WHOLE.replace(",", ";"), LACKS),
    "UTF-16": csv(WHOLE.encode("utf-16"), "'t.csv' is in UTF-16 or UTF-32"),
    "UTF-32": csv(WHOLE.encode("utf-32"), "'t.csv' is in UTF-16 or UTF-32"),
    "UTF-16 without a mark": csv(WHOLE.encode("utf-16-be"), LACKS),
    "NUL bytes in the header": csv(WHOLE.replace("age,", "a\0ge,"), "lacks the declared column 'age'"),
    "a quotation never closed": csv(WHOLE + f'"{CANARY},1\n', "quotation marks that are not closed"),
    "quotation marks inside a value": csv(WHOLE.replace("Doe", 'D"e'), "quotation marks that are not closed"),
    "a name of 200 kilobytes": csv("x" * 200_000 + "," + WHOLE, "the header of 't.csv' is longer than 1 MiB"),
    "a header of a megabyte": csv("x," * 600_000 + WHOLE, "the header of 't.csv' is longer than 1 MiB"),
    "garbage called CSV": csv(garbage(1), LACKS),
    "Parquet called CSV": csv(PLAIN_PARQUET, LACKS),
    "two gzip members": csv(gzipped(WHOLE.encode()) + gzipped(GOOD.encode()), [FOUND] * 4, name="t.csv.gz"),
    "two zstd frames": csv(zstd(WHOLE.encode()) + zstd(GOOD.encode()), [FOUND] * 4, name="t.csv.zst"),
    "gzip of nothing": csv(gzipped(b""), LACKS, name="t.csv.gz"),
    "gzip without its end": csv(gzipped(WHOLE.encode())[:-4], "'t.csv.gz' is not a complete CSV", name="t.csv.gz"),
    "gzip cut in the middle": csv(
        gzipped(HEAD.encode() + GOOD.encode() * 10_000)[:200], "'t.csv.gz' is not a complete CSV", name="t.csv.gz"
    ),
    "text called gzip": csv(WHOLE, "'t.csv.gz' is not a complete CSV", name="t.csv.gz"),
    "zstd without its end": csv(zstd(WHOLE.encode())[:-4], "'t.csv.zst' is not a complete CSV", name="t.csv.zst"),
    "gzip called zstd": csv(gzipped(WHOLE.encode()), "'t.csv.zst' is not a complete CSV", name="t.csv.zst"),
    # Parquet
    "truncated Parquet": parquet(PLAIN_PARQUET[:-200], PARQUET_REFUSED),
    "Parquet without its beginning": parquet(PLAIN_PARQUET[200:], PARQUET_REFUSED),
    "Parquet with a broken page": parquet(broken(PLAIN_PARQUET, before=b"F\x01\0\0\0F"), PARQUET_REFUSED),
    "an empty Parquet": parquet(b"", "'t.parquet' is empty"),
    "text called Parquet": parquet(WHOLE.encode(), PARQUET_REFUSED),
    "garbage called Parquet": parquet(garbage(2), PARQUET_REFUSED),
    "a Parquet of no rows": parquet(table(0, sex=pa.array([], pa.string())), []),
    "a Parquet of no columns": parquet(pa.table({}), LACKS),
    "a Parquet of nulls": parquet(table(1, sex=[None], age=[None], cost=[None], day=[None]), [(3, 100, 3, 12)]),
    "Parquet text that is not UTF-8": parquet(table(1, sex=unchecked(b"\xff\xfe")), [(OTHER, 7, 0, 0)]),
    "Parquet floats for integers": parquet(
        table(3, age=[7.9, float("nan"), float("inf")]), [FOUND, (0, NO_AGE, 0, 0), (0, 99, 0, 0)]
    ),
    "Parquet integers of 64 unsigned bits": parquet(table(1, age=pa.array([2**64 - 1], pa.uint64())), [(0, 99, 0, 0)]),
    "Parquet days far away": parquet(
        table(3, day=pa.array([2**31 - 1, -(2**31), 20_119], pa.int32()).cast(pa.date32())), [FOUND]
    ),
    "lists for numbers": parquet(table(1, age=[[7]]), "holds the declared column 'age' in a type that cannot be read"),
    # Arrow
    "truncated Arrow": arrow(arrow_bytes(table())[:-200], ARROW_REFUSED),
    "a truncated Arrow stream": arrow(arrow_bytes(table(), stream=True)[:-200], ARROW_REFUSED),
    "text called Arrow": arrow(WHOLE.encode(), ARROW_REFUSED),
    "an empty Arrow": arrow(b"", "'t.arrow' is empty"),
    "Arrow text that is not UTF-8": arrow(table(1, sex=unchecked(b"\xff\xfe")), [(OTHER, 7, 0, 0)]),
    "Arrow with two columns of one name": arrow(
        pa.Table.from_arrays([*table().columns, table().column("age")], names=[*table().column_names, "age"]),
        "more than one of the declared column 'age'",
    ),
    "an Arrow stream without its last mark": arrow(arrow_bytes(table(), stream=True)[:-8], [FOUND] * 3),
    # folders
    "a folder of different schemas": Case(
        {"1.csv": WHOLE.encode(), "2.csv": b"a,b\n1,2\n"}, f"'2.csv' {LACKS}", path="."
    ),
    "a folder of one column in three types": Case(
        {f"{place}.parquet": parquet_bytes(table(1, age=[age])) for place, age in enumerate((7, "7", 7.0))},
        [FOUND] * 3,
        path=".",
    ),
    "a folder of two kinds": Case(
        {"1.csv": WHOLE.encode(), "2.parquet": PLAIN_PARQUET}, "mixes files of several kinds", path="."
    ),
    "a folder of other things": Case({"notes.md": CANARY.encode()}, "leads to no table", path="."),
    "one damaged file among three": Case(
        {"1.parquet": PLAIN_PARQUET, "2.parquet": PLAIN_PARQUET[:99], "3.parquet": PLAIN_PARQUET},
        "'2.parquet' is not a complete Parquet file",
        path=".",
    ),
}  # fmt: skip

SCHEMA = "create table visits (sex, age, cost, day, note)"
INSERT = f"insert into visits values ('F', 7, 5.5, '2025-01-31', '{CANARY}')"  # noqa: S608  of ours
QUERIES: Mapping[str, tuple[tuple[str, ...], str, list[tuple[int, ...]] | str]] = {
    "values of all types in one column": (
        (
            SCHEMA,
            INSERT,
            "insert into visits values (x'46', '7', '5.5', '2025-01-31', 1)",
            "insert into visits values ('F', 7.0, x'352E35', '2025-01-31 23:00:00', x'ff')",
            "insert into visits values (1.5, 9223372036854775807, 9e999, null, null)",
            "insert into visits values (cast(x'fffe' as text), null, 'nan', null, null)",
        ),
        "select * from visits",
        [FOUND] * 3 + [(OTHER, 99, 2, 12), (OTHER, 100, 3, 12)],
    ),
    "a table without rows": ((SCHEMA,), "select * from visits;", []),
    "a table that is not there": ((SCHEMA,), f"select * from visits_of where name = '{CANARY}'", QUERY_REFUSED),  # noqa: S608  of ours
    "no query at all": ((SCHEMA, INSERT), f"{CANARY} and so on", QUERY_REFUSED),
    "a query that changes something": ((SCHEMA, INSERT), "delete from visits returning *", QUERY_REFUSED),
    "a query that fails at one row": (
        (SCHEMA, INSERT),
        "select sex, abs(-9223372036854775801 - age) as age, cost, day from visits",
        QUERY_REFUSED,
    ),
    "a query of other columns": ((SCHEMA, INSERT), "select note, sex from visits", "lacks the declared columns 'age'"),
    "a column twice": (
        (SCHEMA, INSERT),
        "select *, age as AGE from visits",
        [FOUND],
    ),
}


@pytest.mark.parametrize("damage", CASES)
def test_a_damaged_table_is_coded_by_the_declared_policy_or_refused_without_a_word_of_its_content(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], damage: str
) -> None:
    case = CASES[damage]
    for name, content in case.files.items():
        write(tmp_path, name, content)
    expect(case.outcome, lambda: located(tmp_path, case.path or next(iter(case.files)), **case.options))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("damage", QUERIES)
def test_a_damaged_query_likewise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], damage: str
) -> None:
    statements, query, outcome = QUERIES[damage]
    write(tmp_path, "t.sqlite", sqlite_bytes(tmp_path, *statements))
    monkeypatch.setenv("CLINIC_DB", f"sqlite:///{tmp_path / 't.sqlite'}")
    expect(outcome, lambda: Source.locate(SourceSpec(sql=query, url_env="CLINIC_DB"), base=tmp_path))
    assert capfd.readouterr() == ("", "")


def test_a_record_that_is_longer_than_any_block_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "CHUNK_BYTES", (1 << 10, 1 << 12))
    for note in (f'"{CANARY * 1000}"', CANARY * 1000, '"' + '"",\r\n' * 1000 + '"'):
        write(tmp_path, "t.csv", HEAD + GOOD + f"F,7,5.5,,{note}\n" + GOOD)
        expect([FOUND] * 2, lambda: located(tmp_path, "t.csv"))


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "t.csv", WHOLE)
    source = located(tmp_path, "t.csv")
    (tmp_path / "t.csv").unlink()
    expect("'t.csv' cannot be opened", lambda: source)
    (tmp_path / "t.csv").mkdir()  # in place of missing rights, which do not stop every user
    expect("'t.csv' cannot be opened", lambda: source)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow"])
def test_a_file_that_vanishes_in_the_middle_is_refused(tmp_path: Path, ending: str) -> None:
    content = {".csv": WHOLE.encode(), ".parquet": PLAIN_PARQUET, ".arrow": arrow_bytes(table())}[ending]
    for place in (1, 2, 3):
        write(tmp_path, f"{place}{ending}", content)
    batches = read_batches(located(tmp_path, "."), columns=COLUMNS)
    next(batches)
    (tmp_path / f"2{ending}").unlink()
    with pytest.raises(SourceError, match=rf"'2\{ending}' cannot be opened") as refusal:
        list(batches)
    check_silent(refusal.value)


FUZZED = {
    "t.csv": WHOLE.encode() + GOOD.replace("Jane", '"Jane "" x').replace("4711", '4711"').encode() * 5,
    "t.csv.gz": gzipped(WHOLE.encode() * 5),
    "t.csv.zst": zstd(WHOLE.encode() * 5),
    "t.parquet": PLAIN_PARQUET,
    "2.parquet": parquet_bytes(table(40), compression="zstd", row_group_size=9),
    "3.parquet": parquet_bytes(table(2000), compression="none"),
    "t.arrow": arrow_bytes(table(20, sex=pa.array(["F"] * 20).dictionary_encode())),
    "2.arrow": arrow_bytes(table(20), compression="zstd"),
    "t.ipc": arrow_bytes(table(20), stream=True),
    "t.feather": arrow_bytes(table(20), compression="lz4"),
}
QUERY = "t.sqlite"
EACH = often(30, campaign=200)


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Change some bytes, cut something out or off, or write something twice."""
    data = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 8])):
        place, length = chance.randrange(len(data)), chance.choice([1, 4, 32, 256])
        match chance.randrange(6):
            case 0 | 1 | 2:
                data[place] = chance.choice([0, 1, 0x22, 0x2C, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            case 3 if len(data) > 2 * length:
                del data[place : place + length]
            case 4:
                data[place:place] = data[place : place + length]
            case _:
                data[place : place + length] = chance.randbytes(len(data[place : place + length]))
    return bytes(data[: chance.randrange(1, len(data))] if chance.random() < 0.15 else data) or b"x"


@pytest.mark.campaign
@pytest.mark.parametrize("name", [*FUZZED, QUERY])
def test_a_mutated_file_is_coded_or_refused_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    chance = random.Random(f"damage {name}")  # noqa: S311  not noise
    whole = sqlite_bytes(tmp_path, SCHEMA, *[INSERT] * 20) if name == QUERY else FUZZED[name]
    monkeypatch.setenv("CLINIC_DB", f"sqlite:///{tmp_path / name}")
    spec = SourceSpec(sql="select * from visits", url_env="CLINIC_DB") if name == QUERY else SourceSpec(path=name)
    outcomes = {True: 0, False: 0}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(EACH):
            write(tmp_path, name, mutated(whole, chance))
            try:
                coded(Source.locate(spec, base=tmp_path))
                outcomes[True] += 1
            except SourceError as error:
                check_silent(error)
                outcomes[False] += 1
    assert not warned
    assert all(outcomes.values()), "some mutations must be noticed, and some must not be"
    assert capfd.readouterr() == ("", "")


def test_the_checks_above_would_notice_a_reader_that_quotes_the_data() -> None:
    def careless() -> Source:
        try:
            int(CANARY)
        except ValueError:
            raise SourceError("'t.csv' is damaged") from None
        return Source(())

    with pytest.raises(AssertionError):
        expect("damaged", careless)


def coded(source: Source) -> list[tuple[int, ...]]:
    """Take a source all the way that a run takes it: headers, types, rows, codes."""
    check_columns(source, columns=COLUMNS)
    check_types(source, reads={name: partial(reads, UNIVERSE.attributes[name]) for name in COLUMNS})
    found: list[tuple[int, ...]] = []
    for batch in read_batches(source, columns=COLUMNS):
        codes, _ = encode_rows(UNIVERSE, batch)
        found += zip(*(code.tolist() for code in codes), strict=True)
    return found


def expect(outcome: list[tuple[int, ...]] | str, source: Callable[[], Source]) -> None:
    if not isinstance(outcome, str):
        assert coded(source()) == outcome
        return
    with pytest.raises(SourceError) as refusal:
        coded(source())
    assert outcome in str(refusal.value)
    check_silent(refusal.value)

"""Damaged files are read by the declared policy or refused in our own words: nothing of their content gets out."""

import gzip
import io
import random
import traceback
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from dpcore.errors import SourceError
from dpcore.ingest import csv_file
from dpcore.ingest.source import Source, read_batches

CANARY = "Jane Doe 4711"
COLUMNS = ("name", "age")


def csv_bytes(rows: int = 1000) -> bytes:
    return "".join(["name,age,undeclared-canary\n", *(f"{CANARY} {i},{i},{CANARY}\n" for i in range(rows))]).encode()


def parquet_bytes(**columns: list[object]) -> bytes:
    table = pa.table(columns or {"name": [f"{CANARY} {i}" for i in range(1000)], "age": list(range(1000))})
    sink = io.BytesIO()
    parquet.write_table(table, sink, use_dictionary=False, compression="none", write_page_checksum=True)
    return sink.getvalue()


def with_broken_page() -> bytes:
    content = bytearray(parquet_bytes())
    place = content.index(CANARY.encode())
    content[place - 40 : place] = b"\xff" * 40
    return bytes(content)


REFUSED = {
    "empty csv": ("t.csv", b"", "is empty"),
    "empty parquet": ("t.parquet", b"", "is empty"),
    "empty gzip": ("t.csv.gz", gzip.compress(b""), "lacks the declared columns 'name', 'age'"),
    "blank lines only": ("t.csv", b"\n\n\n", "lacks"),
    "truncated parquet": ("t.parquet", parquet_bytes()[:-200], "not a whole Parquet file"),
    "parquet without its beginning": ("t.parquet", parquet_bytes()[200:], "not a whole Parquet file"),
    "parquet with a broken page": ("t.parquet", with_broken_page(), "not a whole Parquet file"),
    "text called parquet": ("t.parquet", csv_bytes(), "not a whole Parquet file"),
    "parquet called csv": ("t.csv", parquet_bytes(), "lacks the declared columns 'name', 'age'"),
    "garbage called csv": ("t.csv", random.Random(1).randbytes(1 << 16) + CANARY.encode(), "lacks"),  # noqa: S311  not noise
    "garbage called parquet": ("t.parquet", random.Random(2).randbytes(1 << 16), "not a whole Parquet file"),  # noqa: S311  likewise
    "text called gzip": ("t.csv.gz", csv_bytes(), "not a whole CSV file"),
    "truncated gzip": ("t.csv.gz", gzip.compress(csv_bytes(100_000))[:-100_000], "not a whole CSV file"),
    "gzip without its end": ("t.csv.gz", gzip.compress(csv_bytes())[:-4], "not a whole CSV file"),
    "utf-16": ("t.csv", csv_bytes().decode().encode("utf-16"), "lacks"),
    "quotation marks in the middle": ("t.csv", csv_bytes(10).replace(b"Doe", b'D"e'), "quotation marks"),
    "missing column": ("t.csv", csv_bytes().replace(b"age,", b"years,", 1), "lacks the declared column 'age'"),
    "missing parquet column": ("t.parquet", parquet_bytes(name=[CANARY]), "lacks the declared column 'age'"),
    "no columns": ("t.parquet", parquet_bytes(**{CANARY: [1]}), "lacks the declared columns 'name', 'age'"),
    "column twice": ("t.csv", f"age,name,age\n1,{CANARY},2\n".encode(), "more than one of the declared column 'age'"),
    "wrong delimiter": ("t.csv", csv_bytes().replace(b",", b";"), "lacks the declared columns 'name', 'age'"),
    "huge header": ("t.csv", b"x" * 200_000 + b",name,age\n", "not a whole CSV file"),
}


@pytest.mark.parametrize("damage", REFUSED)
def test_a_damaged_file_is_refused_without_a_word_of_its_content(tmp_path: Path, damage: str) -> None:
    name, content, reason = REFUSED[damage]
    (tmp_path / name).write_bytes(content)
    refused(lambda: read(tmp_path / name), file=name, reason=reason)


def test_a_quotation_that_is_never_closed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "BLOCK_BYTES", (1 << 10, 1 << 12))
    (tmp_path / "t.csv").write_bytes(csv_bytes().replace(b"Jane", b'"Jane', 1))
    refused(lambda: read(tmp_path / "t.csv"), file="t.csv", reason="quotation marks that are not closed")


def test_a_file_that_cannot_be_opened_or_has_gone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").mkdir()  # in place of missing rights, which do not stop every user
    refused(lambda: read(tmp_path / "t.csv"), file="t.csv", reason="cannot be opened")
    refused(lambda: read(tmp_path / "gone.parquet"), file="gone.parquet", reason="cannot be opened")


def test_a_file_that_vanishes_between_two_batches_is_refused(tmp_path: Path) -> None:
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_bytes(csv_bytes())
    batches = read_batches(Source.locate(".", base=tmp_path), columns=COLUMNS)
    next(batches)
    (tmp_path / "2.csv").unlink()
    refused(lambda: list(batches), file="2.csv", reason="not a whole CSV file")


ACCEPTED = {
    "nul bytes": ("t.csv", csv_bytes(10).replace(b"Jane", b"J\0ne"), 10),
    "latin-1 bytes": ("t.csv", csv_bytes(10).replace(b"Jane", b"J\xe4ne"), 10),
    "ragged rows": ("t.csv", csv_bytes(10) + b"1\n1,2\n1,2,3,4\n", 10),
    "garbage rows": ("t.csv", csv_bytes(10) + b"\xff\xfe\0\x01\x02,,,,\n", 10),
    "header only": ("t.csv", csv_bytes(0), 0),
    "byte order mark and quotes": ("t.csv", b'\xef\xbb\xbf"name","age"\n"Jane","4"\n', 1),
    "no rows": ("t.parquet", parquet_bytes(name=[], age=[]), 0),
    "nothing but nulls": ("t.parquet", parquet_bytes(name=[None], age=[None]), 1),
}


@pytest.mark.parametrize("oddity", ACCEPTED)
def test_an_odd_file_is_read_by_the_declared_policy_and_in_silence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], oddity: str
) -> None:
    name, content, rows = ACCEPTED[oddity]
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path / name) == rows
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_a_file_with_any_bytes_changed_is_read_or_refused_and_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], ending: str
) -> None:
    chance = random.Random(3)  # noqa: S311  not noise
    whole = {".csv": csv_bytes(100), ".csv.gz": gzip.compress(csv_bytes(100)), ".parquet": parquet_bytes()}[ending]
    path = tmp_path / f"t{ending}"
    for _ in range(150):
        content = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content[: chance.choice([len(content), chance.randrange(1, len(content))])])
        try:
            read(path)
        except SourceError as error:
            check(error, file=path.name)
    assert capfd.readouterr() == ("", "")


def test_the_checks_above_would_notice_a_reader_that_quotes_the_data(tmp_path: Path) -> None:
    def careless() -> None:
        try:
            int(CANARY)
        except ValueError:
            raise SourceError("'t.csv' is damaged") from None

    with pytest.raises(AssertionError):
        refused(careless, file="t.csv", reason="damaged")


def read(path: Path) -> int:
    return sum(batch.num_rows for batch in read_batches(Source((path,)), columns=COLUMNS))


def refused(step: Callable[[], object], *, file: str, reason: str) -> None:
    with pytest.raises(SourceError) as refusal:
        step()
    assert reason in str(refusal.value)
    check(refusal.value, file=file)


def check(error: SourceError, *, file: str) -> None:
    assert repr(file) in str(error)
    assert "\n" not in str(error)
    assert error.__context__ is None
    assert error.__cause__ is None
    told = "".join(traceback.format_exception_only(error)) + repr(error)
    assert not any(word in told for word in ("Jane", "Doe", "4711", "undeclared", "years", "Arrow", "arrow"))

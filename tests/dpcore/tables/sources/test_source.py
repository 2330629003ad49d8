"""Finding the files of a source, and reading good ones."""

import gzip
from collections.abc import Callable
from glob import escape
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from dpcore.errors import SourceError
from dpcore.spec.source import SourceSpec
from dpcore.tables.sources import parquet_file
from dpcore.tables.sources.ids import can_identify
from dpcore.tables.sources.source import Source, check_columns, check_types
from tests.dpcore.tables.sources import sources
from tests.dpcore.tables.sources.sources import located, read_batches, write, zstd


def rows(folder: Path, path: str, *columns: str, **options: str) -> list[tuple[object, ...]]:
    return sources.rows(located(folder, path, **options), *columns)


def test_csv_columns_are_text_in_the_order_asked_for_and_empty_text_is_null(tmp_path: Path) -> None:
    write(tmp_path, "t.csv", 'id,age,x\n007,41,a\n8,"",b\n9,,c\n')
    assert rows(tmp_path, "t.csv", "age", "id") == [("41", "007"), (None, "8"), (None, "9")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("t.csv", b"a,b\n1,2\n3,4\n", id="plain"),
        pytest.param("T.CSV", b"a,b\n1,2\n3,4\n", id="upper-case ending"),
        pytest.param("t.csv", b"a,b\n1,2\n3,4", id="no line break at the end"),
        pytest.param("t.csv", b"\n\na,b\n1,2\n\n\n3,4\n\n", id="blank lines"),
        pytest.param("t.csv", b"a,b\r\n1,2\r\n3,4\r\n", id="windows line breaks"),
        pytest.param("t.csv", b"a,b\r1,2\r3,4\r", id="old line breaks"),
        pytest.param("t.csv", b"\xef\xbb\xbfa,b\n1,2\n3,4\n", id="byte order mark"),
        pytest.param("t.csv", b'"a","b"\n"1","2"\n"3","4"\n', id="quoted"),
        pytest.param("t.csv", b'c,"a",c,b\n,"1",,2\n,"3",,4\n', id="others' names repeat"),
        pytest.param("t.tsv", b"a\tb\n1\t2\n3\t4\n", id="tabs"),
        pytest.param("t.csv.gz", gzip.compress(b"a,b\n1,2\n3,4\n"), id="gzip"),
        pytest.param("t.csv.gz", gzip.compress(b"a,b\n1,2\n") + gzip.compress(b"3,4\n"), id="gzip in two parts"),
        pytest.param("t.csv.zst", zstd(b"a,b\n1,2\n3,4\n"), id="zstd"),
        pytest.param("t.tsv.zst", zstd(b"a\tb\n1\t2\n") + zstd(b"3\t4\n"), id="zstd in two parts"),
        pytest.param("t.txt", b"a,b\n1,2\n3,4\n", id="text"),
        pytest.param("t.txt.gz", gzip.compress(b"a,b\n1,2\n3,4\n"), id="text and gzip"),
        pytest.param("t.tsv.gz", gzip.compress(b"a\tb\n1\t2\n3\t4\n"), id="tabs and gzip"),
    ],
)
def test_every_common_form_of_csv_reads_the_same(tmp_path: Path, name: str, content: bytes) -> None:
    write(tmp_path, name, content)
    assert rows(tmp_path, name, "a", "b") == [("1", "2"), ("3", "4")]


@pytest.mark.parametrize(
    ("content", "options"),
    [
        pytest.param(b"a;b\n1;2,0\n", {"delimiter": ";"}, id="semicolons"),
        pytest.param(b"a|b\n1|'2,0'\n", {"delimiter": "|", "quote": "'"}, id="bars and apostrophes"),
        pytest.param(b"a\tb\n1\t2,0\n", {"delimiter": "\t", "quote": "none"}, id="tabs without quoting"),
        pytest.param(b"a;b\n1;2,0\n", {"delimiter": ";", "encoding": "cp437"}, id="an old encoding"),
    ],
)
def test_delimiter_quote_and_encoding_may_be_declared(tmp_path: Path, content: bytes, options: dict[str, str]) -> None:
    write(tmp_path, "t.csv", content)
    assert rows(tmp_path, "t.csv", "a", "b", **options) == [("1", "2,0")]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-8", "gb2312", "koi8-r"])
def test_a_declared_encoding_reads_every_byte_and_no_row_has_a_say_in_another(tmp_path: Path, encoding: str) -> None:
    text = {"gb2312": "北京", "koi8-r": "Москва"}.get(encoding, "Zürich")
    good = f"{text},1\n".encode(encoding)
    bad = [bytes([first, second]) for first in (0x81, 0xE0, 0xFE, 0xFF) for second in (0x2C, 0x40, 0x81, 0xFF)]
    write(tmp_path, "t.csv", b"a,b\n" + b"".join(good + value + b",2\n" for value in bad) + good)
    found = rows(tmp_path, "t.csv", "a", "b", encoding=encoding)
    assert [row for row in found if row[1] == "1"] == [(text, "1")] * (len(bad) + 1)


def test_bytes_that_are_not_utf8_are_read_as_latin1_value_by_value(tmp_path: Path) -> None:
    write(tmp_path, "t.csv", b"gr\xf6\xdfe,b\nZ\xfcrich,\xff\xfe\n" + "Zürich,€\n".encode())
    assert rows(tmp_path, "t.csv", "größe", "b") == [("Zürich", "ÿþ"), ("Zürich", "€")]


def test_parquet_types_are_passed_through(tmp_path: Path) -> None:
    table = pa.table({"a": [1, None], "b": [1.5, 2.5], "c": [[1], []], "d": pa.array(["x", "y"]).dictionary_encode()})
    parquet.write_table(table, tmp_path / "t.parquet")
    batch = next(read_batches(Source.locate(SourceSpec(path="t.parquet"), base=tmp_path), columns=("d", "c", "a")))
    assert batch.schema.types == [table.schema.field(name).type for name in ("d", "c", "a")]
    assert rows(tmp_path, "t.parquet", "a", "d") == [(1, "x"), (None, "y")]


def test_a_dot_in_a_parquet_column_name_is_only_a_dot(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a.b": [1], "a": [2], "s": [{"t": 3}]}), tmp_path / "t.parquet")
    assert rows(tmp_path, "t.parquet", "a", "a.b") == [(2, 1)]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_text_in_parquet_that_is_not_utf8_becomes_valid_text(tmp_path: Path, kind: pa.DataType) -> None:
    raw = pa.array([b"Z\xfcrich", None, b"ok"])
    unchecked = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2], raw.buffers()[0])
    parquet.write_table(
        pa.table({"a": unchecked.cast(kind) if kind != pa.string() else unchecked}), tmp_path / "t.parquet"
    )
    assert rows(tmp_path, "t.parquet", "a") == [("Zürich",), (None,), ("ok",)]


def test_text_that_repeats_comes_with_each_value_once_and_says_the_same(tmp_path: Path) -> None:
    texts = {
        "few": [f"v{place % 7}" if place % 5 else None for place in range(40_000)],
        "many": [f"v{place}" for place in range(40_000)],
        "late": [f"v{max(place, 10_000)}" for place in range(40_000)],
    }
    write(tmp_path, "t.parquet", sources.parquet_bytes(pa.table(texts), row_group_size=12_000))
    assert rows(tmp_path, "t.parquet", "many", "few", "late") == list(
        zip(*(texts[name] for name in ("many", "few", "late")), strict=True)
    )
    batch = next(read_batches(located(tmp_path, "t.parquet"), columns=("few", "many")))
    assert batch.schema.types == [pa.dictionary(pa.int32(), pa.string()), pa.string()]


def test_a_parquet_file_is_split_by_row_groups_and_other_files_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"a": range(1000), "b": ["x" * 100] * 1000})
    write(tmp_path, "p/1.parquet", sources.parquet_bytes(table, row_group_size=100))
    write(tmp_path, "p/2.parquet", sources.parquet_bytes(table.slice(0, 0)))
    write(tmp_path, "a/1.arrow", sources.arrow_bytes(table))
    source = located(tmp_path, "p")
    assert len(source.pieces(ids=None)) == 2
    assert source.pieces(ids=None)[0].split() == source.pieces(ids=None)[:1]
    whole = [(place,) for place in range(1000)]
    for limit, value, pieces in (("PIECE_ROWS", 250, 5), ("PIECE_ROWS", 50, 10), ("PIECE_BYTES", 1, 10)):
        with monkeypatch.context() as patched:
            patched.setattr(parquet_file, limit, value)
            assert len(source.pieces(ids=None)) == pieces + 1
            assert sources.rows(source, "a") == whole
    assert len(located(tmp_path, "a").pieces(ids=None)) == 1


def test_a_folder_stands_for_its_tables_in_sorted_order(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv.gz", "c.tsv", "notes.txt", ".hidden.csv", "_temporary.csv", "sub/d.csv"):
        write(tmp_path, f"in/{name}", gzip.compress(b"a\n1\n") if name.endswith(".gz") else "a\n1\n")
    assert [path.name for path in Source.locate(SourceSpec(path="in"), base=tmp_path).local_files] == [
        "a.csv.gz",
        "b.csv",
        "c.tsv",
    ]
    assert rows(tmp_path, "in", "a") == [("1",)] * 3


def test_a_text_file_is_a_table_where_it_is_named_and_not_in_a_folder(tmp_path: Path) -> None:
    for name in ("1.txt", "2.txt", "3.csv"):
        write(tmp_path, name, "a\n1\n")
    assert [path.name for path in located(tmp_path, ".").local_files] == ["3.csv"]
    assert [path.name for path in located(tmp_path, "*.txt").local_files] == ["1.txt", "2.txt"]


def test_the_format_says_what_an_ending_does_not(tmp_path: Path) -> None:
    table = pa.table({"a": [1]})
    write(tmp_path, "p/part-0", sources.parquet_bytes(table))
    write(tmp_path, "p/part-1.dat", sources.parquet_bytes(table))
    write(tmp_path, "p/_SUCCESS", b"")
    write(tmp_path, "visits.data", sources.arrow_bytes(table))
    write(tmp_path, "visits.gz", gzip.compress(b"a\n1\n"))
    assert rows(tmp_path, "p", "a", format="parquet") == [(1,)] * 2
    assert rows(tmp_path, "visits.data", "a", format="arrow") == [(1,)]
    assert rows(tmp_path, "visits.gz", "a", format="csv") == [("1",)]


def test_a_file_address_is_a_path(tmp_path: Path) -> None:
    write(tmp_path, "t.csv", "a\n1\n")
    source = located(Path("elsewhere"), f"file://{tmp_path}/t.csv")
    assert source.local_files == (tmp_path / "t.csv",)
    assert sources.rows(source, "a") == [("1",)]
    assert len(located(Path("elsewhere"), f"file://{tmp_path}/*.csv").parts) == 1


def test_a_relative_path_is_the_same_file_for_who_works_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "in/t.csv", "a\n1\n")
    monkeypatch.chdir(tmp_path)
    for path in ("t.csv", "*.csv", ".", str(tmp_path / "in" / "*.csv"), "../in/*.csv"):
        source = located(Path("in"), path)
        assert [file.resolve() for file in source.local_files] == [(tmp_path / "in/t.csv").resolve()]
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir("/")
            assert sources.rows(source, "a") == [("1",)]


def test_a_pattern_stands_for_what_it_matches_relative_or_absolute(tmp_path: Path) -> None:
    for name in ("2025/1.csv", "2025/2.csv", "2026/1.csv", "2026/1.txt"):
        write(tmp_path, f"[odd] in/{name}", "a\n1\n")
    base = tmp_path / "[odd] in"
    names = [
        path.relative_to(base).as_posix() for path in Source.locate(SourceSpec(path="**/*"), base=base).local_files
    ]
    assert names == ["2025/1.csv", "2025/2.csv", "2026/1.csv"]
    assert (
        len(Source.locate(SourceSpec(path=str(tmp_path / "*" / "202?" / "1.csv")), base=Path("elsewhere")).parts) == 2
    )


@pytest.mark.parametrize(
    ("path", "odd", "found"),
    [
        ("visits", "x=*", "12*"),
        ("visits/*/*.csv", "*", "12*"),
        ("visits/x=*/p.csv", "x=*", "12*"),
        ("visits/x=*/*.csv", "x=*", "12*"),
        ("visits/x=?/*.csv", "x=?", "12*"),
        ("visits/x=[12]/*.csv", "x=[12]", "12"),
        ("visits/**/*.csv", "**", "12*"),
        ("v*/x=[[]/*.csv", "x=[", "*"),
    ],
)
@pytest.mark.parametrize("at", ["", "memory://dpflow-names/"], ids=["here", "elsewhere"])
def test_a_folder_that_is_named_as_the_pattern_is_one_of_those_that_it_may_match(
    tmp_path: Path, at: str, path: str, odd: str, found: str
) -> None:
    elsewhere = fsspec.filesystem("memory")
    for folder, value in (("x=1", "1"), ("x=2", "2"), (odd, "*")):
        write(tmp_path, f"visits/{folder}/p.csv", f"a\n{value}\n")
        elsewhere.pipe_file(f"/dpflow-names/visits/{folder}/p.csv", f"a\n{value}\n".encode())
    try:
        assert sorted(rows(tmp_path, f"{at}{path}", "a")) == sorted((value,) for value in found)
    finally:
        elsewhere.rm("/dpflow-names", recursive=True)


@pytest.mark.parametrize("named", [False, True])
def test_a_pattern_stands_for_files_and_not_for_folders_whatever_their_names(tmp_path: Path, named: bool) -> None:
    for folder in ("x=1", "x=*")[: 1 + named]:
        write(tmp_path, f"visits/{folder}/p.csv", "a\n1\n")
    with pytest.raises(SourceError, match="leads to no table"):
        located(tmp_path, "visits/x=*")


def test_brackets_are_a_pattern_in_the_path_of_a_spec_alone(tmp_path: Path) -> None:
    for folder in ("[ab]", "a"):
        write(tmp_path, f"{folder}/in [old]/1.csv", "a\n1\n")
    base = tmp_path / "[ab]"
    for path in ("in [[]old]", "in [[]old]/1.csv", "in [[]old]/*.csv", "i[n] [[]old]/*.csv", "*/1.csv"):
        assert located(base, path).local_files == (base / "in [old]" / "1.csv",)
    for path in ("in [old]", "in [old]/1.csv", "in [old]/*.csv"):
        with pytest.raises(SourceError, match=r"write \[\[\] for a bracket in a name"):
            located(base, path)
    assert escape(str(base)) != str(base)
    assert len(located(Path("elsewhere"), f"{escape(str(base / 'in [old]'))}/*.csv").parts) == 1


@pytest.mark.parametrize("path", ["none.csv", "none/*.csv", "empty", "empty/*", "notes.md", "**none/*.csv", "\0"])
def test_a_path_that_leads_to_no_table_is_refused_by_its_own_words(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path, "notes.md", "a\n1\n")
    with pytest.raises(SourceError) as refusal:
        Source.locate(SourceSpec(path=path), base=tmp_path)
    assert repr(path) in str(refusal.value)
    assert str(tmp_path) not in str(refusal.value)
    assert refusal.value.__context__ is None


def test_every_header_is_checked_before_any_row_is_read(tmp_path: Path) -> None:
    write(tmp_path, "1.csv", "a,b\n1,2\n")
    write(tmp_path, "2.csv", "a,secret\n1,2\n")
    source = Source.locate(SourceSpec(path="."), base=tmp_path)
    with pytest.raises(SourceError, match=r"'2\.csv' lacks the declared column 'b'"):
        next(read_batches(source, columns=("a", "b")))
    with pytest.raises(SourceError, match=r"'2\.csv'"):
        check_columns(source, columns=("a", "b"))
    check_columns(source, columns=("a",))


def linked(folder: Path) -> None:
    (folder / "latest.csv").symlink_to("2026.csv")


def hard_linked(folder: Path) -> None:
    (folder / "latest.csv").hardlink_to(folder / "2026.csv")


def linked_folder(folder: Path) -> None:
    (folder / "month=1").mkdir()
    (folder / "month=1" / "latest.csv").symlink_to(folder / "2026.csv")


def compressed(folder: Path) -> None:
    write(folder, "2026.csv.gz", gzip.compress(b"a\n1\n"))


def compressed_in_capitals(folder: Path) -> None:
    write(folder, "2026.CSV.ZST", zstd(b"a\n1\n"))


def with_tabs(folder: Path) -> None:
    write(folder, "2026.tsv", "a\n1\n")


@pytest.mark.parametrize(
    "again", [linked, hard_linked, linked_folder, compressed, compressed_in_capitals, with_tabs], ids=lambda again: again.__name__
)  # fmt: skip
def test_the_same_rows_twice_are_refused(tmp_path: Path, again: Callable[[Path], None]) -> None:
    write(tmp_path, "2026.csv", "a\n1\n")
    write(tmp_path, "2025.csv", "a\n1\n")
    assert rows(tmp_path, ".", "a") == [("1",), ("1",)]
    again(tmp_path)
    with pytest.raises(SourceError, match=r"2026.*rows would count twice; remove one"):
        located(tmp_path, ".")


def test_a_declared_format_does_not_hide_a_compressed_copy(tmp_path: Path) -> None:
    write(tmp_path, "2026.dat", "a\n1\n")
    write(tmp_path, "2026.dat.gz", gzip.compress(b"a\n1\n"))
    with pytest.raises(SourceError, match=r"'2026.dat' and '2026.dat.gz'"):
        located(tmp_path, ".", format="csv")


def test_files_of_one_name_in_several_folders_are_several_tables(tmp_path: Path) -> None:
    for month in "12":
        write(tmp_path, f"month={month}/t.csv", "a\n1\n")
    assert rows(tmp_path, ".", "month", "a") == [("1", "1"), ("2", "1")]


def test_a_link_to_nowhere_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    write(tmp_path, "2026.csv", "a\n1\n")
    (tmp_path / "2025.csv").symlink_to("gone.csv")
    with pytest.raises(SourceError, match=r"'2025.csv' cannot be opened"):
        rows(tmp_path, ".", "a")


def typed(folder: Path, *ids: pa.Array) -> Source:
    for number, column in enumerate(ids):
        parquet.write_table(pa.table({"id": column}), folder / f"{number}.parquet")
    return located(folder, ".")


def test_ids_that_do_not_compare_are_refused_by_type(tmp_path: Path) -> None:
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"]).cast(pa.binary(16)))
    for other in (uuids, pa.array([0], pa.timestamp("us")), pa.array([True]), pa.array([0], pa.time64("us"))):
        with pytest.raises(
            SourceError, match=r"'1.parquet' holds the ids of column 'id' as .*; write them in the same type"
        ):
            check_types(typed(tmp_path, pa.array(["x"]), other), reads={"id": can_identify})
    check_types(typed(tmp_path, pa.array(["x"]), uuids), reads={"id": lambda _: True})


def test_ids_may_be_numbers_in_one_file_and_text_in_another_or_be_missing(tmp_path: Path) -> None:
    check_types(
        typed(tmp_path, pa.nulls(1), pa.array([7]), pa.array(["7"]), pa.array([7.0])), reads={"id": can_identify}
    )

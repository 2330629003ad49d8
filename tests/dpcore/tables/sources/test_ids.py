"""One person is one id, however the files type it, and no two persons share one."""

import datetime as dt
import hashlib
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import compute, parquet

from dpcore.audit.whole_run import faults
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.tables.ingest import Coding, Draws, ingest
from dpcore.tables.sources import ids as reading_ids
from dpcore.tables.sources import partition
from dpcore.tables.sources.ids import (
    LIKE_FLOAT,
    UNDECODED,
    can_identify,
    family,
    hash_ids,
    numbers_in_text,
)
from dpcore.tables.sources.object_ids import as_id
from dpcore.tables.sources.source import Source
from dpcore.tables.sources.text import PER_SECOND, decoder, readable
from dpcore.universe import Categorical, Universe
from tests.dpcore.tables.sources.sources import located

NOBODY = -1


def codes(*pieces: pa.Array, key: bytes = b"k" * 32) -> list[int]:
    """Number the units by when their hash first comes up; NOBODY has none."""
    numbers: dict[tuple[int, ...], int] = {}
    found = []
    for piece in pieces:
        hashes, known = hash_ids(piece, key=key)
        assert hashes.shape == (len(piece), 2)
        for one, is_known in zip(map(tuple, hashes.tolist()), known.tolist(), strict=True):
            found.append(numbers.setdefault(one, len(numbers)) if is_known else NOBODY)
    return found


def extension(kind: pa.DataType, values: list[object]) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


SEVEN_EIGHT_AND_NULL = [
    pa.array([7, 8, None]),
    pa.array([7, 8, None], pa.uint8()),
    pa.array([7.0, 8.0, float("nan")]),
    pa.array([7.0, 8.0, None], pa.float32()),
    pa.array(np.array([7, 8, np.nan], dtype=np.float16)),
    pa.array(["7", "8", ""]),
    pa.array(["7", "8", None], pa.large_string()),
    pa.array(["7", "8", ""], pa.string_view()),
    pa.array([b"7", b"8", b""]),
    pa.array([b"7", b"8", None], pa.binary(1)),
    pa.array([b"7", b"8", b""], pa.binary_view()),
    pa.array([Decimal("7.00"), Decimal("8.00"), None]),
    pa.array([Decimal("7.00"), Decimal("8.00"), None], pa.decimal32(5, 2)),
    pa.array([Decimal("7.00"), Decimal("8.00"), None], pa.decimal64(9, 2)),
    pa.array(["7", "8", None]).dictionary_encode(),
    pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["7", "8", None])),
    pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), pa.array([7, 8, None])),
    extension(pa.bool8(), [7, 8, None]),
    extension(pa.json_(), ["7", "8", None]),
]


def test_ids_keep_their_number_over_batches_of_different_types() -> None:
    assert codes(*SEVEN_EIGHT_AND_NULL) == [0, 1, NOBODY] * len(SEVEN_EIGHT_AND_NULL)


DISTINCT = [
    pa.array(["a", "A", " a", "7", "07", "7.5", "-7"]),
    pa.array(["17.1", "17.10", "17.100", "17", "17.0", "17.", "100000", "1e+05", "1.0E5", "1e+16", "0", "-0", "0.0"]),
    pa.array([b"17.1", b"17.10", b"100000", b"1e+05", b"\xef\xbf\xbd", b"a\xef\xbf\xbd"]),
    pa.array([2**53, 2**53 + 1, -1, 0]),
    pa.array([2**64 - 1, 2**64 - 2], pa.uint64()),
    pa.array([2.0**53 - 1, -(2.0**53) + 1, 0.0, 1.0]),
    pa.array(["12e5", "1200000", "7e0", "7", "+7", "7.5", "7.05", "inf", "nan"]),
    pa.array([b"\xc3\xbc", b"\xfc"]),
    pa.array([b"\xc3\xbc", b"\xfc"], pa.binary_view()),
    pa.array([0, 1, -1, 2**62, -(2**62), 2**63 - 1], pa.int64()).view(pa.time64("us")),
    pa.array([0, 2**31 - 1, -(2**31)], pa.int32()).view(pa.date32()),
    pa.array([True, False]),
    pa.array([dt.date(2025, 1, 1), dt.date(2025, 1, 2)]),
    pa.array([0, 1, 2**62, 2**62 + 1], pa.timestamp("s")),
    pa.array([0, 1], pa.timestamp("us", "Europe/Paris")),
    pa.array([0, 1], pa.timestamp("us", "Nowhere/Nowhere")),
    pa.array([0, 1], pa.duration("s")),
    pa.array([b"\xff\xfe", b"\xff", b"\x00", b"\x00\x00"]),
    extension(pa.uuid(), [b"0123456789abcdef", b"\xff" * 16]),
]


@pytest.mark.parametrize("ids", DISTINCT, ids=lambda ids: str(ids.type))
def test_different_ids_stay_different(ids: pa.Array) -> None:
    assert codes(ids, ids) == [*range(len(ids))] * 2


def counted(values: list[int | None], kind: pa.DataType) -> pa.Array:
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.array(values, width).view(kind)


ONE_ID = {
    "zero": [pa.array([0]), pa.array([-0.0]), pa.array(["0"]), pa.array([Decimal("0.00"), Decimal("-0.00")])],
    "hundreds": [pa.array([700]), pa.array([Decimal(700)], pa.decimal128(30, -2)), pa.array(["700"])],
    "beyond every float": [
        pa.array([2**53 + 1]),
        pa.array([Decimal(2**53 + 1)], pa.decimal128(38, 4)),
        pa.array([str(2**53 + 1)]),
    ],
    "the largest float": [pa.array([2**53 - 1]), pa.array([2.0**53 - 1]), pa.array([str(2**53 - 1)])],
    "a moment": [
        counted([v], pa.timestamp(u)) for u, v in (("s", -2), ("ms", -2000), ("us", -2_000_000), ("ns", -(2 * 10**9)))
    ],
    "a day": [
        counted([3], pa.date32()),
        counted([3 * 86_400_000, 3 * 86_400_000 + 1], pa.date64()),
        counted([3 * 86_400], pa.timestamp("s")),
    ],
    "a moment in any zone": [
        counted([1], pa.timestamp("s", "UTC")),
        counted([1000], pa.timestamp("ms", "Europe/Paris")),
    ],
    "a time of day": [counted([1], pa.time32("s")), counted([10**9], pa.time64("ns"))],
    "bytes that are text": [pa.array(["Zoë"]), pa.array(["Zoë".encode()]), pa.array(["Zoë".encode()], pa.binary(4))],
}


@pytest.mark.parametrize("name", ONE_ID)
def test_equal_values_are_one_id(name: str) -> None:
    assert set(codes(*ONE_ID[name])) == {0}


NO_WHOLE_NUMBER = [
    pa.array([Decimal("7.50"), Decimal("17.10"), Decimal("0.01")], pa.decimal128(38, 2)),
    pa.array([Decimal("1E-10")], pa.decimal128(38, 12)),
]


@pytest.mark.parametrize("ids", NO_WHOLE_NUMBER, ids=lambda ids: str(ids.type))
def test_a_fraction_is_nobody_and_the_others_stay(ids: pa.Array) -> None:
    seven = pa.array([7]).cast(ids.type)
    assert codes(pa.array([7]), pa.concat_arrays([ids, seven])) == [0, *[NOBODY] * len(ids), 0]


def test_text_that_could_not_be_decoded_is_nobody() -> None:
    decode = decoder("utf-8")
    assert codes(pa.array([*map(decode, (b"M\xfcller", b"M\xf6ller", b"Miller"))])) == [NOBODY, NOBODY, 0]
    assert decoder("utf-7")(b"+2AA-") == "\ufffd"  # a lone surrogate


FAMILIES = [
    [pa.int8(), pa.uint64(), pa.float16(), pa.decimal128(5, 2), pa.string(), pa.large_binary(), pa.dictionary(pa.int8(), pa.string()), pa.json_()],
    [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns"), pa.dictionary(pa.int8(), pa.date32())],
    [pa.timestamp("s", "UTC"), pa.timestamp("ns", "Europe/Paris")],
    [pa.time32("s"), pa.time64("ns")],
    [pa.duration("s"), pa.duration("ns")],
    [pa.bool_(), pa.run_end_encoded(pa.int32(), pa.bool_())],
    [pa.uuid()],
    [pa.null()],
]  # fmt: skip


def test_types_are_of_one_family_if_their_ids_can_be_compared() -> None:
    names = [{family(kind) for kind in kinds} for kinds in FAMILIES]
    assert all(len(one) == 1 for one in names)
    assert len(set.union(*names)) == len(FAMILIES)


def test_a_dictionary_of_lists_holds_no_ids() -> None:
    assert not can_identify(pa.dictionary(pa.int8(), pa.list_(pa.int8())))
    assert can_identify(pa.dictionary(pa.int8(), pa.int8()))


TWO_FILES = {
    "a column with a gap": [pa.array([2**53 + 1]), pa.array([float(2**53 + 1)])],
    "beyond int64": [pa.array([2**63], pa.uint64()), pa.array([2.0**63])],
    "float32": [pa.array([16777217]), pa.array(np.array([16777217], np.float32))],
    "units of time": [pa.array([0], pa.timestamp("us")), pa.array([0], pa.timestamp("ns"))],
    "an integer column with gaps, as text": [pa.array(["7.0"]), pa.array([7])],
    "as R, Java and Arrow write it": [pa.array(["1e+05", "1.0E5"]).dictionary_encode(), pa.array([100_000.0])],
    "with the zeros of a decimal": [pa.array([b"7.00", b"7."], pa.binary_view()), pa.array([Decimal("7.0")])],
    "minus zero": [pa.array(["-0.0", "-0", "0"]), pa.array([0])],
    "text that may have been rounded": [pa.array([7]), pa.array(["9007199254740992.0", "1e+16", "9" * 5000 + ".0"])],
}


def kept(source: Source) -> int:
    protection = Protection(unit="id", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
    coding = Coding(universe=Universe({"ward": Categorical(("a", "b"))}), protection=protection, window=None)
    return sum(len(codes[0]) for codes, _ in ingest(source, coding=coding, draws=Draws.fresh()).chunks())


@pytest.mark.parametrize("name", TWO_FILES)
def test_one_person_in_two_files_has_one_row(tmp_path: Path, name: str) -> None:
    assert kept(files(tmp_path, *TWO_FILES[name])) == 1


def files(folder: Path, *parts: pa.Array) -> Source:
    for number, ids in enumerate(parts):
        parquet.write_table(pa.table({"id": ids, "ward": ["a"] * len(ids)}), folder / f"{number}.parquet")
    return located(folder, ".")


PERSONS = pa.array(["17.1", "17.10", "17.100", "17.5", "17.50", "1.5e-07", "07", "7", "12e5", "9007199254740992.5"])


def test_persons_whose_texts_differ_are_several_also_among_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept(files(tmp_path, PERSONS, pa.array(["7.0", "17.0", "1e+05", "100000"]))) == len(PERSONS) + 4
    assert kept(files(tmp_path, PERSONS, pa.array([7, 17]))) == len(PERSONS) + 1
    monkeypatch.setattr(partition, "numbers_in_text", faults.trailing_zeros_removed)
    assert kept(files(tmp_path, PERSONS, pa.array([7, 17]))) < len(PERSONS) + 1


def test_a_file_is_read_among_numbers_also_by_the_names_of_its_folders(tmp_path: Path) -> None:
    for folder, table in {"id=7.0": {"ward": ["a"]}, "year=2025": {"id": [7], "ward": ["a"]}}.items():
        (tmp_path / folder).mkdir()
        parquet.write_table(pa.table(table), tmp_path / folder / "t.parquet")
    assert kept(located(tmp_path, ".")) == 1


def as_decimal(kind: pa.DataType) -> Callable[[int], pa.Array]:
    return lambda number: pa.array([Decimal(number)], kind)


def as_moment(unit: str) -> Callable[[int], pa.Array]:
    return lambda number: counted([number * PER_SECOND[unit]], pa.timestamp(unit))


NUMBERS: list[Callable[[int], pa.Array]] = [
    *(lambda number, kind=kind: pa.array([number], kind) for kind in (pa.int16(), pa.int32(), pa.int64())),
    *(lambda number, kind=kind: pa.array(np.array([number], kind)) for kind in (np.float16, np.float32, np.float64)),
    *map(as_decimal, (pa.decimal32(9, 1), pa.decimal64(18, 4), pa.decimal128(38), pa.decimal256(76, 20))),
    lambda number: pa.array([str(number)]),
]
MOMENTS = [*map(as_moment, PER_SECOND)]
LAYOUTS: list[Callable[[pa.Array], pa.Array]] = [
    lambda ids: ids,
    lambda ids: pa.DictionaryArray.from_arrays(pa.array([0]), ids),
    lambda ids: pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), ids),
]
EXACT_EVERYWHERE = st.integers(1 - 2**11, 2**11 - 1)
LOOK_ALIKE = [
    "\u00e9",
    "e\u0301",
    "\ufb01",
    "fi",
    "\uff17",
    "\u200b7",
    "\u2126",
    "\u03a9",
    "A",
    "a",
    " 7",
    "7 ",
    "a\0",
    "\ufeff7",
    "x\u2028",
    "x",
]
ALIKE = [*PERSONS.to_pylist(), "7.0", "7.", "1e+05", "100000", "0", "-0", *LOOK_ALIKE]
TEXTS = st.lists(
    st.one_of(st.sampled_from(ALIKE), st.from_regex(LIKE_FLOAT), st.text(min_size=1)), unique=True, max_size=20
)


@given(texts=TEXTS)
@settings(deadline=None, derandomize=True)
def test_texts_are_one_id_only_if_they_are_one_text(texts: list[str]) -> None:
    texts = [text for text in texts if UNDECODED not in text]
    assert codes(pa.array(texts, pa.string())) == [*range(len(texts))]
    assert codes(pa.array([text.encode() for text in texts], pa.binary())) == [*range(len(texts))]
    objects = pa.array([as_id(value) for text in texts for value in (text, (text, 1))], pa.string())
    assert codes(objects) == [*range(2 * len(texts))]


def test_texts_that_only_look_alike_are_several_persons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv").write_text("id,ward\n" + "".join(f'"{text}",a\n' for text in ALIKE), encoding="utf-8")
    parquet.write_table(pa.table({"id": ALIKE, "ward": ["a"] * len(ALIKE)}), tmp_path / "t.parquet")
    assert [kept(located(tmp_path, name)) for name in ("t.csv", "t.parquet")] == [len(ALIKE)] * 2
    monkeypatch.setattr(reading_ids, "readable", lambda values: compute.utf8_normalize(readable(values), "NFC"))
    assert [kept(located(tmp_path, name)) < len(ALIKE) for name in ("t.csv", "t.parquet")] == [True] * 2


@given(numbers=st.tuples(EXACT_EVERYWHERE, EXACT_EVERYWHERE), layout=st.sampled_from(LAYOUTS))
@settings(deadline=None, derandomize=True)
def test_values_are_one_id_if_and_only_if_they_are_equal(
    numbers: tuple[int, int], layout: Callable[[pa.Array], pa.Array]
) -> None:
    first, second = numbers
    for writers in (NUMBERS, MOMENTS):
        arrays = [layout(write(number)) for number in numbers for write in writers]
        assert codes(*arrays) == [0] * len(writers) + [int(first != second)] * len(writers)


@pytest.mark.parametrize("read", [numbers_in_text, faults.trailing_zeros_removed], ids=lambda read: read.__name__)
def test_texts_that_are_read_as_numbers_where_no_part_holds_numbers_are_caught(
    read: Callable[[pa.Array], pa.Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = hash_ids
    monkeypatch.setattr(sys.modules[__name__], "hash_ids", lambda column, *, key: hashes(read(column), key=key))
    with pytest.raises(AssertionError):
        test_texts_are_one_id_only_if_they_are_one_text()


NO_IDS = [
    pa.nulls(2),
    pa.array([[1], [2]]),
    pa.array([{"a": 1}, None]),
    pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
    pa.array([[1], [2]], pa.list_view(pa.int64())),
    pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]),
    pa.array([(1, 2, 3), (1, 2, 4)], pa.month_day_nano_interval()),
]


@pytest.mark.parametrize("ids", NO_IDS, ids=lambda ids: str(ids.type))
def test_what_cannot_be_an_id_is_nobody(ids: pa.Array) -> None:
    assert codes(pa.array(["a"]), ids) == [0, NOBODY, NOBODY]


def test_a_hash_is_blake2b_of_the_id_under_the_runs_key() -> None:
    hashes, known = hash_ids(pa.array([7.0, None]), key=b"k" * 32)
    assert hashes[0].tobytes() == hashlib.blake2b(b"7", key=b"k" * 32, digest_size=16).digest()
    assert known.tolist() == [True, False]
    assert hash_ids(pa.array(["7"]), key=b"l" * 32)[0].tolist() != hashes[:1].tolist()

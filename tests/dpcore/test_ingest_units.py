"""One person is one id, however the files type it."""

import datetime as dt
import hashlib
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from dpcore.ingest.units import hash_ids

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
    pa.array(["7.0", "8.", None]),
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


@pytest.mark.parametrize("ids", SEVEN_EIGHT_AND_NULL, ids=lambda ids: str(ids.type))
def test_an_id_is_the_same_in_every_type_that_can_write_it(ids: pa.Array) -> None:
    assert codes(pa.array([8, 7]), ids) == [0, 1, 1, 0, NOBODY]


def test_ids_keep_their_number_over_batches_of_different_types() -> None:
    assert codes(*SEVEN_EIGHT_AND_NULL) == [0, 1, NOBODY] * len(SEVEN_EIGHT_AND_NULL)


DISTINCT = [
    pa.array(["a", "A", " a", "7", "07", "7.5", "-7"]),
    pa.array([2**53, 2**53 + 1, -1, 0]),
    pa.array([2**64 - 1, 2**64 - 2], pa.uint64()),
    pa.array([1e300, 1e301, 2.0**63, -(2.0**63), float("inf"), 0.1, 0.25]),
    pa.array([True, False]),
    pa.array([dt.date(2025, 1, 1), dt.date(2025, 1, 2)]),
    pa.array([0, 1, 2**62, 2**62 + 1], pa.timestamp("s")),
    pa.array([0, 1], pa.timestamp("us", "Europe/Paris")),
    pa.array([0, 1], pa.duration("s")),
    pa.array([b"\xff\xfe", b"\xff", b"\x00", b"\x00\x00"]),
    extension(pa.uuid(), [b"0123456789abcdef", b"\xff" * 16]),
]


@pytest.mark.parametrize("ids", DISTINCT, ids=lambda ids: str(ids.type))
def test_different_ids_stay_different(ids: pa.Array) -> None:
    assert codes(ids, ids) == [*range(len(ids))] * 2


NO_IDS = [
    pa.nulls(2),
    pa.array([[1], [2]]),
    pa.array([{"a": 1}, None]),
    pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
    pa.array([[1], [2]], pa.list_view(pa.int64())),
    pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]),
    pa.array([(1, 2, 3), (1, 2, 4)], pa.month_day_nano_interval()),
    pa.array([0, 1], pa.timestamp("us", "Nowhere/Nowhere")),
]


@pytest.mark.parametrize("ids", NO_IDS, ids=lambda ids: str(ids.type))
def test_what_cannot_be_an_id_is_nobody(ids: pa.Array) -> None:
    assert codes(pa.array(["a"]), ids) == [0, NOBODY, NOBODY]


def test_no_rows_and_no_batches_are_fine() -> None:
    assert codes() == []
    assert codes(pa.array([], pa.string()), pa.array([], pa.float64())) == []


def test_a_hash_is_blake2b_of_the_id_under_the_runs_key() -> None:
    hashes, known = hash_ids(pa.array([7.0, None]), key=b"k" * 32)
    assert hashes[0].tobytes() == hashlib.blake2b(b"7", key=b"k" * 32, digest_size=16).digest()
    assert known.tolist() == [True, False]
    assert hash_ids(pa.array(["7"]), key=b"l" * 32)[0].tolist() != hashes[:1].tolist()

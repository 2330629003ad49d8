"""Arrow and Feather files: columns as they are typed, checked to the last value."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc

from dpcore.errors import SourceBroken, SourceError
from tests.dpcore.tables.sources.sources import arrow_bytes, located, read_batches, rows, shared_views, write

TABLE = pa.table(
    {
        "a": [1, None, 3],
        "b": ["x", None, "z"],
        "c": pa.array(["u", "v", "u"]).dictionary_encode(),
        "d": pa.array(["u", "v", None], pa.string_view()),
        "e": [[1], [], None],
        "f": pa.array([b"x", None, b"z"], pa.large_binary()),
    }
)


@pytest.mark.parametrize("stream", [False, True])
def test_names_and_types_are_read_without_a_row_or_a_dictionary(tmp_path: Path, stream: bool) -> None:
    content = arrow_bytes(TABLE, stream=stream)
    begin = content.index(b"\xff\xff\xff\xff", 16)  # of the first message after the schema, which is a dictionary
    end = len(content) if stream else len(content) - 10 - int.from_bytes(content[-10:-6], "little")
    write(tmp_path, "t.arrow", content[:begin] + b"\xab" * (end - begin) + content[end:])
    source = located(tmp_path, "t.arrow")
    assert source.parts[0].column_names() == TABLE.column_names
    assert source.parts[0].column_types(("a", "c")) == [pa.int64(), pa.dictionary(pa.int32(), pa.string())]
    with pytest.raises(SourceBroken):
        rows(source, "c")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()])
def test_views_of_more_text_than_32_bits_can_count_are_read(tmp_path: Path, kind: pa.DataType, stream: bool) -> None:
    long, last = "x" * (1 << 15), "y" * 33
    views = shared_views(long, 100_000, last=last)  # 3.3 GB of text, in 1.6 MB
    write(tmp_path, "t.arrow", arrow_bytes(pa.table({"a": views.view(kind)}), stream=stream))
    (batch,) = read_batches(located(tmp_path, "t.arrow"), columns=("a",))
    values = [long, last] if kind == pa.string_view() else [long.encode(), last.encode()]
    assert batch.column(0).dictionary.to_pylist() == values
    assert batch.column(0).indices.to_pylist() == [0] * 100_000 + [1]


def test_an_array_that_points_outside_of_itself_is_refused_before_anything_is_read_there(tmp_path: Path) -> None:
    wild = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\xff\xff\xff\x7f\2\0\0\0"), pa.py_buffer(b"xy")]
    )
    write(tmp_path, "t.arrow", arrow_bytes(pa.table({"a": wild})))
    with pytest.raises(SourceError, match="not a complete Arrow file"):
        rows(located(tmp_path, "t.arrow"), "a")
    beyond = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["x"]), safe=False)
    write(tmp_path, "t.arrow", arrow_bytes(pa.table({"a": beyond})))
    with pytest.raises(SourceError, match="not a complete Arrow file"):
        rows(located(tmp_path, "t.arrow"), "a")


def counted(values: list[int], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def runs(values: pa.Array) -> pa.Array:
    ends = pa.array([1, 2], pa.int32())
    return pa.Array.from_buffers(pa.run_end_encoded(ends.type, values.type), 2, [None], children=[ends, values])


NOT_UTF8 = pa.array([b"x", b"\xfc"]).view(pa.string())
ODD = {
    "a day with a time": counted([0, 1], pa.date64()),
    "a late time": counted([0, 90_000], pa.time32("s")),
    "a time before midnight": counted([0, -1], pa.time64("ns")),
    "a number with too many digits": pa.Array.from_buffers(
        pa.decimal64(5, 2), 2, [None, pa.py_buffer(bytes(8) + b"\x7f" * 8)]
    ),
    "in a dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1]), counted([0, 1], pa.date64())),
    "in runs": runs(counted([0, 1], pa.date64())),
    "no UTF-8": NOT_UTF8,
    "no UTF-8 in runs": runs(NOT_UTF8),
    "no UTF-8 in an extension": pa.ExtensionArray.from_storage(pa.json_(), NOT_UTF8),
    "a null in a dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["x", None])),
}


@pytest.mark.parametrize("name", ODD)
def test_one_odd_value_does_not_refuse_a_file(tmp_path: Path, name: str) -> None:
    write(tmp_path, "t.arrow", arrow_bytes(pa.table({"a": ODD[name]})))
    assert sum(batch.num_rows for batch in read_batches(located(tmp_path, "t.arrow"), columns=("a",))) == 2


def test_runs_that_end_elsewhere_are_still_refused(tmp_path: Path) -> None:
    ends, values = pa.array([3, 2, 4], pa.int32()), pa.array(["x", "y", "z"])
    wild = pa.Array.from_buffers(pa.run_end_encoded(ends.type, values.type), 4, [None], children=[ends, values])
    write(tmp_path, "t.arrow", arrow_bytes(pa.table({"a": wild})))
    with pytest.raises(SourceError, match="not a complete Arrow file"):
        rows(located(tmp_path, "t.arrow"), "a")


@pytest.mark.parametrize("stream", [False, True])
def test_a_delta_dictionary_is_read_and_one_that_is_not_utf8_keeps_the_reservation(
    tmp_path: Path, stream: bool
) -> None:
    schema = pa.schema({"x": pa.dictionary(pa.int8(), pa.string())})

    def written(last: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        new = ipc.new_stream if stream else ipc.new_file
        with new(sink, schema, options=ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
            for values in ([b"F"], [b"F", last]):
                places = pa.array([len(values) - 1], pa.int8())
                column = pa.DictionaryArray.from_arrays(places, pa.array(values).view(pa.string()))
                writer.write_batch(pa.record_batch([column], schema=schema))
        return sink.getvalue().to_pybytes()

    write(tmp_path, "t.arrow", written(b"M"))
    assert rows(located(tmp_path, "t.arrow"), "x") == [("F",), ("M",)]
    write(tmp_path, "t.arrow", written(b"\xff"))
    with pytest.raises(SourceBroken):
        rows(located(tmp_path, "t.arrow"), "x")

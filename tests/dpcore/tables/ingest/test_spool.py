"""Chunks come back as they were appended, from memory or from a file that has no name."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import SourceBroken, UsageError
from dpcore.tables.ingest import spool as spool_module
from dpcore.tables.ingest.spool import Spool

CANARY = 0x5EC2E7


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "private"))
    return tmp_path / "private"


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MEMORY_BYTES", 0)


def chunk_of(rows: int, *, start: int = 0) -> tuple[np.ndarray, ...]:
    numbers = np.arange(start, start + rows)
    return numbers.astype(np.uint8), numbers.astype(np.uint32), numbers.astype(np.uint64) * CANARY


def equal(chunks: list[tuple[np.ndarray, ...]], others: list[tuple[np.ndarray, ...]]) -> bool:
    return all(
        np.array_equal(array, other) and array.dtype == other.dtype
        for chunk, expected in zip(chunks, others, strict=True)
        for array, other in zip(chunk, expected, strict=True)
    )


@given(lengths=st.lists(st.integers(1, 200), max_size=12), limit=st.sampled_from([0, 1_000, 5_000, 1 << 20]))
def test_blocks_come_back_in_order_however_many_fit_into_memory(lengths: list[int], limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool_module, "MEMORY_BYTES", limit)
        chunks = [chunk_of(rows, start=7 * rows) for rows in lengths]
        spool = Spool()
        for chunk in chunks:
            spool.append(chunk)
        assert equal(list(spool.chunks()), chunks)
        assert equal(list(spool.chunks()), chunks)
        spool.close()


def test_the_limit_is_shared_by_all_spools_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(array.nbytes for array in chunk_of(100))
    monkeypatch.setattr(spool_module, "MEMORY_BYTES", spool_module._MEMORY._taken + size)
    first, second = Spool(), Spool()
    first.append(chunk_of(100))
    second.append(chunk_of(100))
    assert first._file is None
    assert second._file is not None
    first.close()
    third = Spool()
    third.append(chunk_of(100))
    assert third._file is None
    del third
    fourth = Spool()
    fourth.append(chunk_of(100))
    assert fourth._file is None


@pytest.mark.usefixtures("no_memory")
def test_the_file_has_no_name_and_nobody_else_may_enter_its_folder(folder: Path) -> None:
    spool = Spool()
    spool.append(chunk_of(1_000))
    assert list(folder.iterdir()) == []
    assert folder.stat().st_mode & 0o077 == 0
    spool.close()


@pytest.mark.usefixtures("no_memory")
def test_several_threads_read_at_once() -> None:
    spool = Spool()
    chunks = [chunk_of(5_000, start=start) for start in range(20)]
    for chunk in chunks:
        spool.append(chunk)
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: list(spool.chunks()), range(8)):
            assert equal(found, chunks)


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_what_was_appended_is_a_copy_and_what_comes_back_cannot_be_changed(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(spool_module, "MEMORY_BYTES", limit)
    spool = Spool()
    values = np.arange(10)
    spool.append([values[::2]])
    values[:] = 0
    ((found,),) = spool.chunks()
    assert found.tolist() == [0, 2, 4, 6, 8]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


@pytest.mark.usefixtures("no_memory")
def test_a_full_disk_is_one_constant_sentence_without_a_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Path("/dev/full").open("wb", buffering=0))  # noqa: SIM115  the spool closes it
    with pytest.raises(SourceBroken, match="free space on its disk") as raised:
        Spool().append(chunk_of(10))
    assert raised.value.__context__ is None


@pytest.mark.usefixtures("no_memory")
def test_a_file_that_has_become_shorter_is_refused() -> None:
    spool = Spool()
    spool.append(chunk_of(1_000))
    assert spool._file is not None
    spool._file.truncate(5_000)
    with pytest.raises(SourceBroken):
        list(spool.chunks())


@pytest.mark.usefixtures("no_memory")
def test_a_folder_that_cannot_be_made_is_the_same_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "file" / "private"))
    with pytest.raises(SourceBroken, match="DPFLOW_PRIVATE"):
        Spool().append(chunk_of(10))


def test_an_empty_block_is_left_out() -> None:
    spool = Spool()
    spool.append(chunk_of(0))
    assert list(spool.chunks()) == []


def test_arrays_of_other_lengths_or_types_and_a_closed_spool_are_refused() -> None:
    spool = Spool()
    with pytest.raises(UsageError):
        spool.append([np.zeros(2), np.zeros(3)])
    with pytest.raises(UsageError):
        spool.append([np.zeros((2, 2))])
    spool.append([np.zeros(2)])
    with pytest.raises(UsageError):
        spool.append([np.zeros(2, dtype=np.uint8)])
    spool.close()
    with pytest.raises(UsageError):
        spool.append([np.zeros(2)])

"""The data's version tells equality and nothing else, and its key is made once."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from dpcore.errors import LedgerError, SourceError
from dpcore.ingest.csv_file import CsvFile
from dpcore.ingest.fingerprint import KEY_NAME, data_version, fingerprint_key
from dpcore.ingest.source import Source
from dpcore.ingest.stored_file import StoredFile

KEY = bytes(range(32))


def version(folder: Path, *contents: bytes, key: bytes = KEY) -> str:
    folder.mkdir()
    paths = [folder / f"{place}.csv" for place in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return data_version(Source(tuple(CsvFile(StoredFile(str(path))) for path in paths)), columns=(), key=key)


def test_equal_contents_have_equal_versions_wherever_they_lie(tmp_path: Path) -> None:
    assert version(tmp_path / "1", b"a", b"b") == version(tmp_path / "2", b"a", b"b")


@pytest.mark.parametrize(
    "changed", [(b"a", b"c"), (b"b", b"a"), (b"ab",), (b"ab", b"b"), (b"a", b"b", b"b"), (b"a", b"ab")]
)
def test_any_change_of_content_order_or_division_changes_the_version(
    tmp_path: Path, changed: tuple[bytes, ...]
) -> None:
    assert version(tmp_path / "1", b"a", b"b") != version(tmp_path / "2", *changed)


def test_without_the_key_a_guess_cannot_be_tested(tmp_path: Path) -> None:
    assert version(tmp_path / "1", b"a") != version(tmp_path / "2", b"a", key=bytes(32))


def test_a_file_that_has_gone_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"'gone\.csv' cannot be opened") as refusal:
        data_version(Source((CsvFile(StoredFile(str(tmp_path / "gone.csv"))),)), columns=(), key=KEY)
    assert refusal.value.__context__ is None


def test_the_key_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    key = fingerprint_key(folder)
    assert len(key) == 32
    assert fingerprint_key(folder) == key
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / KEY_NAME).stat().st_mode & 0o777 == 0o600
    assert fingerprint_key(tmp_path / "other") != key


def test_all_who_make_the_key_at_once_get_the_same_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for round_ in range(20):
            folder, together = tmp_path / str(round_), Barrier(8)

            def make(_: int, folder: Path = folder, together: Barrier = together) -> bytes:
                together.wait()
                return fingerprint_key(folder)

            assert len(set(pool.map(make, range(8)))) == 1
            assert [path.name for path in folder.iterdir()] == [KEY_NAME]


def test_a_failure_while_making_the_key_leaves_no_half_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(LedgerError, match="cannot be kept"):
        fingerprint_key(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_or_open_key_is_refused_with_what_to_do(tmp_path: Path) -> None:
    fingerprint_key(tmp_path)
    (tmp_path / KEY_NAME).chmod(0o640)
    with pytest.raises(LedgerError, match="chmod 600"):
        fingerprint_key(tmp_path)
    (tmp_path / KEY_NAME).write_bytes(b"short")
    with pytest.raises(LedgerError, match="damaged; restore it"):
        fingerprint_key(tmp_path)

"""Files elsewhere: any address that fsspec reads, without a secret in it."""

import pickle
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from dpcore.errors import SourceBroken, SourceError
from tests.dpcore.tables.sources.sources import (
    CANARY,
    check_silent,
    located,
    rows,
)

KEY = bytes(range(32))
TABLE = pa.table({"a": [1, 2], "b": ["x", "y"]})


@pytest.fixture
def elsewhere() -> Iterator[fsspec.AbstractFileSystem]:
    """A file system that is not this machine's."""
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/dpflow", recursive=True)


@pytest.mark.parametrize("path", ["memory://dpflow", "memory://dpflow/", "memory://dpflow/*/*.csv"])
def test_folders_and_patterns_elsewhere_are_as_here(
    tmp_path: Path, elsewhere: fsspec.AbstractFileSystem, path: str
) -> None:
    for month in ("2", "1"):
        elsewhere.pipe(f"/dpflow/month={month}/x.csv", f"a\n{month}\n".encode())
    for name in ("_temporary=1/x.csv", ".hidden.csv", "notes.md", "other/x.md"):
        elsewhere.pipe(f"/dpflow/{name}", b"a\n7\n")
    elsewhere.rm("/dpflow/_temporary=1", recursive=True) if "*" in path else None
    assert rows(located(tmp_path, path), "a", "month") == [("1", "1"), ("2", "2")]


@pytest.mark.parametrize("name", ["a::b", "a://b", "a?b", "a#b", "s3://a::memory://b", "\ud800\udcff"])
def test_a_folder_elsewhere_may_have_any_name(tmp_path: Path, elsewhere: fsspec.AbstractFileSystem, name: str) -> None:
    elsewhere.pipe(f"/dpflow/name={name.replace('/', '%2F')}/x.csv", b"a\n1\n")
    expected = name.encode("utf-8", "replace").decode()
    assert rows(located(tmp_path, "memory://dpflow"), "a", "name") == [("1", expected)]


def test_a_folder_that_cannot_be_opened_by_its_name_keeps_the_reservation_and_its_name(
    tmp_path: Path, elsewhere: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere.pipe(f"/dpflow/name={CANARY}?b/x.csv", b"a\n1\n")
    source = located(tmp_path, "memory://dpflow")

    def failing(_: str) -> None:
        raise ValueError(CANARY)

    with monkeypatch.context() as patched:
        patched.setattr(type(elsewhere), "_get_kwargs_from_urls", failing)
        with pytest.raises(SourceBroken, match="cannot be read here; set the credentials") as refusal:
            rows(source, "a")
        check_silent(refusal.value)
    elsewhere.pipe(f"/dpflow/name={CANARY}?b/x.csv", b"")
    with pytest.raises(SourceError, match=r"^'x\.csv' is empty") as refusal:
        rows(source, "a")
    check_silent(refusal.value)


def test_what_is_not_there_is_refused_by_the_words_of_the_spec(
    tmp_path: Path, elsewhere: fsspec.AbstractFileSystem
) -> None:
    elsewhere.pipe("/dpflow/t.csv", b"a\n1\n")
    with pytest.raises(SourceError, match=r"'memory://dpflow/none\.csv' leads to no table"):
        located(tmp_path, "memory://dpflow/none.csv")
    source = located(tmp_path, "memory://dpflow/t.csv")
    elsewhere.rm("/dpflow/t.csv")
    elsewhere.pipe("/dpflow/u.csv", CANARY.encode())
    with pytest.raises(SourceError, match=r"'t\.csv' cannot be opened") as refusal:
        rows(source, "a")
    check_silent(refusal.value)


@pytest.mark.parametrize(
    ("address", "package"),
    [
        ("s3://bucket/visits.parquet", "s3fs"),
        ("gs://bucket/visits.parquet", "gcsfs"),
        ("az://bucket/visits.parquet", "adlfs"),
        ("abfs://container@account.dfs.core.windows.net/visits.parquet", "adlfs"),
        ("https://example.org/visits.csv", "aiohttp"),
    ],
)
def test_a_file_system_that_is_not_installed_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, package: str
) -> None:
    def missing(_: str) -> None:
        raise ImportError(CANARY)

    monkeypatch.setattr("dpcore.tables.sources.stored_file.get_filesystem_class", missing)
    with pytest.raises(SourceError, match=f"`pip install {package}`") as refusal:
        located(tmp_path, address)
    check_silent(refusal.value)


def test_credentials_come_from_the_environment_and_are_in_nothing_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[dict[str, object]] = []

    class Locked(type(fsspec.filesystem("memory"))):  # type: ignore[misc]  a class of theirs
        """A file system that takes a key, as fsspec lets the environment configure it."""

        protocol = "locked"
        cachable = False

        def __init__(self, *args: object, **options: object) -> None:
            taken.append(options)
            super().__init__()

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return "/" + path.removeprefix("locked://").lstrip("/")

    registry = import_module("fsspec.registry")
    monkeypatch.setitem(registry._registry, "locked", Locked)
    monkeypatch.setitem(registry.known_implementations, "locked", {"class": "not.needed"})
    monkeypatch.setitem(fsspec.config.conf, "locked", {"key": CANARY})  # what FSSPEC_LOCKED_KEY sets
    fsspec.filesystem("memory").pipe("/dpflow-locked/t.csv", b"a\n1\n")
    source = located(tmp_path, "locked://dpflow-locked/t.csv")
    assert rows(source, "a") == [("1",)]
    assert taken[0] == {"key": CANARY}
    assert CANARY not in repr(source)
    assert CANARY.encode() not in pickle.dumps(source)
    fsspec.filesystem("memory").rm("/dpflow-locked", recursive=True)


@pytest.mark.parametrize("path", ["MEMORY://dpflow/t.csv", "Memory://dpflow", "mEmOrY://dpflow/*.csv"])
def test_a_scheme_in_capitals_means_the_same(tmp_path: Path, path: str) -> None:
    fsspec.filesystem("memory").pipe_file("/dpflow/t.csv", b"a\n1\n")
    assert rows(located(tmp_path, path), "a") == [("1",)]


@pytest.mark.parametrize("scheme", ["file", "FILE", "Local"])
def test_a_file_of_this_machine_may_be_named_by_a_scheme_in_capitals(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    source = located(tmp_path, f"{scheme}://{tmp_path}/t.csv")
    assert source.local_files == (tmp_path / "t.csv",)
    assert rows(source, "a") == [("1",)]

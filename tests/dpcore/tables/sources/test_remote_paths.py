"""A remote file is opened by the path that its file system lists, at the host that the spec names, whatever the folders are called."""

import io
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.registry import known_implementations
from fsspec.utils import infer_storage_options

from dpcore.errors import SourceBroken, SourceError
from dpcore.tables.sources.stored_file import StoredFile, file_system
from tests.dpcore.tables.sources.sources import located, rows

ODD = ("F", "F\t", "F\n", "F\r", "F?", "F?b", "F#", "F#b", "a::b", "F%09", "F*", "F[", "F@b", "F:", "a\\b", " F ", "é")
# these read another file system, the address itself or this machine; the web has no folders; arrow_hdfs is an old name of hdfs, not a scheme
NO_SYSTEM = {
    *("async_wrapper", "asyncwrapper", "blockcache", "cached", "dask", "dir", "filecache", "generic", "reference"),
    *("simplecache", "data", "file", "local", "http", "https", "arrow_hdfs"),
}


def importable() -> Iterator[tuple[str, Any]]:
    for scheme in sorted(known_implementations.keys() - NO_SYSTEM):
        with suppress(ImportError, ValueError):
            yield scheme, fsspec.get_filesystem_class(scheme)


SYSTEMS = dict(importable())
BY_URL = ("ftp", "hdfs", "webhdfs")  # these parse a URL, so that the one they write has another path


def test_the_file_systems_that_parse_urls_are_among_those_tried() -> None:
    assert SYSTEMS.keys() >= {*BY_URL, "memory", "zip"}


class Store:
    """The files of one host, behind the paths of a file system's class. Remembers what was opened."""

    def __init__(self, kind: Any, *, host: str, files: Mapping[str, bytes]) -> None:
        self.kind, self.host, self.files = kind, host, files
        self.opened: Counter[str] = Counter()

    def as_class(self) -> Any:
        store = self

        class Fake(self.kind):  # type: ignore[misc, name-defined]  a class of theirs
            cachable = False
            async_impl = mirror_sync_methods = False  # the methods below are no coroutines
            find, walk, glob, exists = (
                getattr(fsspec.AbstractFileSystem, way) for way in ("find", "walk", "glob", "exists")
            )

            def __init__(self, host: str = "default", **_: object) -> None:
                fsspec.AbstractFileSystem.__init__(self)
                self.files = store.files if host == store.host or not store.names_host else {}

            def __del__(self) -> None:
                """Close nothing: there is no connection."""

            def info(self, path: str, **_: object) -> dict[str, object]:
                inside = path.rstrip("/") + "/"
                if path not in self.files and not any(name.startswith(inside) for name in self.files):
                    raise FileNotFoundError(path)
                return {"name": path, "size": 9, "type": "file" if path in self.files else "directory"}

            def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:
                inside = path.rstrip("/") + "/"
                below = {name.removeprefix(inside).split("/")[0] for name in self.files if name.startswith(inside)}
                return [self.info(inside + name) if detail else inside + name for name in sorted(below)]

            def isfile(self, path: str) -> bool:
                return path in self.files

            def isdir(self, path: str) -> bool:
                return bool(self.ls(path))

            def invalidate_cache(self, path: str | None = None) -> None:
                """Keep nothing."""

            def _open(self, path: str, *_: object, **__: object) -> io.BytesIO:
                store.opened[path] += 1
                return io.BytesIO(self.files[path])

        return Fake

    @property
    def names_host(self) -> bool:
        return "host" in self.kind._get_kwargs_from_urls("ftp://nn1/visits")


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Store]:
    def serve(scheme: str, kind: Any, *, folders: tuple[str, ...] = ODD) -> Store:
        root = kind._strip_protocol(f"{scheme}://nn1/visits")
        files = {f"{root}/x={name}/p.csv": f"a\n{number}\n".encode() for number, name in enumerate(folders)}
        store = Store(kind, host="nn1", files=files)
        registry = import_module("fsspec.registry")
        monkeypatch.setitem(registry._registry, scheme, store.as_class())
        monkeypatch.setitem(registry.known_implementations, scheme, {"class": "not.needed"})
        return store

    return serve


def through_a_url(self: StoredFile) -> pa.NativeFile:
    """Plant the opening that writes a path as a URL and parses it again."""
    system, _ = file_system(self.source or "")
    system, path = file_system(system.unstrip_protocol(self.path))
    return pa.PythonFile(system.open(path, "rb"), mode="r")


@pytest.mark.parametrize("path", ["visits", "visits/*/*.csv"])
@pytest.mark.parametrize("scheme", SYSTEMS)
def test_every_folder_is_read_once_by_its_listed_path(
    tmp_path: Path, serve: Callable[..., Store], scheme: str, path: str
) -> None:
    store = serve(scheme, SYSTEMS[scheme])
    source = pickle.loads(pickle.dumps(located(tmp_path, f"{scheme}://nn1/{path}")))  # noqa: S301  our own, as for a worker
    found = rows(source, "a", "x")
    expected = {str(number): "F\t" if name == "F%09" else name for number, name in enumerate(ODD)}
    assert sorted(found) == sorted(expected.items())
    assert store.opened.keys() == store.files.keys()


@pytest.mark.parametrize("scheme", BY_URL)
def test_a_path_that_goes_through_a_url_is_found_out(
    tmp_path: Path, serve: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    store = serve(scheme, SYSTEMS[scheme], folders=("F", "F\t"))
    monkeypatch.setattr(StoredFile, "_opened", through_a_url)
    with pytest.raises(SourceError, match="cannot be opened"):  # at another host
        rows(located(tmp_path, f"{scheme}://nn1/visits"), "a", "x")
    store.host = "default"
    assert sorted(rows(located(tmp_path, f"{scheme}:///visits"), "a", "x")) == [("0", "F"), ("0", "F\t")]


class Rewriting(fsspec.AbstractFileSystem):
    """A file system that parses bare paths as URLs too, as that of Azure does."""

    protocol = "rewriting"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        options = infer_storage_options(path if "://" in path else f"rewriting://{path}")
        return str(options["host"]) + str(options["path"])


@pytest.mark.parametrize("name", ["F\t", "F\n", "F?b"])
def test_a_file_system_that_would_open_another_file_opens_none(
    tmp_path: Path, serve: Callable[..., Store], name: str
) -> None:
    store = serve("rewriting", Rewriting, folders=("F", name))
    source = located(tmp_path, "rewriting://nn1/visits")
    with pytest.raises(SourceBroken, match=r"^'p\.csv' cannot be opened"):
        rows(source, "a", "x")
    assert store.opened.keys() <= {"nn1/visits/x=F/p.csv"}


def test_a_file_system_that_opens_another_file_is_found_out(
    tmp_path: Path, serve: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unchecked(self: StoredFile) -> pa.NativeFile:
        system, _ = file_system(self.source or "")
        return pa.PythonFile(system.open(self.path, "rb"), mode="r")

    serve("rewriting", Rewriting, folders=("F", "F\t"))
    monkeypatch.setattr(StoredFile, "_opened", unchecked)
    assert sorted(rows(located(tmp_path, "rewriting://nn1/visits"), "a", "x")) == [("0", "F"), ("0", "F\t")]

"""Problems of a release: each file that is changed, missing or added, by the release's own list of hashes and its signature.

Without a signature, this finds accidents: a broken copy, a changed or a forgotten file. Somebody who changes a release on purpose can write a
new `SHA256SUMS` as well. Only the ledger, or a signature and a public key that did not come with the release, show who published it.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import UsageError
from dpcore.object_store import AnyPath
from dpcore.release.integrity import (
    MANIFEST,
    NotRegularFileError,
    files_in,
    is_there,
    one_line,
    open_regular,
    raise_store_error,
    read_manifest,
    read_regular,
    reading,
)
from dpcore.release.signing import (
    LARGEST_SUMS,
    SIGNATURE,
    SIGNATURE_BYTES,
    SUMS,
    decode_sums,
    encode_sums,
    is_signature,
)
from dpcore.release.statement import misstated
from dpcore.release.withdrawal import DATA, SIGN, WITHDRAWN, Notice, require_not_withdrawn, sign_of


class Expected(NamedTuple):
    """What is known of a published file: its SHA-256, and its size unless only the hash is known."""

    sha256: str
    size: int | None = None


@dataclass(frozen=True)
class Problem:
    """A file that is not as published, and what is wrong with it."""

    file: str
    what: str

    @property
    def sentence(self) -> str:
        """Both, safe to print."""
        return f"{one_line(self.file)} {self.what}"


@dataclass(frozen=True)
class Contents:
    """The manifest and the list of hashes of a release, as they are in its folder.

    Attributes:
        folder: The folder of the release.
        written: The manifest; None if it is missing, or cannot be what dpflow has written.
        sums: The content of `SHA256SUMS`; None likewise.
    """

    folder: AnyPath
    written: bytes | None
    sums: bytes | None

    @classmethod
    def read(cls, folder: AnyPath, *, written: bytes | None = None) -> "Contents":
        """Read both files, or the one that the caller has not read. Raise an OSError if this user may not read one, or the store fails."""
        return cls(folder, written or _readable(folder / MANIFEST), _readable(folder / SUMS, limit=LARGEST_SUMS))

    @property
    def digest(self) -> str | None:
        """The SHA-256 of the manifest."""
        return None if self.written is None else hashlib.sha256(self.written).hexdigest()

    @cached_property
    def hashes(self) -> dict[str, str] | None:
        """The hashes in `SHA256SUMS`, by the paths of the files; None if it is not what dpflow has written."""
        try:
            return None if self.sums is None else decode_sums(self.sums)
        except ValueError:
            return None

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The content of the manifest; empty if it is not an object, or not the manifest that `SHA256SUMS` lists."""
        if self.written is None or (self.hashes is not None and self.hashes.get(MANIFEST) != self.digest):
            return {}
        try:
            content = json.loads(self.written)
        except (ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    @cached_property
    def listed(self) -> dict[str, Expected] | None:
        """The files that the manifest lists or, if it is damaged, `SHA256SUMS`; None if an entry is malformed."""
        try:
            if self.manifest:
                return listed_files(self.manifest)
        except (KeyError, TypeError, ValueError):
            return None
        return {name: Expected(digest) for name, digest in (self.hashes or {}).items() if name != MANIFEST}

    @property
    def signer(self) -> str | None:
        """The public key that the manifest names; None if the release is not signed."""
        signed = self.manifest.get("signed_by")
        return str(signed["public_key"]) if isinstance(signed, dict) and "public_key" in signed else None

    def problems_of_lists(self, *, key: str | None = None) -> Iterator[Problem]:
        """Yield what is wrong with the manifest, the list of hashes, and the signature: by the key in the manifest, and by a trusted one."""
        for name, content in ((MANIFEST, self.written), (SUMS, self.hashes)):
            if content is None:
                there = is_there(self.folder / name)
                yield Problem(name, "is not what was published" if there else "is missing")
        if self.written is None:
            pass
        elif self.hashes is not None and self.hashes.get(MANIFEST) != self.digest:
            yield Problem(MANIFEST, f"is not what {SUMS} lists")
        elif not self.manifest:
            yield Problem(MANIFEST, "is not what dpflow writes")
        elif self.listed is None:
            yield Problem(MANIFEST, "lists a file without its size and hash, or outside the release")
        elif self.hashes is not None and self.sums != sums_of(self.listed, digest=self.hashes[MANIFEST]):
            yield Problem(SUMS, f"does not list the files of {MANIFEST}")
        if self.hashes is not None:
            yield from self._problems_of_signature(key)

    def _problems_of_signature(self, key: str | None) -> Iterator[Problem]:
        signer = self.signer
        if self.manifest and signer is None and is_there(self.folder / SIGNATURE):
            yield Problem(SIGNATURE, f"is there, but {MANIFEST} says that the release is not signed")
        if key is not None and signer is not None and key != signer:
            yield Problem(SIGNATURE, f"was made with the key {one_line(signer)}, not with the given key {key}")
        elif (public := key or signer) and (what := self._signature_problem(public)):
            unsigned = " (the release was published without a signature)" if signer is None else ""
            yield Problem(SIGNATURE, f"{what}{unsigned}" if what == "is missing" else what)

    def _signature_problem(self, public: str) -> str | None:
        if (signature := _readable(self.folder / SIGNATURE, limit=SIGNATURE_BYTES)) is None:
            return "is not a signature" if is_there(self.folder / SIGNATURE) else "is missing"
        valid = is_signature(signature, self.sums or b"", public=public)
        return None if valid else f"is not a signature with the key {one_line(public)}"

    def problems_of_files(self) -> Iterator[Problem]:
        """Yield each other file that is missing, changed or added. Without a list, nothing can be compared."""
        if self.listed:
            yield from changes(self.folder, self.listed, beside={MANIFEST, SUMS, SIGNATURE})

    def problems_of_promise(self, *, changed: Collection[str]) -> Iterator[Problem]:
        """Yield where the promise contradicts the runs that the manifest lists, or the footers of the files that have not changed."""
        if not self.manifest:
            return
        if what := _misstated(self.manifest):
            yield Problem(MANIFEST, what)
        for name in self.listed or ():
            if (
                name.endswith(".parquet")
                and name not in changed
                and _stated_in(self.folder / name) != self.manifest.get("privacy")
            ):
                yield Problem(name, f"states another promise than {MANIFEST}")


def problems(folder: AnyPath, *, withdrawn: Notice | None = None) -> Iterator[Problem]:
    """Yield the problems of a release that is on record, or to be recorded.

    Args:
        folder: The folder of the release.
        withdrawn: What the ledger knows of its withdrawal.

    Raises:
        PermissionError: If this user may not read a file, or may not list a folder, which could then hold other files.
        OSError: If the store fails.
    """
    if withdrawn is not None:
        yield from _problems_of_withdrawn(folder, withdrawn)
    elif is_there(folder / WITHDRAWN):
        yield Problem(WITHDRAWN, "says that it was withdrawn, but the ledger has no record of that")
    else:
        contents = Contents.read(folder)
        yield from contents.problems_of_lists()
        yield from contents.problems_of_files()


def _problems_of_withdrawn(folder: AnyPath, notice: Notice) -> Iterator[Problem]:
    """Yield how the folder of a withdrawn release differs from what a withdrawal leaves."""
    left = {WITHDRAWN: notice.encoded()} | ({f"{DATA}/{SIGN}": sign_of(notice)} if notice.keep is None else {})
    listed = {name: Expected(hashlib.sha256(content).hexdigest()) for name, content in left.items()}
    for problem in changes(folder, listed, beside={MANIFEST}, added="is still there"):
        yield Problem(
            problem.file,
            f"{problem.what}, but the release was withdrawn; finish it with: dpflow withdraw {one_line(folder)} --reason TEXT",
        )


@dataclass(frozen=True)
class Verification:
    """What was found in the folder of a release.

    Attributes:
        files: The number of files that were compared.
        problems: Each file that is changed, missing or added. The release is as published if there are none.
        manifest: The content of the manifest; empty if it cannot be trusted even to be the published one.
        signed_by: The public key of a valid signature; None if there is none.
    """

    files: int
    problems: tuple[Problem, ...]
    manifest: Mapping[str, Any]
    signed_by: str | None


def verify_release(folder: AnyPath, *, key: str | None = None) -> Verification:
    """Verify a release without a ledger: compare every file with its hash, and its promise with its runs, and check its signature.

    Args:
        folder: The folder of the release, on this machine or in an object store.
        key: The publisher's public key, if the release must be signed with it.

    Raises:
        UsageError: If there is no release, or it was withdrawn, or it cannot be read.
    """
    with reading(UsageError, otherwise=", so the release was not verified; get access to it, and try again"):
        require_not_withdrawn(folder)
        if not is_there(folder / MANIFEST) and not is_there(folder / SUMS):
            raise UsageError(
                f"{one_line(folder)} is not a release; name the folder of one, which has a {MANIFEST}, such as releases/DATASET/RELEASE"
            )
        contents = Contents.read(folder)
        problems_found = [*contents.problems_of_lists(key=key), *contents.problems_of_files()]
        problems_found += contents.problems_of_promise(changed=[problem.file for problem in problems_found])
    signed = contents.hashes is not None and not any(problem.file == SIGNATURE for problem in problems_found)
    lists = (contents.written is not None) + (contents.hashes is not None)
    return Verification(
        len(contents.listed or ()) + lists,
        tuple(problems_found),
        contents.manifest,
        contents.signer if signed else None,
    )


def listed_files(manifest: Mapping[str, Any]) -> dict[str, Expected]:
    """Return the files that a manifest lists: all but itself and what is made from it.

    Raises:
        KeyError, TypeError, ValueError: If an entry is malformed, or names a file outside the release.
    """
    files = manifest.get("files", [])
    if not isinstance(files, list):
        raise TypeError
    return {str(_inside(entry["path"])): Expected(str(entry["sha256"]), _size(entry["bytes"])) for entry in files}


def sums_of(listed: Mapping[str, Expected], *, digest: str) -> bytes:
    """Return the content of `SHA256SUMS` for the files that a manifest lists, and the manifest's own SHA-256."""
    return encode_sums({MANIFEST: digest} | {name: file.sha256 for name, file in listed.items()})


def changes(
    folder: AnyPath,
    listed: Mapping[str, Expected],
    *,
    beside: Iterable[str],
    added: str = "is not listed in its manifest",
) -> Iterator[Problem]:
    """Yield each file that is missing, changed or added.

    Args:
        folder: The folder of the release.
        listed: The files to compare, by their paths in the folder.
        beside: Other files that belong to the release and are not compared.
        added: What is wrong with all others.
    """
    for name, expected in listed.items():
        if what := _change(folder / name, expected):
            yield Problem(name, what)
    for name in files_in(folder, [*listed, *beside]):
        yield Problem(name, added)


def _change(path: AnyPath, expected: Expected) -> str | None:
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if expected.size is not None and size != expected.size:
                return f"has {size:,} bytes, but was published with {expected.size:,}"
            same = hashlib.file_digest(file, "sha256").hexdigest() == expected.sha256
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except NotRegularFileError:
        return "is no longer a regular file"
    except PermissionError:  # says nothing about the file's content
        raise
    except OSError as error:
        raise_store_error(path, error)
        return "cannot be read"
    return None if same else "is not what was published"


def _readable(path: AnyPath, *, limit: int | None = None) -> bytes | None:
    """Return the content of a small file; None if it is missing, or cannot be what dpflow has written. Without a limit, it is a manifest."""
    try:
        return read_manifest(path) if limit is None else read_regular(path, limit=limit)
    except PermissionError:
        raise
    except OSError as error:
        raise_store_error(path, error)
        return None


def _inside(name: object) -> PurePosixPath:
    """Return a file name as a path below the release's folder, or raise."""
    path = PurePosixPath(str(name))
    own = {PurePosixPath(name) for name in (MANIFEST, SUMS, SIGNATURE)}
    if path.is_absolute() or ".." in path.parts or not path.parts or path in own:
        raise ValueError
    return path


def _size(value: object) -> int:
    if type(value) is not int:  # JSON also has true, 1.0 and numbers that become infinite
        raise TypeError
    return value


def _misstated(manifest: Mapping[str, Any]) -> str | None:
    """Say how the promise contradicts the runs that the release is made from, as far as its own manifest names them; None if it does not."""
    try:
        privacy = manifest["privacy"]
        named = [manifest.get("prior") or {}, *(manifest.get("parts") or [privacy])]
        missing = {part["run"] for part in named if part.get("run")} - {part["run"] for part in privacy["made_from"]}
    except (KeyError, TypeError, AttributeError):
        return "does not list the runs that the release is made from"
    return f"omits run {one_line(min(missing))}, which the release is made from" if missing else misstated(privacy)


def _stated_in(table: AnyPath) -> Any:
    """Return the promise in the footer of a Parquet file; None if there is none."""
    try:
        with open_regular(table) as opened:
            return json.loads((pq.read_schema(opened).metadata or {})[b"dpflow"])
    except (pa.ArrowException, KeyError, ValueError):
        return None

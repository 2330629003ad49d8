"""Verify a release without a ledger: every file is as published, nothing was added, and the signature is the publisher's.

Without a signature, this finds accidents: a broken copy, a changed or a forgotten file. Somebody who changes a release on purpose can write a
new `SHA256SUMS` as well. Only a signature, and a public key that did not come with the release, show who published it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import UsageError
from dpcore.object_store import AnyPath
from dpcore.release.integrity import (
    MANIFEST,
    Expected,
    changes,
    has_sums,
    is_there,
    listed_files,
    one_line,
    open_regular,
    raise_store_error,
    read_manifest,
    read_regular,
    signature_problem,
    signer_of,
    sums_of,
)
from dpcore.release.signing import SIGNATURE
from dpcore.release.statement import misstated
from dpcore.release.sums import LARGEST_SUMS, SUMS, decode_sums
from dpcore.release.withdrawal import require_not_withdrawn


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
class Verification:
    """What was found in the folder of a release.

    Attributes:
        files: The number of files that were compared.
        problems: Each file that is changed, missing or added. The release is as published if there are none.
        manifest: The content of the manifest; empty if it cannot be trusted even to be the published one.
        signed_by: The public key of a valid signature; None if there is none.
        complete: Whether the manifest itself could be compared, which releases of earlier versions do not allow.
    """

    files: int
    problems: tuple[Problem, ...]
    manifest: Mapping[str, Any]
    signed_by: str | None
    complete: bool = True


def verify_release(folder: AnyPath, *, key: str | None = None) -> Verification:
    """Compare every file of a release with its hash, and check its signature.

    Args:
        folder: The folder of the release, on this machine or in an object store.
        key: The publisher's public key, if the release must be signed with it.

    Raises:
        UsageError: If there is no release, or it was withdrawn, or it cannot be read.
    """
    with _access_errors():
        require_not_withdrawn(folder)
        if not is_there(folder / MANIFEST) and not is_there(folder / SUMS):
            raise UsageError(
                f"{one_line(folder)} is not a release; name the folder of one, which has a {MANIFEST}, such as releases/DATASET/RELEASE"
            )
        return _verify(folder, key)


def _verify(folder: AnyPath, key: str | None) -> Verification:
    manifest, sums = _manifest(folder), _sums(folder)
    first_format = bool(manifest) and not has_sums(manifest) and not is_there(folder / SUMS)
    problems = []
    if sums is None and not first_format:
        problems.append(Problem(SUMS, "is not what was published" if is_there(folder / SUMS) else "is missing"))
    listed = _listed(manifest) if sums is None else {name: Expected(each) for name, each in decode_sums(sums).items()}
    signer = _signer(manifest)
    if listed:
        problems += [Problem(*each) for each in changes(folder, listed, beside={MANIFEST, SUMS, SIGNATURE})]
    changed = {each.file for each in problems}
    if not manifest and MANIFEST not in changed:
        problems.append(Problem(MANIFEST, "cannot be read" if is_there(folder / MANIFEST) else "is missing"))
    if MANIFEST in changed:
        manifest, signer = {}, None
    elif manifest and sums is not None and sums != _sums_of(manifest, listed):
        problems.append(Problem(SUMS, f"does not list the files of {MANIFEST}"))
    if manifest and (wrong := _misstated(manifest)):
        problems.append(Problem(MANIFEST, wrong))
    if manifest:
        tables = [name for name in listed if name.endswith(".parquet") and name not in changed]
        otherwise = [name for name in tables if _stated_in(folder / name) != manifest.get("privacy")]
        problems += [Problem(name, f"states another promise than {MANIFEST}") for name in otherwise]
    if manifest and signer is None and is_there(folder / SIGNATURE):
        problems.append(Problem(SIGNATURE, f"is there, but {MANIFEST} says that the release is not signed"))
    if sums is not None or first_format:
        problems += _signature_problems(folder, sums or b"", signer=signer, key=key)
    valid = signer is not None and sums is not None and not any(each.file == SIGNATURE for each in problems)
    return Verification(
        len(listed) + (sums is not None),
        tuple(problems),
        manifest,
        signer if valid else None,
        complete=not first_format,
    )


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


def _signature_problems(folder: AnyPath, sums: bytes, *, signer: str | None, key: str | None) -> Iterator[Problem]:
    """Yield what is wrong with the signature: by the key that the manifest names, and by the one that the recipient trusts."""
    if key is not None and signer is not None and key != signer:
        yield Problem(SIGNATURE, f"was made with the key {one_line(signer)}, not with the given key {key}")
    elif (public := key or signer) and (problem := signature_problem(folder, sums, public=public)):
        unsigned = " (the release was published without a signature)" if signer is None else ""
        yield Problem(SIGNATURE, f"{problem}{unsigned}" if problem == "is missing" else problem)


def _manifest(folder: AnyPath) -> Mapping[str, Any]:
    """Return the content of the manifest, or nothing if it is missing or not JSON."""
    try:
        content = json.loads(read_manifest(folder / MANIFEST))
    except PermissionError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise_store_error(folder, error)
        return {}
    return content if isinstance(content, dict) else {}


def _sums(folder: AnyPath) -> bytes | None:
    """Return the content of `SHA256SUMS`, or None if it is missing or was not written by dpflow."""
    try:
        content = read_regular(folder / SUMS, limit=LARGEST_SUMS)
        outside = any(".." in Path(name).parts for name in decode_sums(content))
    except PermissionError:
        raise
    except (OSError, ValueError) as error:
        raise_store_error(folder, error)
        return None
    return None if outside else content


def _listed(manifest: Mapping[str, Any]) -> dict[str, Expected]:
    try:
        return listed_files(manifest)
    except (KeyError, TypeError, ValueError):
        return {}


def _sums_of(manifest: Mapping[str, Any], listed: Mapping[str, Expected]) -> bytes:
    """Return what `SHA256SUMS` must say by the manifest."""
    try:
        return sums_of(_listed(manifest), digest=listed[MANIFEST].sha256)
    except (KeyError, ValueError):
        return b""


def _signer(manifest: Mapping[str, Any]) -> str | None:
    try:
        return signer_of(manifest)
    except (KeyError, TypeError):
        return None


@contextmanager
def _access_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{one_line(error.filename)} cannot be read ({error.strerror}), so the release was not verified; get access to it, and try again"
        ) from None

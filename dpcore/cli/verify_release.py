"""The verbs for people who sign releases, and for those who check them without a ledger: keys new, verify-release."""

import argparse
from pathlib import Path
from typing import Any

from dpcore.cli.output import Answer
from dpcore.cli.specs import Subparsers, add_verb
from dpcore.errors import UsageError
from dpcore.object_store import any_path, output_address
from dpcore.release.integrity import one_line
from dpcore.release.listing import pointed
from dpcore.release.problems import Verification, verify_release
from dpcore.release.signing import KEY_VARIABLE, new_key, read_public_key

DAMAGED = 1


def add_verbs(verbs: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the verbs to the parser."""
    verify = add_verb(
        verbs,
        "verify-release",
        common,
        "check every byte of a release, and its signature; needs no ledger",
        more=". It names every file that is changed, missing or added, and then exits with code 1",
    )
    verify.add_argument(
        "folder",
        metavar="FOLDER",
        help="the folder of the release, or of its dataset for the newest one, also in an object store, such as s3://bucket/visits/RELEASE",
    )
    verify.add_argument(
        "--key",
        metavar="PUBLIC",
        type=Path,
        help="the publisher's public key, a file NAME.pub that did not come with the release; the release must be signed with it",
    )
    verify.set_defaults(verb=_verify)

    keys = verbs.add_parser("keys", help="make keys that sign releases", description="Keys that sign releases.")
    new = add_verb(
        keys.add_subparsers(required=True, metavar="VERB"),
        "new",
        common,
        "make a pair of keys, NAME.key and NAME.pub",
        more=f"; publish with {KEY_VARIABLE}=NAME.key to sign releases, and give NAME.pub to their recipients",
    )
    new.add_argument("name", metavar="NAME", type=Path, help="the path of both files, without their endings")
    new.set_defaults(verb=_new)


def _new(arguments: argparse.Namespace) -> Answer:
    private, public, key = new_key(arguments.name)
    text = (
        f"{private} is the private key: keep it where only the publishing user can read it, and keep a copy\n"
        f"{public} is the public key: give it to the recipients of your releases\n"
        f"sign releases with: export {KEY_VARIABLE}={private.absolute()}"
    )
    return Answer({"private": str(private), "public": str(public), "public_key": key}, text)


def _verify(arguments: argparse.Namespace) -> Answer:
    key = None if arguments.key is None else read_public_key(arguments.key)
    try:
        folder = any_path(output_address(arguments.folder))
    except ValueError as error:
        raise UsageError(f"the FOLDER {error}") from None
    if newest := pointed(folder):
        folder = folder / newest
    found = verify_release(folder, key=key)
    data: dict[str, Any] = {
        "release": found.manifest.get("release"),
        "as_published": not found.problems,
        "files": found.files,
        "problems": [{"file": each.file, "problem": each.what} for each in found.problems],
        "signed_by": found.signed_by,
        "key_checked": key is not None and found.signed_by == key,
    }
    if found.problems:
        lines = [
            f"{one_line(arguments.folder)} is not as published:",
            *(f"  {each.sentence}" for each in found.problems),
        ]
        return Answer(data, "\n".join([*lines, "copy the release again from its publisher"]), exit_code=DAMAGED)
    whole = f"release {one_line(found.manifest.get('release'))}: all {found.files} files are as published"
    return Answer(data, "\n".join([whole, _signature(found, key=key), *_promise(found)]))


def _signature(found: Verification, *, key: str | None) -> str:
    if found.signed_by is None:
        return "not signed: no file was changed by accident, but this does not show who published it"
    if key is None:
        return f"signed with the key {found.signed_by}: compare it with the publisher's by --key PUBLIC"
    return f"signed with the given key {found.signed_by}"


def _promise(found: Verification) -> list[str]:
    privacy = found.manifest.get("privacy")
    return [one_line(privacy["guarantee"])] if isinstance(privacy, dict) and "guarantee" in privacy else []

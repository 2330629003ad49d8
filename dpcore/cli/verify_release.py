"""The verbs for people who sign releases, and for those who check them without a ledger: keys new, verify-release."""

import argparse
from pathlib import Path
from typing import Any

from dpcore.cli.arguments import Subparsers, add_verb, argument
from dpcore.cli.output import Answer
from dpcore.cli.verbs import VERBS
from dpcore.errors import UsageError
from dpcore.object_store import any_path, output_address
from dpcore.release.integrity import one_line
from dpcore.release.listing import pointed
from dpcore.release.problems import Verification, verify_release
from dpcore.release.signing import KEY_VARIABLE, new_key, read_public_key


def add_verbs(verbs: Subparsers) -> None:
    """Add the verbs to the parser."""
    add_verb(
        verbs,
        "verify-release",
        VERBS["verify-release"].about,
        argument(
            "folder",
            metavar="FOLDER",
            help="the folder of the release, or of its dataset for the newest one, also in an object store, such as s3://bucket/visits/RELEASE",
        ),
        argument(
            "--key",
            metavar="PUBLIC",
            type=Path,
            help="the publisher's public key, a file NAME.pub that did not come with the release; the release must be signed with it",
        ),
        run=_verify,
        more=". It names every file that is changed, missing or added, and then exits with code 1",
    )

    keys = verbs.add_parser("keys", help=VERBS["keys"].about, description="Keys that sign releases.")
    add_verb(
        keys.add_subparsers(required=True, metavar="VERB"),
        "new",
        "make a pair of keys, NAME.key and NAME.pub",
        argument("name", metavar="NAME", type=Path, help="the path of both files, without their endings"),
        run=_new,
        more=f"; publish with {KEY_VARIABLE}=NAME.key to sign releases, and give NAME.pub to their recipients",
    )


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
    verified = verify_release(folder, key=key)
    data: dict[str, Any] = {
        "release": verified.manifest.get("release"),
        "as_published": not verified.problems,
        "files": verified.files,
        "problems": [{"file": problem.file, "problem": problem.what} for problem in verified.problems],
        "signed_by": verified.signed_by,
        "key_checked": key is not None and verified.signed_by == key,
    }
    if verified.problems:
        lines = [
            f"{one_line(arguments.folder)} is not as published:",
            *(f"  {problem.sentence}" for problem in verified.problems),
        ]
        return Answer(data, "\n".join([*lines, "copy the release again from its publisher"]), exit_code=1)
    whole = f"release {one_line(verified.manifest.get('release'))}: all {verified.files} files are as published"
    return Answer(data, "\n".join([whole, _signature(verified, key=key), *_promise(verified)]))


def _signature(verified: Verification, *, key: str | None) -> str:
    if verified.signed_by is None:
        return "not signed: no file was changed by accident, but this does not show who published it"
    if key is None:
        return f"signed with the key {verified.signed_by}: compare it with the publisher's by --key PUBLIC"
    return f"signed with the given key {verified.signed_by}"


def _promise(verified: Verification) -> list[str]:
    privacy = verified.manifest.get("privacy")
    return [one_line(privacy["guarantee"])] if isinstance(privacy, dict) and "guarantee" in privacy else []

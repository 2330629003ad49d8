"""`SHA256SUMS`: the hash of every file of a release, in the form that `sha256sum -c SHA256SUMS` reads.

The manifest has the hashes of all other files. This file adds the hash of the manifest, so that nobody needs the ledger to notice a change in
it. Its first line, a comment for `sha256sum`, is the hash of the lines below: when manifest and list disagree, it says which of them changed.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

SUMS = "SHA256SUMS"
LARGEST_SUMS = 1 << 20
_FIRST = "# sha256 of the lines below: "
_LINE = re.compile(r"([0-9a-f]{64})  ([ -.0-~][ -~]*)")  # no path begins with a slash


def encode_sums(hashes: Mapping[str, str]) -> bytes:
    """Return the file's content for the SHA-256 of each file, by its path in the release.

    >>> print(encode_sums({"manifest.json": "ab" * 32}).decode().splitlines()[1][60:])
    abab  manifest.json
    """
    lines = "".join(f"{digest}  {path}\n" for path, digest in hashes.items())
    content = lines.encode("utf-8", "backslashreplace")  # a hostile manifest may list what cannot be encoded
    return f"{_FIRST}{hashlib.sha256(content).hexdigest()}\n".encode() + content


def decode_sums(content: bytes) -> dict[str, str]:
    """Return the hashes that a file lists.

    Raises:
        ValueError: If `encode_sums` has not written exactly this content, or a path leads out of the release.
    """
    lines = content.decode("ascii").split("\n")
    found = [_LINE.fullmatch(line) for line in lines[1:-1]]
    hashes = {each[2]: each[1] for each in found if each}
    if encode_sums(hashes) != content or any(".." in PurePosixPath(path).parts for path in hashes):
        raise ValueError
    return hashes

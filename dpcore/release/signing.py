"""Hash and sign releases: `SHA256SUMS` has the hash of every file, and an Ed25519 key says who published them.

The manifest has the hashes of all other files. `SHA256SUMS`, in the form that `sha256sum -c SHA256SUMS` reads, adds the hash of the manifest, so
that nobody needs the ledger to notice a change in it. Its first line, a comment for `sha256sum`, is the hash of the lines below: when manifest
and list disagree, it says which of them changed.

The key signs `SHA256SUMS`. The publisher keeps the private key and gives the public key to recipients
by another way than the release. The files have the usual form (PEM), so other programs can verify a signature too:
`openssl pkeyutl -verify -pubin -inkey NAME.pub -rawin -in SHA256SUMS -sigfile SHA256SUMS.sig`.
"""

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from dpcore.errors import OutputError, UsageError

SUMS = "SHA256SUMS"
LARGEST_SUMS = 1 << 20
_FIRST = "# sha256 of the lines below: "
_LINE = re.compile(r"([0-9a-f]{64})  ([ -.0-~][ -~]*)")  # no path begins with a slash
SIGNATURE = "SHA256SUMS.sig"
KEY_VARIABLE = "DPFLOW_SIGNING_KEY"
PRIVATE, PUBLIC = ".key", ".pub"
LARGEST_KEY = 4096
SIGNATURE_BYTES = 64


class SigningKey:
    """A private key that signs releases. It is never printed or pickled."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()

    def __reduce__(self) -> str:
        raise TypeError("a signing key stays in the process that has read it")

    def sign(self, content: bytes) -> bytes:
        """Return the signature, which depends on the key and the content alone."""
        return self._key.sign(content)


def new_key(name: Path) -> tuple[Path, Path, str]:
    """Write a new pair of keys: NAME.key, which only this user may read, and NAME.pub. Return both paths and the public key.

    Raises:
        OutputError: If one of the files exists, or cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    private, public = Path(f"{name}{PRIVATE}"), Path(f"{name}{PUBLIC}")
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    shown = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for path, content, mode in ((private, secret, 0o600), (public, shown, 0o644)):
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
                file.write(content)
        except FileExistsError:
            raise OutputError(
                f"{path} exists, and a key that has signed releases must not be lost; choose another name"
            ) from None
        except OSError as error:
            raise OutputError(f"{path} cannot be written ({error.strerror}); choose another folder") from None
    return private, public, SigningKey(key).public


def signing_key() -> SigningKey | None:
    """Return the key that `DPFLOW_SIGNING_KEY` names, or None if releases are not signed.

    Raises:
        OutputError: If the key cannot be read, or others may read it.
    """
    named = os.environ.get(KEY_VARIABLE)
    if not named:
        return None
    path, again = Path(named), f"or unset {KEY_VARIABLE} to publish without a signature"
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(LARGEST_KEY) if stat.S_ISREG(status.st_mode) else b""
    except OSError as error:
        raise OutputError(
            f"the signing key {path} cannot be read ({error.strerror}); make one with `dpflow keys new NAME`, {again}"
        ) from None
    if status.st_mode & 0o077:
        raise OutputError(f"others may read the signing key {path}; run `chmod 600 {path}`, {again}")
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None  # its message could quote the file
    if not isinstance(key, Ed25519PrivateKey):
        raise OutputError(
            f"{path} is not a private key of `dpflow keys new`: it must be Ed25519, in PEM form and without a password; name another, {again}"
        )
    return SigningKey(key)


def read_public_key(path: Path) -> str:
    """Return the public key in a file, as 64 hexadecimal digits.

    Raises:
        UsageError: If the file holds something else.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_KEY)
    except OSError as error:
        raise UsageError(
            f"the key {path} cannot be read ({error.strerror}); ask the publisher for the public key"
        ) from None
    if b"PRIVATE KEY" in content:
        raise UsageError(f"{path} is a private key; name the public one, which ends with {PUBLIC}")
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(
            f"{path} is not an Ed25519 public key in PEM form; ask the publisher for the file NAME{PUBLIC}"
        )
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def is_signature(signature: bytes, content: bytes, *, public: str) -> bool:
    """Return whether a signature of this content was made with the private key that belongs to a public one."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


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
    entries = [_LINE.fullmatch(line) for line in lines[1:-1]]
    hashes = {entry[2]: entry[1] for entry in entries if entry}
    if encode_sums(hashes) != content or any(".." in PurePosixPath(path).parts for path in hashes):
        raise ValueError
    return hashes

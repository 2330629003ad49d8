"""A key is written once, readable by its owner alone, and only a key of the right kind is accepted."""

import pickle
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from dpcore.errors import OutputError, UsageError
from dpcore.release.signing import KEY_VARIABLE, is_signature, new_key, read_public_key, signing_key
from tests.dpcore.release.conftest import Said


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def test_a_pair_of_keys_signs_and_verifies_and_the_private_one_is_its_owners(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    assert f"export {KEY_VARIABLE}=" in said("keys", "new", "steward")
    assert Path("steward.key").stat().st_mode & 0o777 == 0o600
    assert signing_key() is None
    monkeypatch.setenv(KEY_VARIABLE, "steward.key")
    key = signing_key()
    assert key is not None
    assert key.public == read_public_key(Path("steward.pub"))
    signature = key.sign(b"content")
    assert signature == key.sign(b"content")
    assert is_signature(signature, b"content", public=key.public)
    assert not is_signature(signature, b"Content", public=key.public)
    assert not is_signature(signature, b"content", public=new_key(Path("other"))[2])
    assert not is_signature(signature, b"content", public="no key")
    with pytest.raises(TypeError, match="stays in the process"):
        pickle.dumps(key)


def test_a_key_is_never_overwritten() -> None:
    new_key(Path("steward"))
    kept = Path("steward.key").read_bytes()
    with pytest.raises(OutputError, match="must not be lost; choose another name"):
        new_key(Path("steward"))
    assert Path("steward.key").read_bytes() == kept
    with pytest.raises(OutputError, match="cannot be written"):
        new_key(Path("no folder/steward"))


def other_kind() -> bytes:
    return Ed448PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    "content", [b"", b"secret text", b"\x00" * 10_000, other_kind()], ids=["empty", "text", "zeros", "ed448"]
)
def test_what_is_no_signing_key_is_refused_and_not_quoted(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    Path("k").write_bytes(content)
    Path("k").chmod(0o600)
    monkeypatch.setenv(KEY_VARIABLE, "k")
    with pytest.raises(OutputError, match="must be Ed25519") as error:
        signing_key()
    assert "secret" not in str(error.value)
    with pytest.raises(UsageError, match="public"):
        read_public_key(Path("k"))


def test_a_key_that_others_may_read_and_a_private_key_for_verifying_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    private, _, _ = new_key(Path("steward"))
    with pytest.raises(UsageError, match="is a private key; name the public one"):
        read_public_key(private)
    private.chmod(0o640)
    monkeypatch.setenv(KEY_VARIABLE, str(private))
    with pytest.raises(OutputError, match=r"others may read the signing key .*chmod 600"):
        signing_key()
    monkeypatch.setenv(KEY_VARIABLE, "missing")
    with pytest.raises(OutputError, match="missing cannot be read"):
        signing_key()
    with pytest.raises(UsageError, match="ask the publisher"):
        read_public_key(Path("missing"))

"""A recipient without a ledger learns of every changed, added and missing byte of a release, in which file, and who signed it."""

import json
import shutil
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore import synthesize
from dpcore.errors import OutputError, UsageError
from dpcore.ledger import open_ledger
from dpcore.release.dataset_folder import encoded_pointer
from dpcore.release.problems import problems, verify_release
from dpcore.release.signing import KEY_VARIABLE, SIGNATURE, new_key, read_public_key
from dpcore.release.statement import StatedPart, currency_of, misstated, promised
from dpcore.release.sums import SUMS, encode_sums
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace, visits
from tests.dpcore.answers.releases import restate
from tests.dpcore.cli.ledgers import dpflow

MANIFEST, ROWS = "manifest.json", "data/part-00000.parquet"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ledger, a pair of keys, and one signed and one unsigned release of the same spec."""
    folder = tmp_path_factory.mktemp("signed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE"):
            patch.delenv(name, raising=False)
        visits(300, seed=1).to_csv("visits.csv", index=False)
        space = Workspace(folder, folder / "spec.yaml")
        space.write_spec(("rounds: 4", "rounds: 1"))
        space.open_account(epsilon=20)
        Path(synthesize(space.spec, run_id="plain").release).rename("unsigned")
        new_key(Path("steward"))
        new_key(Path("stranger"))
        patch.setenv(KEY_VARIABLE, "steward.key")
        shutil.copytree(synthesize(space.spec, run_id="signed").release, "signed")
        return folder


@pytest.fixture
def copy(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    monkeypatch.chdir(place)
    return lambda name: shutil.copytree(place / name, tmp_path / name)


def public(place: Path, name: str = "steward") -> str:
    return read_public_key(place / f"{name}.pub")


def named(release: Path, key: str | None = None) -> set[str]:
    return {each.file for each in verify_release(release, key=key).problems}


def files(release: Path) -> list[str]:
    return sorted(path.relative_to(release).as_posix() for path in release.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_a_release_as_published_passes_and_all_its_files_are_compared(place: Path, kind: str) -> None:
    found = verify_release(place / kind)
    assert found.problems == ()
    assert found.files == len(files(place / kind)) - (kind == "signed")  # a signature is not compared but verified
    assert found.manifest["release"]
    assert found.signed_by == (public(place) if kind == "signed" else None)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whichever_byte_of_whichever_file_changes_that_file_and_no_other_is_named(
    place: Path, data: st.DataObject
) -> None:
    release = place / data.draw(st.sampled_from(["signed", "unsigned"]))
    file = release / data.draw(st.sampled_from(files(release)))
    written = file.read_bytes()
    at, other = data.draw(st.integers(0, len(written) - 1)), data.draw(st.integers(1, 255))
    key = data.draw(st.sampled_from([None, public(place)])) if release.name == "signed" else None
    changed = bytearray(written)
    changed[at] ^= other
    try:
        file.write_bytes(changed)
        assert named(release, key) == {file.relative_to(release).as_posix()}
    finally:
        file.write_bytes(written)


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_whichever_file_is_missing_shortened_or_longer_is_named(
    place: Path, copy: Callable[[str], Path], kind: str
) -> None:
    release = copy(kind)
    for name in files(release):
        written = (release / name).read_bytes()
        (release / name).unlink()
        assert named(release) == {name}
        for content in (b"", written[:-1], written + b"\n"):
            (release / name).write_bytes(content)
            assert named(release) == {name}
        (release / name).write_bytes(written)
    assert named(release) == set()


def test_what_was_added_is_named_also_a_folder_a_link_and_a_signature_of_nobody(copy: Callable[[str], Path]) -> None:
    release = copy("unsigned")
    (release / "data" / "more.parquet").write_bytes(b"rows")
    (release / "empty").mkdir()
    (release / "link").symlink_to(release / "data")
    (release / SIGNATURE).write_bytes(bytes(64))
    assert named(release) == {"data/more.parquet", "empty/", "link", SIGNATURE}


def test_a_release_of_another_key_and_one_without_a_signature_are_refused(
    place: Path, copy: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert named(place / "signed", public(place, "stranger")) == {SIGNATURE}
    assert named(place / "unsigned", public(place)) == {SIGNATURE}
    forged = copy("signed")
    with (forged / ROWS).open("rb") as rows:
        other = pq.read_table(rows).slice(0, 5)
    pq.write_table(other, forged / ROWS)
    told = json.loads((forged / MANIFEST).read_text(encoding="utf-8"))
    written = (forged / ROWS).read_bytes()
    told["files"][0] |= {"bytes": len(written), "sha256": sha256(written).hexdigest()}
    (forged / MANIFEST).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    digest = sha256((forged / MANIFEST).read_bytes()).hexdigest()
    hashes = {MANIFEST: digest} | {each["path"]: each["sha256"] for each in told["files"]}
    (forged / SUMS).write_bytes(encode_sums(hashes))
    assert named(forged) == named(forged, public(place)) == {SIGNATURE}  # all else fits together
    assert dpflow("verify-release", place / "signed", "--key", place / "stranger.pub") == 1
    assert "not with the given key" in capsys.readouterr().out
    assert dpflow("verify-release", place / "unsigned", "--key", place / "steward.pub") == 1
    assert "published without a signature" in capsys.readouterr().out


def test_two_lists_that_contradict_each_other_are_found(copy: Callable[[str], Path]) -> None:
    release = copy("unsigned")
    digest = sha256((release / MANIFEST).read_bytes()).hexdigest()
    (release / SUMS).write_bytes(encode_sums({MANIFEST: digest}))
    assert SUMS in named(release)


def test_a_promise_that_was_lowered_consistently_contradicts_the_tables(copy: Callable[[str], Path]) -> None:
    release = copy("unsigned")
    manifest = json.loads((release / MANIFEST).read_text(encoding="utf-8"))
    privacy = manifest["privacy"]
    for part in privacy["made_from"]:
        part["amount"] //= 4
    made_from = tuple(map(StatedPart.read, privacy["made_from"]))
    follows = promised(
        made_from, currency=currency_of(privacy["accounting"]), unit=privacy["unit"], neighbours=privacy["neighbours"]
    )
    restate(release, manifest | {"privacy": privacy | follows})
    assert misstated(privacy | follows) is None
    assert named(release) == {name for name in files(release) if name.endswith(".parquet")}


@pytest.mark.parametrize("path", ["../steward.key", "data/../../steward.key", "/etc/hosts"])
def test_a_list_cannot_lead_out_of_the_folder(copy: Callable[[str], Path], path: str) -> None:
    release = copy("unsigned")
    (release / SUMS).write_bytes(encode_sums({path: "ab" * 32}))
    assert named(release) == {SUMS}


def test_nothing_readable_is_a_problem_of_both_lists_and_no_release_is_said_to_be_none(
    copy: Callable[[str], Path], tmp_path: Path
) -> None:
    release = copy("unsigned")
    for name in (MANIFEST, SUMS):
        (release / name).write_bytes(b"\xff\x00")
    assert named(release) == {MANIFEST, SUMS}
    with pytest.raises(UsageError, match="is not a release"):
        verify_release(tmp_path)


def test_the_verb_says_what_was_compared_and_who_signed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow("verify-release", place / "signed", "--key", place / "steward.pub") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith("files are as published")
    assert said[1] == f"signed with the given key {public(place)}"
    assert "differentially private" in said[2]
    assert dpflow("verify-release", place / "signed") == 0
    assert "compare it with the publisher's by --key" in capsys.readouterr().out
    assert dpflow("verify-release", place / "unsigned") == 0
    assert "not signed" in capsys.readouterr().out
    assert dpflow("verify-release", place / "signed", "--json", "--key", place / "steward.pub") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["as_published"], told["key_checked"], told["problems"]) == (True, True, [])


def test_the_folder_of_a_dataset_stands_for_its_newest_release(
    copy: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release = copy("unsigned")
    dataset = tmp_path / "dataset"
    dataset.mkdir()
    release.rename(dataset / "newest")
    (dataset / "latest.json").write_bytes(encoded_pointer("newest"))
    assert dpflow("verify-release", dataset) == 0
    assert "files are as published" in capsys.readouterr().out
    (dataset / "newest" / ROWS).write_bytes(b"other rows")
    assert dpflow("verify-release", dataset) != 0


def test_a_note_within_a_release_does_not_lead_away_from_its_altered_files(copy: Callable[[str], Path]) -> None:
    release = copy("unsigned")
    shutil.copytree(release, release / "genuine")
    (release / "latest.json").write_text(json.dumps({"release": "genuine"}), encoding="utf-8")
    (release / ROWS).write_bytes(b"other rows")
    assert dpflow("verify-release", release) != 0
    (release / "manifest.json").unlink()
    assert dpflow("verify-release", release) != 0


def test_other_programs_verify_hashes_and_signature_too(place: Path) -> None:
    check = ["sha256sum", "--check", "--strict", "--quiet", SUMS]
    assert subprocess.run(check, cwd=place / "signed", check=False, capture_output=True).stdout == b""
    key = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(place / "steward.pub"), "-rawin"]
    command = [*key, "-in", SUMS, "-sigfile", SIGNATURE]
    assert subprocess.run(command, cwd=place / "signed", check=False, capture_output=True).returncode == 0


def test_the_ledger_finds_a_changed_signature_as_well(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    release = next(path for path in (place / "releases" / "visits").iterdir() if path.is_dir())
    assert not any(problems(release))
    written = (release / SIGNATURE).read_bytes()
    for content in (written[::-1], written[:-1], b""):
        (release / SIGNATURE).write_bytes(content)
        assert [problem.file for problem in problems(release)] == [SIGNATURE]
    (release / SIGNATURE).write_bytes(written)
    assert verify_ledger().files == len(files(release))


def test_a_withdrawn_release_gives_its_reason(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This withdraws the release in the folder of the dataset, so it stays the last test of this release."""
    monkeypatch.chdir(place)
    release = next(path for path in (place / "releases" / "visits").iterdir() if path.is_dir())
    assert dpflow("withdraw", release, "--reason", "a wrong column") == 0
    with pytest.raises(UsageError, match=r"was withdrawn on .*: a wrong column"):
        verify_release(release)


def test_a_key_that_cannot_sign_is_refused_before_anything_is_paid(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write_spec(("rounds: 4", "rounds: 1"))
    workspace.open_account()
    monkeypatch.setenv(KEY_VARIABLE, "none.key")
    with pytest.raises(OutputError, match=r"none\.key cannot be read .*dpflow keys new"):
        synthesize(workspace.spec)
    with open_ledger() as ledger:
        assert list(ledger.runs("visits")) == []

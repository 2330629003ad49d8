"""The life of releases in a store: published, read, damaged, written again, withdrawn, kept, and an upload that was killed. In S3, the first half of it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from dpcore import answer, synthesize
from dpcore.errors import LedgerDamaged, OutputError, UsageError
from dpcore.ledger import open_ledger
from dpcore.object_store import ObjectPath
from dpcore.release.dataset_folder import publication_note, release_id
from dpcore.release.folder_problems import RecordedFolder
from dpcore.release.signing import KEY_VARIABLE, SIGNATURE, new_key
from dpcore.release.withdrawal import SIGN
from dpcore.steward.verify import verify_ledger
from tests.dpcore.cli.ledgers import dpflow
from tests.dpcore.release.conftest import memory_store, working_in
from tests.dpcore.release.stores import ADDRESS, Killed, complete, content_of, folder_of, objects_in, project
from tests.s3 import BUCKET, new_bucket, s3_server

pytestmark = pytest.mark.usefixtures("rough_models")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A project with a release of run `first` in the store."""
    with working_in(tmp_path):
        synthesize(project(tmp_path).spec, run_id="first")
        yield tmp_path


@pytest.fixture
def s3() -> Iterator[None]:
    with s3_server() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        new_bucket()
        yield


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = dpflow(*arguments)
    told = capsys.readouterr()
    return code, told.out or told.err


@pytest.fixture
def memory() -> Iterator[None]:
    with memory_store():
        yield


@pytest.mark.usefixtures("s3")
def test_releases_in_s3_are_published_read_and_withdrawn_by_its_own_protocol(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(ADDRESS)
    (name,) = complete(folder)
    rows = pd.read_parquet(f"{folder}/{name}/data")
    frame = answer(str(folder), "select count(*) as n from release")
    assert 0 < frame["n"][0] == pytest.approx(len(rows), abs=1)
    assert verify_ledger(complete=[folder]).files == len(objects_in(folder / name))
    assert "SECRET-OF-TESTS" not in "".join(
        path.read_text("utf-8", "ignore") for path in here.rglob("*.*") if path.is_file()
    )
    withdrawn_for_all_readers(capsys)
    with pytest.raises(Exception, match=SIGN):
        pd.read_parquet(f"{folder}/{name}/data")
    with pytest.raises(OutputError, match=r"ledger\.json cannot be written to s3://no-such-bucket/releases/visits"):
        synthesize(changed_path(here, "s3://no-such-bucket/releases"), run_id="no-bucket")


def changed_path(here: Path, path: str) -> Path:
    spec = here / "other.yaml"
    spec.write_text((here / "spec.yaml").read_text("utf-8").replace(ADDRESS, path), encoding="utf-8")
    return spec


@pytest.mark.usefixtures("memory")
def test_the_life_of_releases(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    listed_found_answered_and_verified(capsys)
    verified_by_a_recipient_byte_for_byte(capsys)
    withdrawn_for_all_readers(capsys)
    synthesize("spec.yaml", run_id="second")
    assert said(capsys, "latest", ADDRESS + "/visits")[0] == 0
    only_the_newest_is_kept()
    an_upload_that_was_killed_is_no_damage(here, monkeypatch)


def listed_found_answered_and_verified(capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(ADDRESS)
    (name,) = complete(folder)
    for named in (str(folder), "spec.yaml"):
        assert said(capsys, "latest", named) == (0, f"{folder}/{name}\n")
        code, text = said(capsys, "releases", named)
        assert (code, name in text, "newest" in text) == (0, True, True)
    frame = answer(str(folder), "select count(*) as n from release")
    code, text = said(capsys, "answer", str(folder), "select count(*) as n from release", "--json")
    assert (code, json.loads(text)[0]["n"]) == (0, frame["n"][0])
    code, text = said(capsys, "sample", f"{folder}/{name}", "--rows", "5", "--json")
    assert (code, len(json.loads(text))) == (0, 5)
    verified = verify_ledger(complete=[folder])
    assert (verified.manifests, verified.files, verified.absent) == (1, len(objects_in(folder / name)), 0)
    (folder / name / "card.html").write(b"<p>")
    with pytest.raises(LedgerDamaged, match=r"card\.html has 3 bytes"):
        verify_ledger()
    with pytest.raises(OutputError, match=r"card\.html has 3 bytes, but was published"):
        synthesize("spec.yaml", run_id="first", resume=True)
    for each in ("card.html", "manifest.json"):
        (folder / name / each).unlink()
    with pytest.raises(LedgerDamaged, match=r"manifest\.json is missing"):
        verify_ledger()
    synthesize("spec.yaml", run_id="first", resume=True)  # written again, to the last byte
    assert verify_ledger(complete=[folder]).files == verified.files


def verified_by_a_recipient_byte_for_byte(capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(ADDRESS)
    (name,) = complete(folder)
    copy = ObjectPath(f"s3://{BUCKET}/copies") / name
    for each in objects_in(folder / name):
        (copy / each).write(content_of(folder / name / each))
    code, text = said(capsys, "verify-release", str(copy))
    assert (code, text.splitlines()[0]) == (0, f"release {name}: all 9 files are as published")
    written = bytearray(content_of(copy / "card.html"))
    written[100] ^= 1
    (copy / "card.html").write(bytes(written))
    (copy / "data" / "more.parquet").write(b"PAR1")
    code, text = said(capsys, "verify-release", str(copy))
    assert (code, text.splitlines()[0]) == (1, f"{copy} is not as published:")
    assert {line.split()[0] for line in text.splitlines()[1:-1]} == {"card.html", "data/more.parquet"}
    (copy / "manifest.json").unlink()
    (copy / "SHA256SUMS").unlink()
    code, text = said(capsys, "verify-release", str(copy))
    assert (code, f"{copy} is not a release" in text) == (2, True)
    code, text = said(capsys, "verify-release", "s3://key:secret@bucket/visits")
    assert (code, "credentials belong into the environment" in text, "secret" in text) == (2, True, False)


def withdrawn_for_all_readers(capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(ADDRESS)
    (name,) = complete(folder)
    code, text = said(capsys, "withdraw", f"{folder}/{name}", "--reason", "wrong codes")
    assert (code, "wrong codes" in text) == (0, True)
    with pytest.raises(UsageError, match=r"was withdrawn on .*: wrong codes"):
        answer(str(folder), "select count(*) from release")
    code, text = said(capsys, "latest", str(folder))
    assert (code, "wrong codes" in text) == (2, True)
    assert verify_ledger(complete=[folder]).withdrawn == 1


def only_the_newest_is_kept() -> None:
    spec = Path("spec.yaml")
    kept = spec.read_text("utf-8")
    try:
        spec.write_text(kept.replace(f"path: '{ADDRESS}'", f"path: '{ADDRESS}', keep: 1"), encoding="utf-8")
        synthesize("spec.yaml", run_id="third")
    finally:
        spec.write_text(kept, encoding="utf-8")
    folder = folder_of(ADDRESS)
    with open_ledger() as ledger:
        second, third = (folder / str(ledger.run(run).release) for run in ("second", "third"))
    assert sorted(path.name for path in second.iterdir()) == ["manifest.json", "withdrawn.json"]
    assert (third / "data").is_dir()
    assert verify_ledger(complete=[folder]).withdrawn == 2


def an_upload_that_was_killed_is_no_damage(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first attempt had a signing key, and the resumed run has none."""
    folder = folder_of(ADDRESS)
    before, upload = verify_ledger(complete=[folder]).manifests, ObjectPath.upload

    def killed_at_manifest(path: ObjectPath, file: Path) -> None:
        if path.name == "manifest.json":
            raise Killed
        upload(path, file)

    new_key(here / "publisher")
    with monkeypatch.context() as patch:
        patch.setenv(KEY_VARIABLE, str(here / "publisher.key"))
        patch.setattr(ObjectPath, "upload", killed_at_manifest)
        with pytest.raises(Killed):
            synthesize("spec.yaml", run_id="killed")
    with open_ledger() as ledger:
        name = release_id("killed", opened_at=ledger.run("killed").opened_at)
    release = folder / name
    assert {SIGNATURE, "measurements.parquet", "data/part-00000.parquet"} <= {*objects_in(release)}
    assert verify_ledger(complete=[folder]).manifests == before
    with monkeypatch.context() as patch:
        patch.setattr(RecordedFolder, "_is_unfinished", lambda *_: False)  # as after its end
        with pytest.raises(LedgerDamaged, match=f"{name}/data lies beside the releases"):
            verify_ledger()
    note = publication_note(release)
    written = content_of(note)
    note.unlink()
    with pytest.raises(LedgerDamaged, match=f"{name}/data lies beside"):
        verify_ledger()
    note.write(written)
    planted = [publication_note(folder / "copy"), folder / "copy" / "rows" / "a.parquet"]
    for each in planted:
        each.write(b"{}")
    with pytest.raises(LedgerDamaged, match=r"copy/rows/a\.parquet lies beside the releases"):
        verify_ledger()
    for each in planted:
        each.unlink()
    synthesize("spec.yaml", run_id="killed", resume=True)
    assert SIGNATURE not in objects_in(release)
    assert verify_ledger(complete=[folder]).manifests == before + 1

"""Releases in an object store: they appear complete or not at all, once, whatever kills their writers."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from dpcore import answer, synthesize
from dpcore.errors import LedgerDamaged, LedgerError, OutputError, SpecError, UsageError
from dpcore.ledger import EventKind, Ledger, open_ledger
from dpcore.object_store import ObjectPath, below
from dpcore.release import Draft, targets
from dpcore.release.dataset_folder import point_latest, publication_note, release_id
from dpcore.release.folder_problems import RecordedFolder
from dpcore.release.integrity import walk
from dpcore.release.ownership import owner_of
from dpcore.release.problems import problems, verify_release
from dpcore.release.signing import SIGNATURE, new_key
from dpcore.release.versions import release_before
from dpcore.release.withdrawal import SIGN
from dpcore.reporting.session_claims import Claim
from dpcore.runs import synthesis
from dpcore.session.opening import first_release
from dpcore.spec import load_spec
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace, visits
from tests.dpcore.cli.ledgers import dpflow
from tests.s3 import BUCKET, new_bucket, s3_server

VARIABLES = ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY", "DPFLOW_SIGNING_KEY")
ADDRESS = f"s3://{BUCKET}/releases"
CHANGING = ("write", "create", "upload", "unlink")


class Killed(BaseException):
    """The end of a process: nothing catches it."""


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    with s3_server() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        new_bucket()
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, server: None) -> tuple[Path, Draft, dict[str, Any]]:
    """A folder with a ledger, whose first release is in the store; the draft of its second one, and how to publish that."""
    folder, kept = tmp_path_factory.mktemp("made"), []

    def keep(draft: Draft, **how: Any) -> Any:
        kept.append((draft, how))
        return targets.publish(draft, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        (folder / ".dpflow").mkdir(mode=0o700)
        visits(300, seed=1).to_csv("visits.csv", index=False)
        space = Workspace(folder, folder / "spec.yaml")
        space.write_spec(("rounds: 4}", f"rounds: 1}}\noutput: {{path: '{ADDRESS}'}}"))
        space.open_account()
        patch.setattr(synthesis, "publish", keep)
        synthesize(space.spec, run_id="first")
    ((draft, _),) = kept
    how = {
        "recorded": (),
        "numbers": lambda: {draft.name: 1},
        "in_chain": lambda head: len(head) == 64,
        "confirm": lambda: None,
    }
    return folder, draft, how


@pytest.fixture
def here(made: tuple[Path, Draft, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made[0])
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return made[0]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = dpflow(*arguments)
    told = capsys.readouterr()
    return code, told.out or told.err


def folder_of(address: str) -> ObjectPath:
    return ObjectPath(f"{address}/visits")


def killed_after(patch: pytest.MonkeyPatch, changes: int) -> Callable[[], int]:
    """Let the process end after so many changes of the store. Return a function that counts them."""
    done = 0

    def mortal(name: str) -> Callable[..., Any]:
        change = getattr(ObjectPath, name)

        def changed(path: ObjectPath, *arguments: Any) -> Any:
            nonlocal done
            if done == changes:
                raise Killed
            done += 1
            return change(path, *arguments)

        return changed

    for name in CHANGING:
        patch.setattr(ObjectPath, name, mortal(name))
    return lambda: done


def complete(folder: ObjectPath) -> list[str]:
    """Return the releases that a reader sees by their manifests, each of which must be complete, and so must what `latest.json` names."""
    seen = []
    for path in folder.iterdir() if folder.exists() else ():
        if (path / "manifest.json").exists():
            assert not any(problems(path))
            seen.append(path.name)
    if (folder / "latest.json").exists():
        assert json.loads(content_of(folder / "latest.json"))["release"] in seen
    return seen


def content_of(path: ObjectPath) -> bytes:
    with path.open() as file:
        return file.read()


def objects_in(folder: ObjectPath) -> list[str]:
    return [str(below(folder, above / name)) for above, _, names in walk(folder) for name in names]


def test_a_writer_killed_between_any_two_changes_leaves_no_half_release_and_is_resumed_once(
    here: Path, made: tuple[Path, Draft, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, how = replace(made[1], uncertainty=None, judge=None), made[2]  # fewer files are written faster
    declared = draft.declaration
    boundary, states = 0, []
    while True:
        output = declared.spec.output.model_copy(update={"path": f"s3://{BUCKET}/killed-{boundary}"})
        spec = declared.spec.model_copy(update={"output": output})
        each = replace(draft, declaration=replace(declared, spec=spec))
        folder = folder_of(output.path)
        with monkeypatch.context() as patch:
            killed_after(patch, boundary)
            try:
                targets.publish(each, **how)
            except Killed:
                pass
            else:
                break
        states.append((complete(folder), (folder / "latest.json").exists()))
        published = targets.publish(each, **how)
        assert published.appeared is (states[-1][0] == [])
        assert complete(folder) == [draft.name]
        assert sha256(content_of(folder / draft.name / "manifest.json")).hexdigest() == published.manifest_sha256
        again = targets.publish(each, **{**how, "recorded": (published.manifest_sha256,)})
        assert (again.appeared, again.manifest_sha256) == (False, published.manifest_sha256)
        boundary += 1
    # Each object is one change, and the manifest and the pointer are the last two.
    # Nothing is seen before the manifest, or pointed to before the pointer.
    assert states == [([], False)] * (len(objects_in(folder)) - 1) + [([draft.name], False)]


def test_a_worker_that_was_believed_dead_writes_the_same_bytes(
    here: Path, made: tuple[Path, Draft, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had decided to publish before another worker did, and goes on after that one has finished."""
    draft, how = made[1], made[2]
    folder = draft.declaration.output_folder
    assert isinstance(folder, ObjectPath)
    before = content_of(folder / draft.name / "manifest.json")
    monkeypatch.setattr(targets, "_manifest_there", lambda final: b"")
    later = replace(draft, statement=replace(draft.statement, ledger_head="0" * 64))
    assert targets.publish(later, **how).manifest_sha256 == sha256(before).hexdigest()
    assert content_of(folder / draft.name / "manifest.json") == before
    assert complete(folder) == [draft.name]


def elsewhere(draft: Draft, name: str) -> tuple[Draft, ObjectPath]:
    """Return a draft for another folder of the store, and the place of its release."""
    output = draft.declaration.spec.output.model_copy(update={"path": f"s3://{BUCKET}/{name}"})
    spec = draft.declaration.spec.model_copy(update={"output": output})
    each = replace(draft, declaration=replace(draft.declaration, spec=spec), uncertainty=None, judge=None)
    return each, folder_of(output.path) / draft.name


def test_the_release_of_a_settled_run_is_taken_from_the_store_only_if_it_is_undamaged(
    here: Path, made: tuple[Path, Draft, dict[str, Any]]
) -> None:
    draft, final = elsewhere(made[1], "settled")
    written = targets.publish(draft, **made[2])
    recorded = (written.manifest_sha256,)
    found = targets.published_before(final, recorded=recorded, run="first")
    assert (found.manifest, found.manifest_sha256, found.appeared) == (written.manifest, recorded[0], False)
    with pytest.raises(OutputError, match=r"is not the release of run first: manifest\.json is missing or differs"):
        targets.published_before(final, recorded=("0" * 64,), run="first")
    (final / "card.html").unlink()
    with pytest.raises(OutputError, match=r"is not the release of run first: card\.html is missing"):
        targets.published_before(final, recorded=recorded, run="first")


def test_a_resumed_run_removes_what_an_attempt_with_other_settings_has_left(
    here: Path, made: tuple[Path, Draft, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    draft, release = elsewhere(made[1], "signed")
    new_key(tmp_path / "publisher")

    def before_the_manifest() -> None:
        if (release / SIGNATURE).exists():
            raise Killed

    with monkeypatch.context() as patch:
        patch.setenv("DPFLOW_SIGNING_KEY", str(tmp_path / "publisher.key"))
        with pytest.raises(Killed):
            targets.publish(draft, **{**made[2], "confirm": before_the_manifest})
    assert SIGNATURE in objects_in(release)
    targets.publish(draft, **made[2])
    assert SIGNATURE not in objects_in(release)
    assert complete(release.parent) == [draft.name]


def test_nothing_is_written_for_a_run_that_may_not_publish(
    here: Path, made: tuple[Path, Draft, dict[str, Any]]
) -> None:
    draft, release = elsewhere(made[1], "refused")

    def refused() -> None:
        raise LedgerError("the ledger lost this run")

    with pytest.raises(LedgerError, match="lost this run"):
        targets.publish(draft, **{**made[2], "confirm": refused})
    assert not release.exists()
    (release / "withdrawn.json").write(b"{}")
    with pytest.raises(OutputError, match=r"withdrawn\.json says that the release of run first was withdrawn"):
        targets.publish(draft, **made[2])
    assert objects_in(release) == ["withdrawn.json"]


def test_a_release_that_is_withdrawn_while_it_is_uploaded_does_not_appear(
    here: Path, made: tuple[Path, Draft, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, release = elsewhere(made[1], "withdrawn")
    upload = ObjectPath.upload

    def withdrawn_meanwhile(path: ObjectPath, file: Path) -> None:
        upload(path, file)
        (release / "withdrawn.json").write(b"{}")

    monkeypatch.setattr(ObjectPath, "upload", withdrawn_meanwhile)
    with pytest.raises(OutputError, match=r"so it is not written again"):
        targets.publish(draft, **made[2])
    assert not (release / "manifest.json").exists()


def test_what_is_not_the_runs_own_is_never_replaced(here: Path, made: tuple[Path, Draft, dict[str, Any]]) -> None:
    draft, how = made[1], made[2]
    output = draft.declaration.spec.output.model_copy(update={"path": f"s3://{BUCKET}/planted"})
    spec = draft.declaration.spec.model_copy(update={"output": output})
    each = replace(draft, declaration=replace(draft.declaration, spec=spec))
    planted = folder_of(output.path) / draft.name / "manifest.json"
    planted.write(b"{}")
    for recorded in ((), ("0" * 64,)):
        with pytest.raises(OutputError, match="is not the release of run first"):
            targets.publish(each, **{**how, "recorded": recorded})
    assert content_of(planted) == b"{}"
    planted.unlink()
    note = publication_note(folder_of(output.path) / draft.name)
    note.write(
        b'{"created": "2026-11-16T00:00:00+00:00", "privacy": {"ledger_head": "ab"}, "version": {"before": null}}'
    )
    with pytest.raises(OutputError, match="is not a note of this ledger; remove it"):
        targets.publish(each, **how)
    assert not planted.exists()


def point(folder: ObjectPath, name: str) -> None:
    point_latest(folder, name, numbers=lambda: {name: 1})


def before_the_next(folder: ObjectPath, name: str) -> str | None:
    """Return what the release of a later run would state as the one before it."""
    run = SimpleNamespace(id="next", account="visits", first=10**6)
    with open_ledger() as ledger:
        later = SimpleNamespace(run=lambda _: run, runs=ledger.runs, manifests_of=ledger.manifests_of)
        return release_before(cast("Ledger", later), "next", folder)


def owner(folder: ObjectPath, name: str) -> object:
    return owner_of(folder)


def recorded_as_damage(folder: ObjectPath, name: str) -> object:
    return verify_ledger(complete=[folder])


def opened_session(folder: ObjectPath, name: str) -> object:
    """Read the release of run `first`, as a session does that has begun with it."""
    claim = Claim(64 * "0", "first", 1.0, unchanged=False)
    with open_ledger() as ledger:
        release = first_release(ledger, load_spec("spec.yaml"), replace(ledger.run("first"), claim=claim.text))
    assert release.uncertainty
    return release.manifest["privacy"]["run"]


def verified(folder: ObjectPath, name: str) -> object:
    found = verify_release(folder / name)
    assert found.problems == ()
    return found.files


@pytest.mark.parametrize(
    ("read", "file", "error"),
    [
        (opened_session, "manifest.json", OutputError),
        (opened_session, "withdrawn.json", OutputError),
        (opened_session, "measurements.parquet", OutputError),
        (opened_session, "uncertainty.parquet", OutputError),
        (recorded_as_damage, "manifest.json", LedgerError),
        (recorded_as_damage, "card.html", LedgerError),
        (recorded_as_damage, "SHA256SUMS", LedgerError),
        (recorded_as_damage, "latest.json", LedgerError),
        (recorded_as_damage, "ledger.json", LedgerError),
        (point, "manifest.json", OSError),
        (before_the_next, "manifest.json", OutputError),
        (owner, "ledger.json", OutputError),
        (verified, "manifest.json", UsageError),
        (verified, "SHA256SUMS", UsageError),
        (verified, "card.html", UsageError),
    ],
)
def test_a_store_that_fails_to_read_is_not_an_empty_store(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[ObjectPath, str], object],
    file: str,
    error: type[Exception],
) -> None:
    folder = folder_of(ADDRESS)
    (name,) = complete(folder)
    failures = []

    def fails_once(method: str) -> Callable[[ObjectPath], Any]:
        original = getattr(ObjectPath, method)

        def failing(path: ObjectPath) -> Any:
            if path.name == file and not failures:
                failures.append(path)
                raise OSError(5, "the store failed or does not answer (TimeoutError)", str(path))
            return original(path)

        return failing

    expected = read(folder, name)
    with monkeypatch.context() as patch:
        for method in ("size", "open"):
            patch.setattr(ObjectPath, method, fails_once(method))
        with pytest.raises(error, match="the store failed or does not answer") as raised:
            read(folder, name)
        assert len(failures) == 1
        assert not isinstance(raised.value, LedgerDamaged)
        assert read(folder, name) == expected  # it has failed only once
    if read in (opened_session, before_the_next):
        assert expected in {"first", name}


def test_a_recipient_verifies_a_release_in_a_store_byte_for_byte(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_the_life_of_releases_in_a_store(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed_found_read_answered_and_verified(here, capsys)
    withdrawn_for_all_readers_whatever_kills_the_steward(monkeypatch, capsys)
    only_the_newest_is_kept()
    an_upload_that_was_killed_is_no_damage(here, monkeypatch)


def listed_found_read_answered_and_verified(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(ADDRESS)
    (name,) = complete(folder)
    for named in (str(folder), "spec.yaml"):
        assert said(capsys, "latest", named) == (0, f"{folder}/{name}\n")
        code, text = said(capsys, "releases", named)
        assert (code, name in text, "newest" in text) == (0, True, True)
    rows = pd.read_parquet(f"{folder}/{name}/data")
    frame = answer(str(folder), "select count(*) as n from release")
    assert 0 < len(rows) < 1000
    assert frame["n"][0] == pytest.approx(len(rows), abs=1)
    code, text = said(capsys, "answer", str(folder), "select count(*) as n from release", "--json")
    assert (code, json.loads(text)[0]["n"]) == (0, pytest.approx(len(rows), abs=1))
    code, text = said(capsys, "sample", f"{folder}/{name}", "--rows", "5", "--json")
    assert (code, len(json.loads(text))) == (0, 5)
    verified = verify_ledger(complete=[folder])
    assert (verified.manifests, verified.files, verified.absent) == (1, len(objects_in(folder / name)), 0)
    (folder / name / "card.html").write(b"<p>")
    with pytest.raises(LedgerDamaged, match=r"card\.html has 3 bytes"):
        verify_ledger()
    assert "SECRET-OF-TESTS" not in "".join(
        path.read_text("utf-8", "ignore") for path in here.rglob("*.*") if path.is_file()
    )
    with pytest.raises(OutputError, match=r"card\.html has 3 bytes, but was published"):
        synthesize("spec.yaml", run_id="first", resume=True)
    for each in ("card.html", "manifest.json"):
        (folder / name / each).unlink()
    with pytest.raises(LedgerDamaged, match=r"manifest\.json is missing"):
        verify_ledger()
    synthesize("spec.yaml", run_id="first", resume=True)  # written again, to the last byte
    assert verify_ledger(complete=[folder]).files == verified.files


def withdrawn_for_all_readers_whatever_kills_the_steward(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(ADDRESS)
    (name,) = complete(folder)
    boundary = 0
    while True:
        with monkeypatch.context() as patch:
            killed_after(patch, boundary)
            try:
                code, text = said(capsys, "withdraw", f"{folder}/{name}", "--reason", "wrong codes")
                break
            except Killed:
                boundary += 1
    assert (code, "wrong codes" in text) == (0, True)
    assert boundary >= 5  # the notice, the sign, and the files
    with open_ledger() as ledger:
        assert sum(event.kind is EventKind.WITHDRAWN for event in ledger.history("visits")) == 1
    with pytest.raises(UsageError, match=r"was withdrawn on .*: wrong codes"):
        answer(str(folder), "select count(*) from release")
    with pytest.raises(Exception, match=SIGN):
        pd.read_parquet(f"{folder}/{name}/data")
    code, text = said(capsys, "latest", str(folder))
    assert (code, "wrong codes" in text) == (2, True)
    assert verify_ledger(complete=[folder]).withdrawn == 1
    synthesize("spec.yaml", run_id="second")
    assert said(capsys, "latest", str(folder))[0] == 0


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
        patch.setenv("DPFLOW_SIGNING_KEY", str(here / "publisher.key"))
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


def test_two_ledgers_do_not_share_a_folder_of_a_store(here: Path, workspace: Workspace) -> None:
    workspace.write_spec(("rounds: 4}", f"rounds: 1}}\noutput: {{path: '{ADDRESS}'}}"))
    workspace.open_account()
    with pytest.raises(UsageError, match=f"the releases in {ADDRESS}/visits belong to ledger"):
        synthesize(workspace.spec, run_id="other")
    with open_ledger() as ledger:
        assert not ledger.runs("visits")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("s3://key:secret@bucket/releases", "credentials belong into the environment"),
        ("s3://bucket/releases?token=secret", "credentials belong into the environment"),
        ("s3://bucket/../other", "must be an address of letters"),
        ("s3://", "must be an address of letters"),
        ("file:///tmp/releases", "must be a folder without file://"),
        ("ftp://host/releases", "must be a folder or an object store"),
        ("filecache::s3://bucket", "must be a folder or an object store"),
    ],
)
def test_an_address_that_cannot_be_published_to_is_refused_with_the_spec(
    workspace: Workspace, path: str, said: str
) -> None:
    workspace.write_spec(("strategy:", f"output: {{path: '{path}'}}\nstrategy:"))
    with pytest.raises(SpecError, match=said) as error:
        load_spec(workspace.spec)
    assert "secret" not in str(error.value)
    assert "spec.yaml:10:" in str(error.value)


def test_a_store_that_cannot_be_reached_or_written_costs_nothing(
    here: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.open_account()
    workspace.write_spec(("rounds: 4}", "rounds: 1}\noutput: {path: 's3://no-such-bucket/releases'}"))
    with pytest.raises(OutputError, match=r"ledger\.json cannot be written to s3://no-such-bucket/releases/visits"):
        synthesize(workspace.spec, run_id="no-bucket")

    def refused(path: ObjectPath, content: bytes) -> bool:
        raise PermissionError(13, "denied", str(path))

    workspace.write_spec(("rounds: 4}", f"rounds: 1}}\noutput: {{path: 's3://{BUCKET}/read-only'}}"))
    with monkeypatch.context() as patch:
        patch.setattr(ObjectPath, "create", refused)
        with pytest.raises(OutputError, match=r"ledger\.json cannot be written"):
            synthesize(workspace.spec, run_id="denied")
    with open_ledger() as ledger:
        assert [run.spent for run in ledger.runs("visits")] == [0, 0]


def test_a_store_that_fails_is_no_damage(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: ObjectPath) -> bool:
        raise OSError(5, "the store failed or does not answer (TimeoutError)", str(path))

    monkeypatch.setattr(ObjectPath, "exists", fails)
    with pytest.raises(LedgerError, match=r"does not answer .*, so the releases were not verified") as error:
        verify_ledger()
    assert not isinstance(error.value, LedgerDamaged)

"""Releases in an object store: they appear complete or not at all, once, whatever kills their writers."""

import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dpcore import synthesize
from dpcore.errors import LedgerDamaged, LedgerError, OutputError, SpecError, UsageError
from dpcore.ledger import EventKind, Ledger, open_ledger
from dpcore.object_store import ObjectPath
from dpcore.release import Draft, targets
from dpcore.release.dataset_folder import point_latest, publication_note
from dpcore.release.ownership import owner_of
from dpcore.release.problems import verify_release
from dpcore.release.signing import KEY_VARIABLE, SIGNATURE, new_key
from dpcore.release.versions import release_before
from dpcore.release.withdrawal import withdraw
from dpcore.reporting.session_claims import Claim
from dpcore.session.opening import first_release
from dpcore.spec import load_spec
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace
from tests.dpcore.release.conftest import Kept, memory_store, working_in
from tests.dpcore.release.stores import (
    ADDRESS,
    Killed,
    complete,
    content_of,
    folder_of,
    killed_after,
    objects_in,
    project,
)
from tests.s3 import BUCKET

pytestmark = pytest.mark.usefixtures("rough_models", "store")


@pytest.fixture(scope="module")
def store() -> Iterator[None]:
    with memory_store():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, rough_models: None, store: None) -> tuple[Path, Draft]:
    """A project with a release of run `first` in the store, and the draft of that release."""
    folder = tmp_path_factory.mktemp("made")
    with working_in(folder) as patch:
        kept = Kept(patch)
        synthesize(project(folder).spec, run_id="first")
    return folder, kept.drafts[0]


@pytest.fixture
def first(made: tuple[Path, Draft]) -> Iterator[ObjectPath]:
    """The release of run `first`. The working folder is that of its project."""
    with working_in(made[0]):
        yield folder_of(ADDRESS) / made[1].name


@pytest.fixture
def draft(made: tuple[Path, Draft], first: ObjectPath, request: pytest.FixtureRequest) -> Draft:
    """The draft of that release, to be published to a folder of the test's own. It has few files, which are written fast."""
    draft = made[1]
    path = f"s3://{BUCKET}/{sha256(request.node.name.encode()).hexdigest()[:9]}"
    output = draft.declaration.spec.output.model_copy(update={"path": path})
    spec = draft.declaration.spec.model_copy(update={"output": output})
    return replace(draft, declaration=replace(draft.declaration, spec=spec), uncertainty=None, judge=None)


def publish(
    draft: Draft, *, recorded: Collection[str] = (), confirm: Callable[[], None] = lambda: None
) -> targets.Published:
    """Publish a draft of run `first`, as if the run had recorded these manifests only, and the ledger any head."""
    with open_ledger() as ledger, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "manifests_of", lambda _: recorded)
        patch.setattr(ledger, "has_event", lambda head: len(head) == 64)
        patch.setattr(ledger, "confirm", confirm)
        return targets.publish(draft, ledger=ledger, lease=None)


def place_of(draft: Draft) -> ObjectPath:
    folder = draft.declaration.output_folder
    assert isinstance(folder, ObjectPath)
    return folder / draft.name


def write_once(patch: pytest.MonkeyPatch, template: Path) -> None:
    """Let all attempts copy what the first one has written. That they would write the same is the next test."""
    write, made = targets.write_files, []

    def copied(folder: Path, *arguments: Any, **named: Any) -> Any:
        if made:
            shutil.copytree(template, folder, dirs_exist_ok=True)
        else:
            made.append(write(folder, *arguments, **named))
            shutil.copytree(folder, template)
        return made[0]

    patch.setattr(targets, "write_files", copied)


def test_a_writer_killed_between_any_two_changes_leaves_no_half_release_and_is_resumed_once(
    draft: Draft, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    release, states = place_of(draft), []
    write_once(monkeypatch, tmp_path / "written")
    while True:
        with monkeypatch.context() as patch:
            killed_after(patch, len(states))
            try:
                publish(draft)
            except Killed:
                pass
            else:
                break
        states.append((complete(release.parent), (release.parent / "latest.json").exists()))
        published = publish(draft)
        assert published.appeared is (states[-1][0] == [])
        assert complete(release.parent) == [draft.name]
        again = publish(draft, recorded=(published.manifest_sha256,))
        assert (again.appeared, again.manifest_sha256) == (False, published.manifest_sha256)
        changed = len(objects_in(release.parent))
        for path in objects_in(release.parent):
            (release.parent / path).unlink()
    # Each object is one change, and the manifest and the pointer are the last two.
    # Nothing is seen before the manifest, or pointed to before the pointer.
    assert states == [([], False)] * (changed - 1) + [([draft.name], False)]


def test_a_worker_that_was_believed_dead_writes_the_same_bytes(draft: Draft, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had decided to publish before another worker did, and goes on after that one has finished."""
    written = publish(draft)
    monkeypatch.setattr(targets, "_is_taken", lambda final: False)
    later = replace(draft, statement=replace(draft.statement, ledger_head="0" * 64))
    assert publish(later).manifest_sha256 == written.manifest_sha256
    assert sha256(content_of(place_of(draft) / "manifest.json")).hexdigest() == written.manifest_sha256
    assert complete(place_of(draft).parent) == [draft.name]


def test_the_release_of_a_settled_run_is_taken_from_the_store_only_if_it_is_undamaged(draft: Draft) -> None:
    written, final = publish(draft), place_of(draft)
    recorded = (written.manifest_sha256,)
    found = targets.published_before(final, recorded=recorded, run="first")
    assert (found.manifest, found.manifest_sha256, found.appeared) == (written.manifest, recorded[0], False)
    with pytest.raises(OutputError, match=r"is not the release of run first: manifest\.json is missing or differs"):
        targets.published_before(final, recorded=("0" * 64,), run="first")
    (final / "card.html").unlink()
    with pytest.raises(OutputError, match=r"is not the release of run first: card\.html is missing"):
        targets.published_before(final, recorded=recorded, run="first")


def test_a_resumed_run_removes_what_an_attempt_with_other_settings_has_left(
    draft: Draft, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    release = place_of(draft)
    new_key(tmp_path / "publisher")

    def before_the_manifest() -> None:
        if (release / SIGNATURE).exists():
            raise Killed

    with monkeypatch.context() as patch:
        patch.setenv(KEY_VARIABLE, str(tmp_path / "publisher.key"))
        with pytest.raises(Killed):
            publish(draft, confirm=before_the_manifest)
    assert SIGNATURE in objects_in(release)
    publish(draft)
    assert SIGNATURE not in objects_in(release)
    assert complete(release.parent) == [draft.name]


def test_nothing_is_written_for_a_run_that_may_not_publish(draft: Draft) -> None:
    release = place_of(draft)

    def refused() -> None:
        raise LedgerError("the ledger lost this run")

    with pytest.raises(LedgerError, match="lost this run"):
        publish(draft, confirm=refused)
    assert not release.exists()
    (release / "withdrawn.json").write(b"{}")
    with pytest.raises(OutputError, match=r"withdrawn\.json says that the release of run first was withdrawn"):
        publish(draft)
    assert objects_in(release) == ["withdrawn.json"]


def test_a_release_that_is_withdrawn_while_it_is_uploaded_does_not_appear(
    draft: Draft, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, upload = place_of(draft), ObjectPath.upload

    def withdrawn_meanwhile(path: ObjectPath, file: Path) -> None:
        upload(path, file)
        (release / "withdrawn.json").write(b"{}")

    monkeypatch.setattr(ObjectPath, "upload", withdrawn_meanwhile)
    with pytest.raises(OutputError, match=r"so it is not written again"):
        publish(draft)
    assert not (release / "manifest.json").exists()


def test_what_is_not_the_runs_own_is_never_replaced(draft: Draft) -> None:
    planted, note = place_of(draft) / "manifest.json", publication_note(place_of(draft))
    planted.write(b"{}")
    for recorded in ((), ("0" * 64,)):
        with pytest.raises(OutputError, match="is not the release of run first"):
            publish(draft, recorded=recorded)
    assert content_of(planted) == b"{}"
    planted.unlink()
    note.write(
        b'{"created": "2026-11-16T00:00:00+00:00", "privacy": {"ledger_head": "ab"}, "version": {"before": null}}'
    )
    with pytest.raises(OutputError, match="is not a note of this ledger; remove it"):
        publish(draft)
    assert not planted.exists()


def before_the_next(release: ObjectPath) -> object:
    """Return what the release of a later run would state as the one before it."""
    run = SimpleNamespace(id="next", account="visits", first=10**6)
    with open_ledger() as ledger:
        later = SimpleNamespace(run=lambda _: run, runs=ledger.runs, manifests_of=ledger.manifests_of)
        return release_before(cast("Ledger", later), "next", release.parent)


def opened_session(release: ObjectPath) -> object:
    """Read the release of run `first`, as a session does that has begun with it."""
    claim = Claim(64 * "0", "first", 1.0, unchanged=False)
    with open_ledger() as ledger:
        return first_release(ledger, load_spec("spec.yaml"), replace(ledger.run("first"), claim=claim.text)).uncertainty


READERS: dict[str, tuple[Callable[[ObjectPath], object], type[Exception], tuple[str, ...]]] = {
    "session": (
        opened_session,
        OutputError,
        ("manifest.json", "withdrawn.json", "measurements.parquet", "uncertainty.parquet"),
    ),
    "verify": (
        lambda release: verify_ledger(complete=[release.parent]),
        LedgerError,
        ("manifest.json", "card.html", "SHA256SUMS", "latest.json", "ledger.json"),
    ),
    "newest": (
        lambda release: point_latest(release.parent, release.name, numbers=lambda: {release.name: 1}),
        OSError,
        ("manifest.json",),
    ),
    "release before": (before_the_next, OutputError, ("manifest.json",)),
    "owner": (lambda release: owner_of(release.parent), OutputError, ("ledger.json",)),
    "verify-release": (verify_release, UsageError, ("manifest.json", "SHA256SUMS", "card.html")),
}
"""Who reads a store, the error that they raise if it fails, and the files that they read."""


@pytest.mark.parametrize("reader", READERS)
def test_a_store_that_fails_to_read_is_not_an_empty_store(
    first: ObjectPath, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    read, error, files = READERS[reader]

    def failing(method: str, file: str) -> Callable[[ObjectPath], Any]:
        original = getattr(ObjectPath, method)

        def fails(path: ObjectPath) -> Any:
            if path.name == file:
                raise OSError(5, "the store failed or does not answer (TimeoutError)", str(path))
            return original(path)

        return fails

    for file in files:
        with monkeypatch.context() as patch:
            for method in ("size", "open"):
                patch.setattr(ObjectPath, method, failing(method, file))
            with pytest.raises(error, match="the store failed or does not answer") as raised:
                read(first)
        assert not isinstance(raised.value, LedgerDamaged)
    read(first)


def test_a_store_that_fails_to_say_what_is_there_is_no_damage(
    first: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: ObjectPath) -> bool:
        raise OSError(5, "the store failed or does not answer (TimeoutError)", str(path))

    monkeypatch.setattr(ObjectPath, "exists", fails)
    with pytest.raises(LedgerError, match=r"does not answer .*, so the releases were not verified") as error:
        verify_ledger()
    assert not isinstance(error.value, LedgerDamaged)


def test_a_steward_who_is_killed_at_any_change_of_a_withdrawal_finishes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working_in(tmp_path):
        space = project(tmp_path)
        space.write_spec(("rounds: 4}", f"rounds: 1}}\noutput: {{path: 's3://{BUCKET}/gone'}}"))
        release = ObjectPath(synthesize(space.spec, run_id="gone").release)
        number = 0
        with open_ledger() as ledger:
            while True:
                with monkeypatch.context() as patch:
                    killed_after(patch, number)
                    try:
                        withdraw(ledger, "gone", release, reason="wrong codes")
                        break
                    except Killed:
                        number += 1
            assert sum(event.kind is EventKind.WITHDRAWN for event in ledger.history("visits")) == 1
        assert number >= 5  # the notice, the sign, and the files
        assert verify_ledger(complete=[release.parent]).withdrawn == 1


def test_two_ledgers_do_not_share_a_folder_of_a_store(first: ObjectPath, workspace: Workspace) -> None:
    workspace.write_spec(("rounds: 4}", f"rounds: 1}}\noutput: {{path: '{ADDRESS}'}}"))
    workspace.open_account()
    with pytest.raises(UsageError, match=f"the releases in {ADDRESS}/visits belong to ledger"):
        synthesize(workspace.spec, run_id="other")
    with open_ledger() as ledger:
        assert not ledger.runs("visits")


def test_a_store_that_cannot_be_written_costs_nothing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: ObjectPath, content: bytes) -> bool:
        raise PermissionError(13, "denied", str(path))

    workspace.open_account()
    workspace.write_spec(("rounds: 4}", f"rounds: 1}}\noutput: {{path: 's3://{BUCKET}/read-only'}}"))
    monkeypatch.setattr(ObjectPath, "create", refused)
    with pytest.raises(OutputError, match=r"ledger\.json cannot be written"):
        synthesize(workspace.spec, run_id="denied")
    with open_ledger() as ledger:
        assert ledger.run("denied").spent == 0


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

"""`prior: latest`: a release that starts from the dataset's newest one, and whose promise counts both."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

from benchmarks.coverage_releases import seeded
from dpcore import Session, open_release, synthesize
from dpcore.cli.main import main
from dpcore.errors import LedgerDamaged, OutputError, UsageError
from dpcore.ledger import Ledger, Run, RunState, open_ledger
from dpcore.privacy.accounting import Cap, promise_of
from dpcore.release import statement
from dpcore.release.manifest import Manifest
from dpcore.release.problems import verify_release
from dpcore.release.withdrawal import withdraw
from dpcore.reporting.lineage import Part, bound_claim, bound_to, ledger_parts
from dpcore.reporting.overview import overview
from dpcore.runs import draft, prior, synthesis
from dpcore.runs.paying import claim_of
from dpcore.runs.steps import check_run, in_order, open_run
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import load_spec
from dpcore.steward.releases import withdraw_release
from dpcore.steward.verify import verify_ledger
from tests.dpcore.runs.releases import interrupted_at, manifest_of, transcript_of
from tests.dpcore.runs.test_prior import people, prepare

pytestmark = pytest.mark.usefixtures("rough_models")

LATEST = ("prior: {path: public.parquet}", "prior: latest")
NONE = ("prior: {path: public.parquet}\n", "")


def ready(folder: Path, *, prior: tuple[str, str] = LATEST, strategy: str = "mwem") -> Path:
    """Write a spec with this prior and a private table, open an account, and return the spec."""
    spec = prepare(folder, strategy)
    (folder / "public.parquet").unlink()
    spec.write_text(spec.read_text("utf-8").replace(*prior), encoding="utf-8")
    return spec


def make(spec: Path, run_id: str, *, seed: int = 5, resume: bool = False) -> Path:
    with chdir(spec.parent), seeded(seed):
        return Path(synthesize(spec, run_id=run_id, resume=resume).release).resolve()


def in_ledger(folder: Path) -> dict[str, Run]:
    with chdir(folder), open_ledger() as ledger:
        return {run.id: run for run in ledger.runs("people")}


def interrupt(spec: Path, run_id: str) -> None:
    """Begin a run, and end it as a killed process would."""
    with interrupted_at(commit=6):
        make(spec, run_id)


Two = tuple[Path, Path, Path]


@pytest.fixture(scope="module", params=["mwem", "adaptive"])
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Two:
    """A spec and two releases of it, the second of which starts from the first."""
    return released_twice(tmp_path_factory.mktemp("latest"), strategy=request.param)


def released_twice(folder: Path, *, strategy: str = "mwem") -> Two:
    """Write a spec, and make two releases of it."""
    spec = ready(folder, strategy=strategy)
    return spec, make(spec, "first", seed=5), make(spec, "second", seed=6)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="dpcore.progress"):
        yield caplog


def manifest_sha256(release: Path) -> str:
    (digest,) = [
        line.split()[0] for line in (release / "SHA256SUMS").read_text().splitlines() if "manifest.json" in line
    ]
    return digest


def runs_of(release: Path) -> list[str]:
    return [part["run"] for part in manifest_of(release)["privacy"]["made_from"]]


def test_the_first_release_starts_from_equal_weights_and_says_so(two: Two) -> None:
    spec, first, _ = two
    manifest = manifest_of(first)
    assert manifest["prior"] == {"kind": "earlier release", "name": None, "used": False}
    assert runs_of(first) == ["first"]
    assert "runs that were used" not in manifest["privacy"]["guarantee"]
    assert not (first / "start.parquet").exists()
    assert bound_to(in_ledger(spec.parent)["first"].claim) is None


def test_the_second_release_starts_from_the_rows_of_the_first(two: Two) -> None:
    spec, first, second = two
    manifest, digest = manifest_of(second), manifest_sha256(first)
    said = manifest["prior"]
    assert (said["kind"], said["name"], said["run"]) == ("earlier release", first.name, "first")
    assert said["sha256"] == digest
    assert said["rows"] == manifest_of(first)["rows"]
    assert said["used"]
    (warning,) = (each for each in manifest["warnings"] if "intervals do not count the errors of that start" in each)
    assert warning.startswith(f"the weights have started from release {first.name}")
    assert not any("have started from" in each for each in manifest_of(first)["warnings"])
    assert (second / "start.parquet").exists()
    assert open_release(second).start.functions
    assert bound_to(in_ledger(spec.parent)["second"].claim) == ("first", digest)
    Manifest.model_validate(manifest)


def test_the_statement_counts_both_runs(two: Two) -> None:
    spec, first, second = two
    privacy, before = manifest_of(second)["privacy"], manifest_of(first)["privacy"]
    runs = in_ledger(spec.parent)
    with chdir(spec.parent), open_ledger() as ledger:
        currency = ledger.account("people").currency
    amount = sum(run.reserved for run in runs.values())
    promise = promise_of(Cap(currency, amount, first=runs["first"].reserved), delta=before["delta"])
    assert (privacy["epsilon"], privacy["delta"]) == (promise.epsilon, promise.delta)
    assert privacy["epsilon"] > 1.3 * before["epsilon"]
    assert runs_of(second) == ["first", "second"]
    assert [part["release"] for part in privacy["made_from"]] == [first.name, None]
    assert [part["draws"] for part in privacy["made_from"]] == [before["draws"], privacy["draws"] - before["draws"]]
    sentence = "The promise counts the reservations of all 2 runs that were used."
    assert sentence in privacy["guarantee"]
    card = (second / "card.html").read_text(encoding="utf-8")
    assert sentence in card
    assert "This promise covers this release and those of all runs that it is made from." in card
    assert f"run first, with release {first.name}: " in card
    assert "This promise covers this release alone." in (first / "card.html").read_text(encoding="utf-8")
    footers = [pq.read_schema(path).metadata[b"dpflow"] for path in second.rglob("*.parquet")]
    assert {json.loads(footer)["epsilon"] for footer in footers} == {promise.epsilon}
    assert not verify_release(second).problems


def test_the_ledger_agrees_and_shows_it(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    spec, _, second = two
    with chdir(spec.parent):
        verify_ledger()
        with open_ledger() as ledger:
            (found,) = overview(ledger, "people").accounts
        assert main(["ledger", "show", "people"], runner=None) == 0  # type: ignore[arg-type]
        shown = capsys.readouterr().out
        assert main(["ledger", "export", "people", "--to", "exported"], runner=None) == 0  # type: ignore[arg-type]
    assert [[part.run for part in item.made_from] for item in found.runs] == [["first"], ["first", "second"]]
    assert found.runs[1].promise(found.account).epsilon == manifest_of(second)["privacy"]["epsilon"]
    assert "made from 2 runs, since first" in shown
    assert "a run that goes on from others promises the epsilon of all their reservations and its own" in shown
    page = next((spec.parent / "exported").glob("*.md")).read_text(encoding="utf-8")
    assert "`second`, made from 2 runs" in page


def test_a_statement_of_the_own_run_alone_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ready(tmp_path)
    make(spec, "first")
    with monkeypatch.context() as patch:
        patch.setattr(statement, "ledger_parts", lambda *arguments: ledger_parts(*arguments)[-1:])  # the planted bug
        second = make(spec, "second")
    assert bound_to(in_ledger(tmp_path)["second"].claim) is not None
    with chdir(tmp_path), pytest.raises(LedgerDamaged, match="lists other runs, or other reservations of them"):
        verify_ledger()
    assert [each.what for each in verify_release(second).problems] == [
        "omits run first, which the release is made from"
    ]


@pytest.mark.parametrize("change", [{"amount": 1}, {"fixed": 0}, {"run": "elsewhere"}])
def test_a_statement_of_other_runs_or_smaller_reservations_than_the_ledger_has_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    spec = ready(tmp_path, prior=NONE)

    def invented(*arguments: Any) -> tuple[Part, ...]:
        (own,) = ledger_parts(*arguments)
        return replace(own, release="elsewhere", **{"run": "elsewhere", **change}), own

    state = draft.state
    monkeypatch.setattr(statement, "ledger_parts", invented)
    monkeypatch.setattr(draft, "state", lambda *of, draws, **more: state(*of, draws={**draws, "elsewhere": 1}, **more))
    make(spec, "first")
    with chdir(tmp_path), pytest.raises(LedgerDamaged, match="lists other runs, or other reservations of them"):
        verify_ledger()


def charges(folder: Path, run_id: str) -> list[tuple[str, int]]:
    with chdir(folder):
        return [(operation.step, operation.amount) for operation in transcript_of(run_id)]


def test_it_charges_exactly_what_a_run_without_a_prior_charges(two: Two, tmp_path: Path) -> None:
    spec, _, _ = two
    strategy = load_spec(spec).strategy.name
    plain = ready(tmp_path, prior=NONE, strategy=strategy)
    make(plain, "second", seed=6)
    with_prior, without = in_ledger(spec.parent)["second"], in_ledger(tmp_path)["second"]
    assert with_prior.reserved == without.reserved
    if strategy == "mwem":  # `adaptive` chooses its prices by what it has seen, within the same reservation
        assert charges(spec.parent, "second") == charges(tmp_path, "second")


def test_it_reads_the_published_rows_of_the_earlier_release_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, release, again = released_twice(tmp_path)
    expected = pd.read_parquet(again / "data")
    for path in release.iterdir():
        if path.name not in {"manifest.json", "data"}:
            path.unlink()
    shutil.rmtree(again)
    operation, asked = Ledger.operation, set()

    def recorded(ledger: Ledger, run_id: str, step: str) -> Any:
        asked.add(run_id)
        return operation(ledger, run_id, step)

    people(10, seed=9).to_parquet(tmp_path / "private.parquet", index=False)  # a replay needs only the own transcript
    monkeypatch.setattr(Ledger, "operation", recorded)
    make(spec, "second", resume=True)
    assert asked == {"second"}
    pd.testing.assert_frame_equal(pd.read_parquet(again / "data"), expected)


def test_a_resumed_run_starts_from_its_own_release_and_not_from_a_newer_one(tmp_path: Path) -> None:
    spec = ready(tmp_path)
    first = make(spec, "first")
    interrupt(spec, "second")
    third = make(spec, "third")
    second = make(spec, "second", resume=True)
    assert [manifest_of(each)["prior"]["name"] for each in (second, third)] == [first.name, first.name]
    assert manifest_of(make(spec, "fourth"))["prior"]["name"] == third.name  # reserved last of those that are settled
    with chdir(tmp_path):
        verify_ledger()


def test_a_resumed_first_run_stays_without_one(tmp_path: Path) -> None:
    spec = ready(tmp_path)
    interrupt(spec, "first")
    make(spec, "second")
    assert manifest_of(make(spec, "first", resume=True))["prior"]["name"] is None


def test_a_withdrawn_release_is_passed_over(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    spec = ready(tmp_path)
    first, second = make(spec, "first"), make(spec, "second")
    interrupt(spec, "third")
    with chdir(tmp_path):
        told.clear()
        withdraw_release(str(first), reason="a mistake")
        assert f"release {second.name} has started from this one" in told.text
        told.clear()
        withdraw_release(str(second), reason="another")
        assert "run third starts from this release and cannot go on without it" in told.text
        with pytest.raises(UsageError, match=r"was withdrawn on .*: another; run third has started from it"):
            make(spec, "third", resume=True)
        verify_ledger()
    assert manifest_of(make(spec, "fourth"))["prior"]["name"] is None


def test_retention_keeps_what_an_open_run_starts_from(tmp_path: Path) -> None:
    spec = ready(tmp_path)
    spec.write_text(spec.read_text("utf-8") + "output: {keep: 1}\n", encoding="utf-8")
    first = make(spec, "first")
    interrupt(spec, "second")
    make(spec, "third")
    make(spec, "fourth")
    assert (first / "data" / "part-00000.parquet").exists()
    assert manifest_of(make(spec, "second", resume=True))["prior"]["name"] == first.name
    assert not (first / "data").exists()


def keeping_one(folder: Path) -> tuple[Path, Path, Path]:
    """Make two releases, of which the spec keeps the newest. Return the spec and the releases."""
    spec = ready(folder)
    spec.write_text(spec.read_text("utf-8") + "output: {keep: 1}\n", encoding="utf-8")
    first, second = make(spec, "first"), make(spec, "second", seed=6)
    assert not (first / "data").exists()
    return spec, first, second


def test_a_published_run_is_resumed_after_retention_has_removed_its_start(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    spec, first, second = keeping_one(tmp_path)
    before, files = in_ledger(tmp_path), {path: path.read_bytes() for path in second.rglob("*") if path.is_file()}
    told.clear()
    with chdir(tmp_path), open_run(Synthesis(load_spec(spec), run_id="second", resume=True)) as run:
        outcome = in_order(run)
        report = run.report()
    manifest = manifest_of(second)
    assert Path(outcome.release).name == second.name
    assert (outcome.rows, outcome.warnings) == (manifest["rows"], tuple(manifest["warnings"]))
    assert outcome.sampler_delta == manifest["privacy"]["sampler_delta"]
    assert [asdict(each) | {"columns": list(each.columns)} for each in report.rounds] == manifest["rounds"]
    assert manifest["rounds"]
    assert report.privacy["made_from"][0]["release"] == first.name
    assert in_ledger(tmp_path) == before
    assert {path: path.read_bytes() for path in second.rglob("*") if path.is_file()} == files
    assert "the weights start from" not in told.text
    with chdir(tmp_path):
        check_run(load_spec(spec), resume="second")
        verify_ledger()


def test_a_published_run_whose_start_was_removed_is_not_replayed_and_a_lost_release_must_be_restored(
    tmp_path: Path,
) -> None:
    spec, first, second = keeping_one(tmp_path)
    run = Synthesis(load_spec(spec), run_id="second", resume=True)
    with chdir(tmp_path), open_run(run):
        run.reserve()
        with pytest.raises(UsageError, match="run second is settled and not replayed"):
            run.begin()  # from equal weights it would be another release
    second.rename(tmp_path / "backup")
    with pytest.raises(UsageError) as caught:
        make(spec, "second", resume=True)
    assert f"the data of release {first.name} was removed" in str(caught.value)
    assert f"so restore the release of run second from a backup to {second}" in str(caught.value)
    assert "new run" not in str(caught.value)
    (tmp_path / "backup").rename(second)
    make(spec, "second", resume=True)
    other_rows(second)
    with pytest.raises(OutputError, match=r"is not the release of run second: data/part-00000\.parquet"):
        make(spec, "second", resume=True)
    with chdir(tmp_path):
        withdraw_release(str(second), reason="a mistake")
    with pytest.raises(UsageError, match="a mistake; it cannot be written again, so start a new run"):
        make(spec, "second", resume=True)


@pytest.mark.parametrize("keep", [None, 1])
def test_a_start_that_is_removed_before_the_reservation_refunds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: int | None
) -> None:
    spec = ready(tmp_path)
    first = make(spec, "first")
    reserve_run = synthesis.reserve_run

    def removed_meanwhile(ledger: Ledger, *arguments: Any, **named: Any) -> Run:
        if keep is not None:
            ledger.reserve("newer", account=ledger.run("first").account, amount=1, claim="claim")
            ledger.settle("newer", release="newer", lease=None)
        withdraw(ledger, "first", first, reason="a mistake", keep=keep)
        if keep is not None:
            ledger.withdraw("newer", reason="it has no files")
        return reserve_run(ledger, *arguments, **named)

    monkeypatch.setattr(synthesis, "reserve_run", removed_meanwhile)
    with pytest.raises(UsageError, match="run second has started from it and cannot go on without it, so start a new"):
        make(spec, "second")
    run = in_ledger(tmp_path)["second"]
    assert (run.state, run.spent) == (RunState.REFUNDED, 0)
    monkeypatch.undo()
    assert manifest_of(make(spec, "third"))["prior"]["name"] is None


def test_a_check_of_a_retry_asks_for_the_start_of_its_first_attempt(tmp_path: Path) -> None:
    spec = ready(tmp_path)
    make(spec, "first")
    interrupt(spec, "second")
    edited(make(spec, "third"))
    with chdir(tmp_path):
        with pytest.raises(UsageError, match="is not what the ledger has recorded"):
            check_run(load_spec(spec), resume=None, run_id="fourth")
        check_run(load_spec(spec), resume=None, run_id="second")


def test_an_id_that_is_too_long_for_a_claim_is_one_sentence_and_nothing_is_spent(tmp_path: Path) -> None:
    spec = ready(tmp_path)
    room = 500 - len(bound_claim(claim_of(load_spec(spec)), run="", manifest_sha256=64 * "0"))
    first = make(spec, "a" * room)
    assert manifest_of(make(spec, "b" * (room + 1)))["prior"]["name"] == first.name
    with pytest.raises(UsageError, match=rf"has {room + 1} characters, .* at most {room}; correct `prior`"):
        make(spec, "third")
    assert len(in_ledger(tmp_path)) == 2


def test_the_rows_of_a_release_are_no_public_table_for_the_account_that_paid_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ready(tmp_path)
    shutil.copy(make(spec, "first") / "data" / "part-00000.parquet", tmp_path / "public.parquet")
    spec.write_text(spec.read_text("utf-8").replace(*reversed(LATEST)), encoding="utf-8")
    with pytest.raises(UsageError, match=r"public\.parquet holds rows of an earlier release.*write `prior: latest`"):
        make(spec, "second")
    monkeypatch.setattr(prior, "_paid_by", lambda _: None)  # the planted bug: its promise would not count the first run
    assert runs_of(make(spec, "third")) == ["third"]


def lost(release: Path) -> None:
    shutil.rmtree(release)


def edited(release: Path) -> None:
    manifest = release / "manifest.json"
    manifest.write_text(manifest.read_text("utf-8").replace('"rows"', '"rows" '), encoding="utf-8")


def other_rows(release: Path) -> None:
    people(100, seed=9).to_parquet(release / "data" / "part-00000.parquet", index=False)


def no_manifest(release: Path) -> None:
    (release / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lost, r"it is missing; restore it from a backup .*--resume first"),
        (no_manifest, r"manifest\.json is missing; restore it from a backup .*--resume first"),
        (edited, "is not what the ledger has recorded"),
        (other_rows, "is not what was published"),
    ],
)
def test_a_release_that_was_changed_is_refused_and_nothing_is_spent(
    tmp_path: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    spec = ready(tmp_path)
    damage(make(spec, "first"))
    with pytest.raises(UsageError, match=sentence) as caught:
        make(spec, "second")
    assert "\n" not in str(caught.value)
    assert set(in_ledger(tmp_path)) == {"first"}


def test_a_bound_release_that_is_gone_can_be_written_again(tmp_path: Path) -> None:
    spec = ready(tmp_path)
    first = make(spec, "first")
    interrupt(spec, "second")
    before = manifest_of(first)
    lost(first)
    with pytest.raises(UsageError, match=r"it is missing; restore it from a backup .*--resume first"):
        make(spec, "second", resume=True)
    make(spec, "first", resume=True)
    second = manifest_of(make(spec, "second", resume=True))
    assert manifest_of(first)["created"] >= before["created"]
    assert second["prior"]["name"] == first.name
    with chdir(tmp_path):
        verify_ledger()  # the run is bound to the manifest that was there first, which the ledger has recorded


def test_other_columns_are_one_sentence_and_nothing_is_spent(tmp_path: Path) -> None:
    spec = ready(tmp_path)
    first = make(spec, "first")
    people(300, seed=1).assign(town="x").to_parquet(tmp_path / "private.parquet", index=False)
    changed = yaml.safe_load(spec.read_text("utf-8"))
    changed["universe"]["town"] = {"type": "categorical", "values": ["x", "y"]}
    spec.write_text(yaml.safe_dump(changed, sort_keys=False), encoding="utf-8")
    with pytest.raises(
        UsageError, match=rf"release {first.name} must have each column of the universe once, but not so 'town'"
    ):
        make(spec, "second")
    assert set(in_ledger(tmp_path)) == {"first"}


def test_the_plan_and_the_run_say_what_they_start_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], told: pytest.LogCaptureFixture
) -> None:
    spec = ready(tmp_path)
    with chdir(tmp_path):
        assert main(["plan", "spec.yaml"], runner=None) == 0  # type: ignore[arg-type]
        assert "starts     from equal weights: the dataset has no release yet" in capsys.readouterr().out
        first = make(spec, "first")
        assert "the weights start from equal ones: the dataset has no release yet" in told.text
        assert main(["plan", "spec.yaml"], runner=None) == 0  # type: ignore[arg-type]
        assert f"starts     from release {first.name}" in capsys.readouterr().out
        make(spec, "second")
        assert f"the weights start from release {first.name}" in told.text


def test_a_release_of_a_session_is_made_from_what_its_first_release_is_made_from(tmp_path: Path) -> None:
    spec = ready(tmp_path)
    first = make(spec, "first")
    with chdir(tmp_path), seeded(9):
        with Session.open(spec, session="s") as session:
            published = session.release()
        privacy = manifest_of(Path(published["release"]))["privacy"]
        verify_ledger()
    assert [part["run"] for part in privacy["made_from"]] == ["first", "s", "s-first", "s-release-0"]
    assert privacy["made_from"][0]["release"] == first.name
    assert privacy["epsilon"] > manifest_of(first)["privacy"]["epsilon"] + 0.1


ABOUT = """\
about:
  title: People
  description: The people of a town.
  curators: [Office]
  intended_use: Tests.
  region: Nowhere
  authors: [Somebody]
"""


def test_the_entry_for_the_registry_says_it_too(tmp_path: Path) -> None:
    spec = ready(tmp_path)
    spec.write_text(spec.read_text("utf-8") + ABOUT, encoding="utf-8")
    first, second = make(spec, "first"), make(spec, "second")
    said = [
        yaml.safe_load((each / "deployment.yaml").read_text("utf-8"))["deployment"]["privacy_loss"][
            "privacy_parameters_description"
        ]
        for each in (first, second)
    ]
    assert all(each.endswith("This is the promise of this release alone.") for each in said)
    assert "The promise counts the reservations of all 2 runs that were used." in said[1]

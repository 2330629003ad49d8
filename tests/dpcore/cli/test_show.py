"""What `dpflow ledger show` looks like, to the letter, and what it holds for programs."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dpcore.ledger import AllowanceKind, open_ledger
from dpcore.ledger.holder import this_worker
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours
from dpcore.reporting import formatting as wording
from dpcore.reporting.session_claims import Claim
from dpcore.runs.steps import synthesize
from tests.conftest import Workspace
from tests.dpcore.cli.ledgers import MECHANISM, dpflow, made_at_noon, opened, spent, without_ledger


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert dpflow("ledger", "show", *arguments) == 0
    text = capsys.readouterr().out
    return text if "--json" in arguments else without_ledger(text)


CLINIC = """\
clinic                                                                         open since 2026-07-01
────────────────────────────────────────────────────────────────────────────────────────────────────
what clinic is about
neighbours  adding or removing one person with all its rows
promise     epsilon 10 at delta 1e-09, however runs use the budget

            ███████████████▒▒▒▒▒▒▒▒▒··························   █ spent   ▒ reserved   · left

                 rho   share  bookkeeping
budget      1.090786
spent       0.327236  30.0 %
reserved    0.201796  18.5 %
remaining   0.561754  51.5 %  the next run can ask for epsilon 6.9033

allowed to       epsilon  rho used  rho left  used
analyst     ann        7  0.283605  0.261788  ████████████████··············

run    opened (UTC)      state     promise  spent        release
run-1  2026-07-01 12:00  settled   4.65029  ██████████·  release-of-run-1
run-2  2026-07-01 12:00  open      4.65029  ███▒▒▒▒▒▒▒▒  -
    analyst ann, purpose care
    process 4120 on worker-7, whose lease expired at 2026-07-01 12:06 UTC
run-3  2026-07-01 12:00  open     0.847703  ▒▒▒▒▒▒▒▒▒▒▒  -
    analyst ann
    no process is working on it
promise: the epsilon of the run's reservation at delta 1e-09; a release at another delta states its own epsilon


head HEAD after 32 events
"""


def test_an_account_in_zcdp_is_shown_with_its_runs_and_allowances(capsys: pytest.CaptureFixture[str]) -> None:
    with made_at_noon() as ledger:
        opened(ledger, "clinic", epsilon=10, delta=1e-9, unit="person")
        cap = ledger.account("clinic").cap
        spent(ledger, "run-1", account="clinic", amount=cap // 4, steps=9)
        ledger.allow("clinic", kind=AllowanceKind.ANALYST, name="ann", cap=cap // 2, epsilon=7.0, reason="thesis")
        spent(ledger, "run-2", account="clinic", amount=cap // 4, steps=3, ended=False, analyst="ann", purpose="care")
        ledger.reserve("run-3", account="clinic", amount=cap // 100, claim="test", analyst="ann")
        head = ledger.head()
    assert shown(capsys) == CLINIC.replace("HEAD", head)


SALES = """\
sales                                                                          open since 2026-07-01
────────────────────────────────────────────────────────────────────────────────────────────────────
what sales is about
neighbours  replacing one row by another, in the same block or in another
blocks      month of visit: 4, of which 1 may still grow
promise     epsilon 2, however runs use the budget

            █████████████████████████▒▒▒▒▒····················   █ spent   ▒ reserved   · left

             epsilon   share  bookkeeping, in block month-02, which has least left
budget      2.000000
spent       1.000000  50.0 %
reserved    0.200000  10.0 %
remaining   0.800000  40.0 %  a run that reads it can ask for epsilon 0.4000; one on new blocks, epsilon 1.0000

block     state      spent  reserved  remaining  bookkeeping in epsilon
month-01  sealed  0.800000  0.000000   1.200000  ████████████··················
month-02  sealed  1.000000  0.200000   0.800000  ███████████████▒▒▒············
month-03  sealed  0.000000  0.000000   2.000000  ······························
month-04  open    0.000000  0.000000   2.000000  ······························
each block pays double, because replacing a unit can change two blocks

run    opened (UTC)      state    promise  spent        release
run-1  2026-07-01 12:00  settled      0.4  ███████████  release-of-run-1
    2 blocks, month-01 to month-02
run-2  2026-07-01 12:00  open         0.2  ██████▒▒▒▒▒  -
    block month-02
    process 4120 on worker-7, whose lease expired at 2026-07-01 12:06 UTC
promise: the epsilon of the run's reservation, which is what its release promises


head HEAD after 39 events
"""


def test_an_account_by_block_is_shown_with_its_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    with made_at_noon() as ledger:
        opened(ledger, "sales", months=3, neighbours=Neighbours.REPLACE_ONE)
        ledger.open_blocks("sales", ["month-04"])
        spent(ledger, "run-1", account="sales", amount=4 * 10**11, blocks=["month-01", "month-02"], steps=10)
        spent(ledger, "run-2", account="sales", amount=2 * 10**11, blocks=["month-02"], steps=5, ended=False)
        head = ledger.head()
    assert shown(capsys, "sales") == SALES.replace("HEAD", head)


def test_a_block_that_is_used_up_does_not_hide_that_new_blocks_have_the_whole_cap(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with made_at_noon() as ledger:
        opened(ledger, "sales", months=1)
        ledger.reserve("run-1", account="sales", amount=2 * 10**12, claim="test", blocks=["month-01"])
    line = "no run can read it again; one on new blocks can ask for epsilon 2.0000"
    assert f"remaining   0.000000    0.0 %  {line}\n" in shown(capsys)
    capsys.readouterr()
    assert dpflow("ledger", "refund", "run-1") == 0
    assert "a run that reads its most used block can ask for epsilon 2.0000; one on new" in capsys.readouterr().out
    assert dpflow("ledger", "close", "sales", "--reason", "over") == 0
    assert "the next run can ask for epsilon 0.0000\n" in shown(capsys)


@pytest.mark.parametrize("amount", [120_582_400_000, 120_582_900_000, 120_582_000_001, 7])
def test_show_and_export_write_the_same_amounts_and_never_more_spent_than_there_was(
    capsys: pytest.CaptureFixture[str], amount: int
) -> None:
    with made_at_noon() as ledger:
        terms: dict[str, Any] = {"epsilon": 3.1, "delta": 1e-9, "unit": "row", "neighbours": Neighbours.ADD_REMOVE}
        ledger.open_account("clinic", currency=Currency.ZCDP, cap=amount, **terms)
        ledger.reserve("run-1", account="clinic", amount=amount, claim="test")
        ledger.charge(ledger.lease("run-1"), step="all", amount=amount, mechanism=MECHANISM)
    books = dict(line.split()[:2] for line in shown(capsys).splitlines() if line.startswith(("budget ", "spent ")))
    assert books["budget"] == books["spent"] == wording.booked(amount)
    assert dpflow("ledger", "export", "--to", "out") == 0
    page = Path("out/statement.md").read_text(encoding="utf-8")
    told = wording.figure(amount / AMOUNT_OF_ONE)
    assert f"rho {told} of {told};" in page
    assert told == "7e-12" if amount == 7 else float(told) == float(books["budget"])


@pytest.mark.parametrize(("delta", "other"), [(1e-9, 1e-6), (1e-9, 1e-9), (0.0, 0.0)])
def test_no_line_says_that_a_release_states_an_epsilon_that_it_does_not(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], delta: float, other: float
) -> None:
    workspace.open_account(delta=delta, currency=None if delta else Currency.PURE)
    workspace.write_spec(("delta: 1e-9", f"delta: {other}"))
    release = Path(synthesize(workspace.spec).release)
    told = json.loads((release / "manifest.json").read_text(encoding="utf-8"))["privacy"]
    (account,) = json.loads(shown(capsys, "--json"))["accounts"]
    (run,) = account["runs"]
    same = (told["epsilon"], told["delta"]) == (run["promise"]["epsilon"], run["promise"]["delta"])
    assert same == (delta == other)
    (line,) = [line for line in shown(capsys).splitlines() if line.startswith("promise: ")]
    assert ("which is what its release promises" in line) == (not delta)  # another delta than 0 may differ
    assert ("a release at another delta states its own epsilon" in line) == bool(delta)


def test_the_most_used_blocks_and_the_latest_runs_are_shown_unless_all_are(capsys: pytest.CaptureFixture[str]) -> None:
    with made_at_noon() as ledger:
        opened(ledger, "sales", months=40)
        ledger.reserve("held", account="sales", amount=10**9, claim="test", blocks=["month-07"])
        for number in range(36):
            ledger.reserve(f"old-{number}", account="sales", amount=1, claim="test", blocks=["month-08"])
            ledger.refund(f"old-{number}", lease=None)
    text = shown(capsys)
    assert text.count("\nmonth-") == 30
    assert "10 less used blocks are not shown; --all shows them" in text
    assert "\nheld " in text
    assert text.count("\nold-") == 30
    assert "6 earlier runs are not shown; --all shows them" in text
    everything = shown(capsys, "--all")
    assert (everything.count("\nmonth-"), everything.count("\nold-")) == (40, 36)
    assert "not shown" not in everything
    (account,) = json.loads(shown(capsys, "--json"))["accounts"]
    assert (len(account["blocks"]), len(account["runs"])) == (40, 37)


def test_every_line_fits_a_terminal_of_120_columns(capsys: pytest.CaptureFixture[str]) -> None:
    uuid = "5f0c2ab1-7d8e-4c1f-9a51-0d2d7c0f7a11"
    with made_at_noon() as ledger:
        for currency in Currency:
            delta = 0.0 if currency is Currency.PURE else 1e-9
            name = f"visits-to-the-clinic-in-{currency}"
            opened(ledger, name, epsilon=10, delta=delta, currency=currency, unit="patient_id", months=2)
            where: dict[str, Any] = {"account": name, "blocks": ["month-01"], "analyst": "annabel", "purpose": "report"}
            spent(ledger, uuid.replace("5f", f"{currency.value[0]}f"), amount=10**9, ended=False, **where)
            ended = uuid.replace("5f", f"{currency.value[0]}e")
            spent(ledger, ended, amount=10**9, release="20261115T0210Z-7d9117748bbf", **where)
    assert [line for line in shown(capsys).splitlines() if len(line) > 120] == []


def test_a_worker_that_is_gone_is_told_from_one_that_works(capsys: pytest.CaptureFixture[str]) -> None:
    machine, process, born = this_worker().split(" ")
    numbering = born.partition("@")[2]
    with made_at_noon() as ledger:
        opened(ledger, "clinic")
        spent(ledger, "gone", account="clinic", amount=10, ended=False, holder=f"{machine} {process} 1@{numbering}")
        spent(ledger, "lapsed", account="clinic", amount=10, ended=False, holder="elsewhere 7 1")
    with open_ledger() as ledger:
        ledger.reserve("working", account="clinic", amount=10, claim="test")
        ledger.lease("working")
    text = shown(capsys)
    assert f"process {os.getpid()} on {machine}, which is gone" in text
    assert "process 7 on elsewhere, whose lease expired at 2026-07-01 12:06 UTC" in text
    assert f"process {os.getpid()} on {machine}, leased until" in text
    runs = json.loads(shown(capsys, "--json"))["accounts"][0]["runs"]
    assert [run["holder"].split(" ")[0] for run in runs] == [machine, "elsewhere", machine]


def test_a_session_needs_no_process_between_its_questions(capsys: pytest.CaptureFixture[str]) -> None:
    machine, process, born = this_worker().split(" ")
    with made_at_noon() as ledger:
        opened(ledger, "clinic")
        gone = f"{machine} {process} 1@{born.partition('@')[2]}"
        spent(
            ledger,
            "asked",
            account="clinic",
            amount=10,
            ended=False,
            holder=gone,
            claim=Claim("0" * 64, "a", 1.0, unchanged=False).text,
        )
    text = shown(capsys)
    assert "an open session, which waits for questions" in text
    assert "which is gone" not in text


def test_an_account_without_blocks_yet_is_all_left(capsys: pytest.CaptureFixture[str]) -> None:
    terms = ("--epsilon", "2", "--delta", "0", "--unit", "row", "--neighbours", "add-remove")
    assert dpflow("ledger", "open", "sales", *terms, "--blocks", "month of visit") == 0
    assert (
        "runs open and seal the blocks that they read; to open blocks by hand: dpflow ledger block sales NAME..."
        in capsys.readouterr().out
    )
    assert "month of visit: 0, of which 0 may still grow" in shown(capsys)
    (account,) = json.loads(shown(capsys, "--json"))["accounts"]
    assert (account["most_used_block"], account["remaining"], account["blocks"]) == (None, 2.0, [])

"""Runs over blocks of time: what each pays, what it reads, what a series remembers, and what a release says about it."""

import json
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from dpcore import Outcome, answer, cli, load_spec, synthesize
from dpcore.errors import BudgetRefused, UsageError
from dpcore.ledger import Balance, Ledger, open_ledger
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of, epsilon_of
from dpcore.privacy.protection import Neighbours
from dpcore.runs import reservation
from dpcore.runs.planning.plan import plan_run
from dpcore.runs.steps import check_run
from dpcore.runs.synthesis import Synthesis
from dpcore.steward.releases import latest, withdraw_release
from tests.dpcore.ledger.fixtures import assert_sound
from tests.dpcore.runs.releases import learned, privacy_of
from tests.processes import forked

pytestmark = pytest.mark.usefixtures("rough_models")

EPSILON = 200.0
"""So much that what was measured is what is in the table."""
SPEC = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: row, neighbours: add-remove, epsilon: 200.0, delta: 0}
blocks: {column: day, every: month, start: 2024-01-01}
universe:
  ward: {type: categorical, values: [a, b, c, d, e, f, g, h, i, j, k, l]}
  smoker: {type: boolean}
workload: {marginals: 1}
strategy: {name: mwem, rounds: 1}
"""
MONTHS = [f"2024-{month:02}" for month in range(1, 13)]
WARDS = "abcdefghijkl"


@dataclass(frozen=True)
class Site:
    """A folder with a table, of ten rows a month with a ward for each month, its spec and its account."""

    folder: Path
    spec: Path

    def write(self, *changes: tuple[str, str]) -> None:
        text = SPEC
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.spec.write_text(text, encoding="utf-8")

    def fill(self, table: pd.DataFrame) -> None:
        table.to_csv(self.folder / "visits.csv", index=False)

    def open_account(
        self,
        *,
        times: int = 100,
        by: str | None = "month of day",
        neighbours: str = "add-remove",
        unit: str = "row",
        across: int | None = None,
    ) -> None:
        epsilon, across_epsilon = times * EPSILON, None if across is None else across * EPSILON
        with open_ledger(create=True) as ledger:
            ledger.open_account(
                "visits",
                currency=Currency.PURE,
                cap=budget_of(epsilon, delta=0, currency=Currency.PURE)[1],
                epsilon=epsilon,
                delta=0,
                unit=unit,
                neighbours=Neighbours(neighbours),
                blocks_by=by,
                across=across_epsilon and budget_of(across_epsilon, delta=0, currency=Currency.PURE)[1],
                across_epsilon=across_epsilon,
            )

    def run(self, as_of: str, **options: Any) -> Outcome:
        return synthesize(self.spec, as_of=date.fromisoformat(as_of), **options)


def year_of_visits() -> pd.DataFrame:
    rows = [
        {"day": f"{month}-{day:02}", "ward": ward, "smoker": day % 2 == 0}
        for month, ward in zip(MONTHS, WARDS, strict=True)
        for day in range(1, 11)
    ]
    return pd.DataFrame(rows)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.chdir(tmp_path)
    for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    made = Site(tmp_path, tmp_path / "spec.yaml")
    made.write()
    made.fill(year_of_visits())
    return made


def firsts() -> list[str]:
    """Return the first day after each month of the year."""
    return [*(f"{month}-01" for month in MONTHS[1:]), "2025-01-01"]


def wards(outcome: Outcome) -> Counter[str]:
    """Return how many rows of each ward a run has counted: at this epsilon, the noise is none."""
    counts = pq.read_table(Path(outcome.release) / "measurements.parquet").to_pylist()
    return +Counter(
        {(row["ward_values"] or ["missing"])[0]: row["noisy_count"] for row in counts if row["attributes"] == ["ward"]}
    )


def used(ledger: Ledger) -> dict[str, int]:
    return {block.name: block.used for block, _ in ledger.blocks("visits")}


def sound() -> None:
    with open_ledger() as ledger:
        assert_sound(ledger)


def test_a_year_of_monthly_runs_over_what_is_new_spends_each_block_once(site: Site) -> None:
    site.write(("start: 2024-01-01}", "window: new, start: 2024-01-01}"))
    site.open_account(times=1)  # not more than one run may spend
    months = MONTHS[:3]
    for month, ward, day in zip(months, WARDS, firsts(), strict=False):
        outcome = site.run(day)
        assert outcome.blocks == (month,)
        assert wards(outcome) == {ward: 10}
        with pytest.raises(UsageError, match=rf"there is no new block as of {day}: .* will be complete on"):
            site.run(day)
    with open_ledger() as ledger:
        runs = ledger.runs("visits")
        assert used(ledger) == {month: run.spent for month, run in zip(months, runs, strict=True)}
        assert {block.state.value for block, _ in ledger.blocks("visits")} == {"sealed"}
    sound()


def test_the_same_year_over_all_blocks_is_refused_in_the_month_in_which_the_first_block_is_used_up(site: Site) -> None:
    site.open_account(times=2)
    for number, day in enumerate(firsts()[:2], start=1):
        outcome = site.run(day)
        assert outcome.blocks == tuple(MONTHS[:number])
        assert wards(outcome) == dict.fromkeys(WARDS[:number], 10)
    with open_ledger() as ledger:
        before, head = used(ledger), ledger.head()
    refusals = [
        lambda: site.run("2024-04-01"),
        lambda: check_run(load_spec(site.spec), resume=None, as_of=date(2024, 4, 1)),
    ]
    for refused in refusals:
        with pytest.raises(BudgetRefused, match=r"block '2024-01' of account 'visits' cannot pay 200 epsilon"):
            refused()
    with open_ledger() as ledger:
        assert (used(ledger), ledger.head()) == (before, head)
        assert list(before) == MONTHS[:2]  # the block of March was not even opened
        assert before["2024-01"] > 1.9 * EPSILON * AMOUNT_OF_ONE > before["2024-02"]


def test_the_last_few_months_are_a_window_that_moves(site: Site) -> None:
    site.write(("start: 2024-01-01}", "window: last 2, start: 2024-01-01}"))
    site.open_account(times=2)
    found = [site.run(day).blocks for day in firsts()[:3]]
    assert found == [("2024-01",), ("2024-01", "2024-02"), ("2024-02", "2024-03")]


LATE = ("start: 2024-01-01}", "window: new, start: 2024-01-01, arrived: sent, grace_days: 5}")
BY_ARRIVAL = "month of day, late by sent after 5 days"


def test_late_rows_are_in_a_late_block_and_in_exactly_one_release(site: Site) -> None:
    site.write(LATE)
    site.open_account(times=1, by=BY_ARRIVAL)
    table = year_of_visits()[:20]
    days = pd.to_datetime(table["day"])
    # The tenth of each month comes in two months later, the others on the third of the next.
    sent = days.dt.to_period("M").dt.start_time + pd.DateOffset(months=1, days=2)
    table["sent"] = sent.mask(days.dt.day == 10, sent + pd.DateOffset(months=1)).dt.date
    made: list[Counter[str]] = []
    for first in firsts()[:4]:
        as_of = date.fromisoformat(first) + timedelta(days=5)
        site.fill(table[pd.to_datetime(table["sent"]) < pd.Timestamp(as_of)])  # what is there by then
        made.append(wards(site.run(str(as_of))))
    assert made == [{"a": 9}, {"b": 9}, {"a": 1}, {"b": 1}]  # January's late row came in in March
    with open_ledger() as ledger:
        names = list(used(ledger))
        spent = {run.spent for run in ledger.runs("visits")}
        assert set(used(ledger).values()) <= spent
    assert names[:5] == ["2024-01", "2024-02", "2024-02-late", "2024-03", "2024-03-late"]
    sound()


def test_a_series_has_a_memory_of_its_own(site: Site) -> None:
    site.open_account(times=4)
    new = "window: new, start: 2024-01-01}"
    site.write(("start: 2024-01-01}", new))
    assert site.run("2024-02-01").blocks == ("2024-01",)
    site.write(("start: 2024-01-01}", new.replace("}", ", series: other}")))
    assert site.run("2024-03-01").blocks == ("2024-01", "2024-02")
    site.write()  # all blocks, in no series: nothing is remembered of it
    site.run("2024-03-01")
    site.write(("start: 2024-01-01}", new), ("epsilon: 200.0", "epsilon: 100.0"))  # another spec of the first series
    assert site.run("2024-03-01").blocks == ("2024-02",)


def test_a_run_that_led_to_no_release_has_covered_nothing(site: Site) -> None:
    site.write(("start: 2024-01-01}", "window: new, start: 2024-01-01}"))
    site.open_account()
    run = Synthesis(load_spec(site.spec), run_id="given-up", resume=False, as_of=date(2024, 2, 1))
    run.reserve()
    with pytest.raises(UsageError, match=r"run 'given-up' of the series is not finished: .* --resume given-up"):
        site.run("2024-02-01")
    run.ledger.settle("given-up", release=None, lease=run.stage.lease)
    run.close()
    assert site.run("2024-02-01").blocks == ("2024-01",)


def test_a_run_that_was_refunded_gets_its_blocks_again_unless_another_has_covered_them_since(site: Site) -> None:
    site.write(("start: 2024-01-01}", "window: new, start: 2024-01-01}"))
    site.open_account()
    for name in ("first", "second"):
        run = Synthesis(load_spec(site.spec), run_id=name, resume=False, as_of=date(2024, 2, 1))
        run.reserve()
        run.ledger.refund(name, lease=run.stage.lease)
        run.close()
    assert site.run("2024-05-01", run_id="second").blocks == ("2024-01",)
    with pytest.raises(UsageError, match=r"block '2024-01' is covered already by run 'second' of series visits"):
        site.run("2024-05-01", run_id="first")


def die_in_the_middle(spec: Path, run_id: str, as_of: date) -> None:
    run = Synthesis(load_spec(spec), run_id=run_id, resume=False, as_of=as_of)
    learned(run)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_run_keeps_its_blocks_whatever_the_day(site: Site) -> None:
    site.write(("start: 2024-01-01}", "window: new, start: 2024-01-01}"))
    site.open_account(times=1)
    worker = forked().Process(target=die_in_the_middle, args=(site.spec, "r1", date(2024, 3, 1)))
    worker.start()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL
    assert site.run("2024-04-01").blocks == ("2024-03",)  # the killed run still has the others
    outcome = site.run("2024-09-01", run_id="r1")  # as a flow run that is retried
    assert outcome.blocks == ("2024-01", "2024-02")
    assert wards(outcome) == {"a": 10, "b": 10}
    again = site.run("2024-10-01", run_id="r1", resume=True)
    assert again == outcome
    shutil.rmtree(Path(outcome.release))
    assert wards(site.run("2024-10-01", run_id="r1")) == {"a": 10, "b": 10}
    sound()


def test_replace_one_pays_double_in_each_block(site: Site) -> None:
    site.write(("add-remove", "replace-one"))
    site.open_account(times=3, neighbours="replace-one")
    outcome = site.run("2024-03-01")
    with open_ledger() as ledger:
        assert used(ledger) == dict.fromkeys(MONTHS[:2], 2 * ledger.run(outcome.run).spent)
        balance = ledger.balance("visits")
    assert outcome.remaining == balance.remaining / AMOUNT_OF_ONE
    with pytest.raises(
        BudgetRefused, match=r"block '2024-01' .* at most 100.0000 remains .* each block pays double"
    ) as refused:
        site.run("2024-03-01")
    assert str(refused.value).count("was requested") == 1


class Meeting:
    """Lets runs choose their blocks, and go on only when all of them have chosen."""

    def __init__(self, runs: int) -> None:
        self._barrier = threading.Barrier(runs, timeout=60)
        self._met = threading.local()

    def __call__(self, *arguments: Any, **options: Any) -> tuple[str, ...] | None:
        chosen = chosen_blocks(*arguments, **options)
        if not getattr(self._met, "already", False):
            self._met.already = True
            self._barrier.wait()
        return chosen


chosen_blocks = reservation.blocks_to_read


@pytest.mark.parametrize("days", [("2024-04-01", "2024-04-01"), ("2024-02-01", "2024-04-01", "2024-05-01")])
def test_runs_of_a_series_that_ask_at_once_never_cover_a_block_twice(
    site: Site, monkeypatch: pytest.MonkeyPatch, days: Sequence[str]
) -> None:
    site.write(("start: 2024-01-01}", "window: new, start: 2024-01-01}"))
    site.open_account(times=10)
    monkeypatch.setattr(reservation, "blocks_to_read", Meeting(len(days)))
    refused: list[str] = []

    def ask(number: int, day: str) -> None:
        run = Synthesis(load_spec(site.spec), run_id=f"r{number}", resume=False, as_of=date.fromisoformat(day))
        try:
            run.reserve()
        except UsageError as error:
            refused.append(str(error))
        finally:
            run.close()

    threads = [threading.Thread(target=ask, args=pair) for pair in enumerate(days)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open_ledger() as ledger:
        runs = ledger.runs("visits")
        granted = Counter(block for run in runs for block in ledger.blocks_of(run.id))
    complete = {"2024-04-01": MONTHS[:3], "2024-05-01": MONTHS[:4]}[days[-1]]
    assert granted == dict.fromkeys(complete, 1)
    assert len(runs) + len(refused) == len(days)
    assert all("there is no new block" in text for text in refused)
    sound()


def test_without_the_second_look_two_runs_would_cover_a_block_twice(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpcore.ledger.ledger.refuse_if_covered", lambda *_arguments, **_options: None)
    with pytest.raises(AssertionError):
        test_runs_of_a_series_that_ask_at_once_never_cover_a_block_twice(
            site, monkeypatch, ("2024-04-01", "2024-04-01")
        )


def test_a_run_opens_and_seals_what_the_steward_has_not(site: Site) -> None:
    site.open_account()
    with open_ledger() as ledger:
        ledger.open_blocks("visits", ["2024-01", "2024-02", "2024-12"])
        ledger.seal_blocks("visits", ["2024-01"])
    site.run("2024-04-01")
    with open_ledger() as ledger:
        states = {block.name: block.state.value for block, _ in ledger.blocks("visits")}
    assert states == {"2024-01": "sealed", "2024-02": "sealed", "2024-03": "sealed", "2024-12": "open"}


def test_what_cannot_be_read_gives_all_back_and_is_new_again(site: Site) -> None:
    site.write(("start: 2024-01-01}", "window: new, start: 2024-01-01}"), ("column: day", "column: when"))
    site.open_account(by="month of when")
    with pytest.raises(Exception, match="when"):
        site.run("2024-02-01")
    with open_ledger() as ledger:
        assert used(ledger) == {"2024-01": 0}
        assert ledger.covered("visits", series="visits") == {}


def test_account_and_spec_have_to_divide_the_table_alike(site: Site) -> None:
    site.open_account(by="week of day")
    with pytest.raises(UsageError, match=r"is kept by week of day; .* open visits-2 .* --blocks 'month of day'"):
        site.run("2024-02-01")
    site.write(("blocks: {column: day, every: month, start: 2024-01-01}\n", ""))
    with pytest.raises(UsageError, match=r"is kept by block \(week of day\), but the spec has no `blocks`"):
        synthesize(site.spec)


def test_a_spec_with_blocks_needs_an_account_with_blocks(site: Site) -> None:
    site.open_account(by=None)
    with pytest.raises(
        UsageError, match=r"kept without blocks; .* --unit row --neighbours add-remove --blocks 'month of day'"
    ):
        site.run("2024-02-01")


@pytest.mark.parametrize("blocks", ["arrived: sent", "arrived: sent, grace_days: 6"])
def test_another_rule_for_late_rows_needs_another_account(site: Site, blocks: str) -> None:
    site.open_account(by=BY_ARRIVAL)
    site.write(("start: 2024-01-01}", f"start: 2024-01-01, {blocks}}}"))
    with pytest.raises(UsageError, match="an account's terms are fixed"):
        site.run("2024-02-01")


def test_a_plan_says_what_the_scarcest_block_has_left_and_changes_nothing(site: Site) -> None:
    site.open_account(times=3)
    site.run("2024-03-01")
    with open_ledger() as ledger:
        head, spent = ledger.head(), used(ledger)["2024-01"]
    plan = plan_run(load_spec(site.spec), rows=100)
    assert plan.account.remaining == pytest.approx(2 * EPSILON - spent / AMOUNT_OF_ONE)
    with open_ledger() as ledger:
        assert ledger.head() == head


def test_a_plan_is_as_of_the_day_that_a_run_would_be(
    site: Site, dpflow: "Dpflow", capsys: pytest.CaptureFixture[str]
) -> None:
    site.open_account(times=3)
    site.write(("start: 2024-01-01}", "window: last 1, start: 2024-01-01}"))
    site.run("2024-03-01")

    def planned(day: str, *more: str) -> dict[str, Any]:
        capsys.readouterr()
        assert dpflow("plan", site.spec, "--as-of", day, "--json", *more) == 0
        data: dict[str, Any] = json.loads(capsys.readouterr().out)
        return data

    used_before, unused = planned("2024-03-01")["account"], planned("2024-04-01")["account"]
    assert (used_before["block"], unused["block"]) == ("2024-02", "2024-03")
    assert used_before["remaining"] < unused["remaining"] == pytest.approx(2 * EPSILON)
    assert used_before["new_block_epsilon"] == pytest.approx(3 * EPSILON)
    assert planned("2024-03-01", "--error", "0.5", "--on", "ward")["refused"] is None
    assert dpflow("plan", site.spec, "--as-of", "2024-03-01") == 0
    assert "after it, a run that reads block 2024-02 can ask for epsilon " in capsys.readouterr().out
    for day, why in (("soon", "--as-of must be a day"), ("2999-01-01", "is in the future")):
        assert dpflow("plan", site.spec, "--as-of", day) == 2
        assert why in capsys.readouterr().err
    site.write(("blocks: {column: day, every: month, start: 2024-01-01}\n", ""))
    assert dpflow("plan", site.spec, "--as-of", "2024-03-01") == 2
    assert "leave --as-of out" in capsys.readouterr().err


def test_a_used_up_block_of_a_series_leaves_the_next_ones_their_whole_budget(
    site: Site, dpflow: "Dpflow", capsys: pytest.CaptureFixture[str]
) -> None:
    site.open_account(times=1)
    site.write(("start: 2024-01-01}", "window: new, start: 2024-01-01}"))
    assert site.run("2024-02-01").new_block_epsilon == EPSILON
    with open_ledger() as ledger:
        ledger.open_blocks("visits", ["2024-02"])
        ledger.seal_blocks("visits", ["2024-02"])
        ledger.reserve("other", account="visits", amount=AMOUNT_OF_ONE, claim="test", blocks=["2024-02"])
    for verb in ("run", "plan"):
        assert dpflow(verb, site.spec, "--as-of", "2024-03-01") == 3
        printed = capsys.readouterr()
        told = printed.err if verb == "run" else printed.out
        assert "block '2024-02' of account 'visits' cannot pay" in told
        assert (
            f"new blocks have their whole budget: a run that reads only those can ask for epsilon {EPSILON:.4f}" in told
        )


PERSONS = (("unit: row,", "unit: person, max_rows_per_unit: 2,"),)


def test_a_release_says_what_it_covers_and_what_that_costs_a_person(site: Site) -> None:
    table = year_of_visits()
    table["person"] = [f"p{number % 10}" for number in range(len(table))]  # everybody is in every block
    site.fill(table)
    site.write(*PERSONS, ("start: 2024-01-01}", "window: new, start: 2024-01-01}"))
    site.open_account(unit="person")
    first = site.run("2024-04-01")
    assert sum(wards(first).values()) == 20  # two rows of each, of three months together
    second = site.run("2024-05-01")
    blocks = privacy_of(first)["blocks"]
    assert {key: blocks[key] for key in ("by", "window", "series", "number", "first", "last", "names")} == {
        "by": "month of day",
        "window": "new",
        "series": "visits",
        "number": 3,
        "first": "2024-01",
        "last": "2024-03",
        "names": MONTHS[:3],
    }
    with open_ledger() as ledger:
        cap = epsilon_of(ledger.account("visits").cap, currency=Currency.PURE, delta=0)
    promise = {"one": {"epsilon": cap, "delta": 0.0}, "across": None, "in_several": True, "raised": False}
    assert blocks["account"] == privacy_of(second)["blocks"]["account"] == promise
    card = (Path(second.release) / "card.html").read_text(encoding="utf-8")
    assert "block 2024-04, by month of day; window: new" in card
    assert "costs that person its epsilon once" in card
    assert "For one person with rows in several blocks, the losses of these blocks add up; no cap limits that." in card
    footer = json.loads(pq.read_schema(Path(second.release) / "data" / "part-00000.parquet").metadata[b"dpflow"])
    assert footer["blocks"]["names"] == ["2024-04"]


def test_a_row_is_in_one_block_and_the_release_says_so(site: Site) -> None:
    site.open_account()
    outcome = site.run("2024-03-01")
    assert privacy_of(outcome)["blocks"]["account"]["in_several"] is False
    assert "Each row is in one block." in (Path(outcome.release) / "card.html").read_text(encoding="utf-8")


def test_the_balance_before_and_after_is_of_the_blocks_that_the_run_has_read(site: Site) -> None:
    site.open_account(times=3)
    site.run("2024-02-01")
    site.write(("start: 2024-01-01}", "start: 2024-01-01, window: last 1}"))
    run = Synthesis(load_spec(site.spec), run_id="r2", resume=False, as_of=date(2024, 3, 1))
    learned(run)
    run.sample()
    run.publish()
    outcome, report = run.settle(), run.report()
    run.close()
    assert (report.before.spent, report.before.reserved) == (0, 0)
    assert report.after.spent == round(outcome.spent * AMOUNT_OF_ONE)
    assert outcome.blocks == ("2024-02",)


Dpflow = Callable[..., int]


@pytest.fixture
def dpflow() -> Dpflow:
    def runner(spec: Path, resume: str | None, *, approved: bool, as_of: date | None) -> Outcome:
        check_run(load_spec(spec), resume=resume, as_of=as_of)
        return synthesize(spec, run_id=resume, resume=resume is not None, as_of=as_of)

    return lambda *arguments: cli.main([str(argument) for argument in arguments], runner=runner)


def test_the_command_line_takes_a_day(site: Site, dpflow: Dpflow, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow("check", site.spec) == 0
    assert "from account visits, opened with --blocks 'month of day'\n" in capsys.readouterr().out
    site.open_account(times=2)
    assert dpflow("run", site.spec, "--as-of", "2024-03-01") == 0
    assert "blocks     2, 2024-01 to 2024-02\n" in capsys.readouterr().out
    assert dpflow("run", site.spec, "--as-of", "2024-03-01", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["blocks"] == MONTHS[:2]
    assert dpflow("run", site.spec, "--as-of", "2024-04-01", "--json") == 3
    assert "block '2024-01'" in json.loads(capsys.readouterr().out)["error"]
    assert dpflow("run", site.spec, "--as-of", "2024-01-31") == 2
    assert "the first, 2024-01, will be complete on 2024-02-01" in capsys.readouterr().err
    tomorrow = datetime.now(UTC).date() + timedelta(days=2)
    assert dpflow("run", site.spec, "--as-of", tomorrow) == 2
    assert "is in the future" in capsys.readouterr().err
    assert dpflow("run", site.spec, "--as-of", "soon") == 2
    assert dpflow("run", site.spec, "--as-of", "2024-03-01", "--resume", data["run"]) == 2
    assert "leave --as-of out" in capsys.readouterr().err
    assert dpflow("ledger", "show") == 0
    assert "month of day: 2, of which 0 may still grow" in capsys.readouterr().out


def test_a_day_means_nothing_to_a_spec_without_blocks(site: Site) -> None:
    site.write(("blocks: {column: day, every: month, start: 2024-01-01}\n", ""))
    site.open_account(by=None)
    with pytest.raises(UsageError, match="the spec has no `blocks`"):
        site.run("2024-02-01")


DATED = ("  smoker: {type: boolean}\n", "  day: {type: date, min: 2024-01-01, max: 2024-06-30, every: month}\n")
"""The column of the days, released itself."""


@pytest.mark.parametrize("kind", ["date", "datetime"])
def test_a_release_of_some_months_has_no_rows_of_others(site: Site, kind: str) -> None:
    """Which periods are read is public, so nothing is spent on telling the others apart."""
    dated = (
        DATED
        if kind == "date"
        else (
            DATED[0],
            DATED[1]
            .replace("type: date", "type: datetime")
            .replace("-01,", "-01T00:00:00,")
            .replace("-30,", "-30T23:59:59,"),
        )
    )
    site.write(dated, ("start: 2024-01-01}", "start: 2024-01-01, window: last 2}"))
    site.open_account()
    outcome = site.run("2024-05-01")
    days = pq.read_table(Path(outcome.release) / "data").column("day").to_pandas().astype(str)
    assert {day[:7] for day in days} == {"2024-03", "2024-04"}


def test_late_rows_keep_their_days(site: Site) -> None:
    table = year_of_visits()
    table["sent"] = table["day"]
    table.loc[table.index[:3], "sent"] = "2024-03-15"  # of January
    site.fill(table)
    site.write(DATED, ("start: 2024-01-01}", "start: 2024-01-01, arrived: sent, window: last 1}"))
    site.open_account(by="month of day, late by sent after 0 days")
    outcome = site.run("2024-04-01")
    days = pq.read_table(Path(outcome.release) / "data").column("day").to_pandas().astype(str)
    months = Counter(day[:7] for day in days)
    assert months["2024-01"] == pytest.approx(3, abs=2)
    assert months["2024-03"] == pytest.approx(10, abs=2)
    assert months["2024-04"] == 0


def test_a_block_beyond_the_universe_is_refused_before_anything_is_spent(site: Site) -> None:
    site.write(DATED, ("start: 2024-01-01}", "start: 2024-01-01, window: last 1}"))
    site.open_account()
    with pytest.raises(
        UsageError,
        match="block '2024-07' lies outside the `min` and `max` of day in the universe, 2024-01-01 to 2024-06-30",
    ):
        site.run("2024-08-01")
    with open_ledger() as ledger:
        assert ledger.balance("visits").used == 0


def test_the_cap_across_blocks_bounds_what_all_runs_cost_a_person(site: Site) -> None:
    neighbours = "replace-one"
    site.fill(year_of_visits().assign(person=lambda rows: rows["day"].str[-2:]))
    site.write(
        ("unit: row, neighbours: add-remove,", f"unit: person, max_rows_per_unit: 1, neighbours: {neighbours},"),
        ("start: 2024-01-01", "start: 2024-01-01, window: new"),
    )
    site.open_account(unit="person", neighbours=neighbours, across=3)
    for day in ("2024-02-01", "2024-04-01", "2024-05-01"):  # the second reads two blocks, and counts once
        site.run(day)
    with open_ledger() as ledger:
        assert ledger.across("visits") == Balance(3 * int(EPSILON) * AMOUNT_OF_ONE, 3 * int(EPSILON) * AMOUNT_OF_ONE, 0)
        head, blocks = ledger.head(), used(ledger)
        assert max(blocks.values()) <= 2 * int(EPSILON) * AMOUNT_OF_ONE
    later = date(2024, 6, 1)
    refused: list[Callable[[], object]] = [
        lambda: site.run("2024-06-01"),
        lambda: check_run(load_spec(site.spec), resume=None, as_of=later),
    ]
    words = "the cap across blocks of account 'visits' cannot pay 200 epsilon: 0 "
    for ask in refused:
        with pytest.raises(BudgetRefused, match=words):
            ask()
    plan = plan_run(load_spec(site.spec), rows=None, as_of=later)
    assert words in str(plan.account.refused)
    assert (plan.exit_code, plan.blocks) == (3, ("2024-05",))
    with open_ledger() as ledger:
        assert (ledger.head(), used(ledger)) == (head, blocks)  # no block was opened or sealed for nothing
        ledger.raise_across("visits", cap=4 * int(EPSILON) * AMOUNT_OF_ONE, epsilon=4 * EPSILON, reason="one more")
    site.run("2024-06-01")
    with open_ledger() as ledger:
        assert_sound(ledger)


def test_without_the_check_beforehand_blocks_would_be_opened_for_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.fill(year_of_visits().assign(person=lambda rows: rows["day"].str[-2:]))
    site.write(("unit: row,", "unit: person, max_rows_per_unit: 1,"), ("01-01}", "01-01, window: new}"))
    site.open_account(unit="person", across=1)
    site.run("2024-02-01")
    monkeypatch.setattr(reservation, "check_payable", lambda *_, **__: None)
    with pytest.raises(BudgetRefused, match="the cap across blocks"):
        site.run("2024-03-01")
    with open_ledger() as ledger:
        assert used(ledger)["2024-02"] == 0


def test_a_withdrawn_month_stays_covered_and_is_made_again_by_another_window(site: Site) -> None:
    site.write(("start: 2024-01-01", "start: 2024-01-01, window: new"))
    site.open_account()
    _, february, march = (site.run(f"2024-{month:02}-01") for month in (2, 3, 4))
    assert (february.blocks, march.blocks) == (("2024-02",), ("2024-03",))
    withdraw_release(february.release, reason="wrong codes")
    assert str(latest("visits")) == march.release
    with pytest.raises(UsageError, match=r"no new block as of 2024-04-01: .* the next, 2024-04, will be complete"):
        site.run("2024-04-01")
    copy = site.folder / "again.yaml"
    copy.write_text(SPEC.replace("start: 2024-01-01", "start: 2024-01-01, window: last 1"), encoding="utf-8")
    again = synthesize(copy, as_of=date(2024, 3, 1))
    assert again.blocks == ("2024-02",)
    with open_ledger() as ledger:
        spent = {block.name: balance.spent for block, balance in ledger.blocks("visits")}
    assert spent["2024-02"] == pytest.approx(2 * spent["2024-03"], rel=0.01)  # nothing was refunded
    assert str(latest("visits")) == again.release  # made last, although it is not the last month
    counts = answer(
        "releases/visits", "select date_trunc('month', day) as month, count(*) as n from release group by 1"
    )
    assert counts["month"].astype(str).tolist() == ["2024-01-01", "2024-02-01", "2024-03-01"]
    assert counts["n"].tolist() == pytest.approx([10, 10, 10], abs=1)
    april = site.run("2024-05-01")
    assert april.blocks == ("2024-04",)
    assert str(latest("visits")) == april.release

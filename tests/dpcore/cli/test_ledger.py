"""The steward's verbs: each does what it says, as text and as JSON, or refuses with one line and changes nothing."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dpcore.ledger import EventKind, open_ledger
from dpcore.ledger.heads import SeenHead
from dpcore.privacy.accounting import Currency, budget_of, epsilon_of
from tests.dpcore.cli.ledgers import NOON, dpflow, made_at_noon, opened, spent, without_ledger

Read = Callable[..., dict[str, Any]]

TERMS = ("--epsilon", "2", "--delta", "0", "--unit", "row", "--neighbours", "add-remove")
PERSONS = ("--epsilon", "2", "--delta", "0", "--unit", "person", "--neighbours", "add-remove")
ELSEWHERE = "elsewhere 4120 99"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    return tmp_path


@pytest.fixture
def read(capsys: pytest.CaptureFixture[str]) -> Read:
    """Return a function that runs a verb with --json and returns its object."""

    def reading(*arguments: object, code: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        assert dpflow(*arguments, "--json") == code
        data: dict[str, Any] = json.loads(capsys.readouterr().out)
        if code == 0:
            assert data.pop("ledger").keys() == {"url", "id", "hides", "warning"}
        return data

    return reading


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a verb for people and returns what it writes, errors included."""

    def saying(*arguments: object, code: int = 0) -> str:
        capsys.readouterr()
        assert dpflow(*arguments) == code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return (without_ledger(captured.out) if code == 0 else captured.out) + captured.err

    return saying


def head() -> str:
    with open_ledger() as ledger:
        return ledger.head()


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An account in zCDP with two open runs, one of which was charged, and an account by month."""
    folder = tmp_path_factory.mktemp("ledger")
    with open_ledger(f"sqlite:///{folder}/ledger.sqlite", create=True, clock=lambda: NOON) as ledger:
        opened(ledger, "clinic", epsilon=10, delta=1e-9, unit="person")
        opened(ledger, "sales", months=3)
        spent(ledger, "run-1", account="clinic", amount=10**10)
        spent(ledger, "run-2", account="clinic", amount=10**10, ended=False)
        ledger.reserve("run-3", account="clinic", amount=10**9, claim="test")
    return folder


@pytest.fixture
def two_accounts(made_once: Path, folder: Path) -> None:
    """A copy of that ledger, to be changed."""
    shutil.copytree(made_once, folder / ".dpflow")


@pytest.mark.parametrize(
    ("delta", "currency", "counted_in"),
    [
        ("0", None, "pure"),
        ("1e-9", None, "gdp"),
        ("1e-9", "zcdp", "zcdp"),
        ("1e-9", "gdp", "gdp"),
        ("0", "pure", "pure"),
    ],
)
def test_an_account_is_opened_in_the_currency_asked_for(
    read: Read, delta: str, currency: str | None, counted_in: str
) -> None:
    chosen = () if currency is None else ("--currency", currency)
    account = read(
        *("ledger", "open", "clinic", "--epsilon", 2, "--delta", delta, "--unit", "person"),
        *("--neighbours", "replace-one", "--about", "visits", "--blocks", "month of visit_date", *chosen),
    )
    assert account["currency"] == counted_in
    assert (account["about"], account["blocks_by"]) == ("visits", "month of visit_date")
    _, cap = budget_of(2.0, delta=float(delta), currency=Currency(counted_in))
    assert account["cap"] == account["remaining"] == cap / 10**12
    assert account["promise"] == {"epsilon": pytest.approx(2.0), "delta": float(delta)}
    # Each block pays double, so that a run can ask for what half of the cap promises.
    half = epsilon_of(cap // 2, currency=Currency(counted_in), delta=float(delta))
    assert account["remaining_epsilon"] == pytest.approx(half)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ((*TERMS, "--currency", "zcdp"), "needs a delta"),
        ((*TERMS, "--currency", "gdp"), "needs a delta"),
        (("--epsilon", "2", "--delta", "1e-9", *TERMS[4:], "--currency", "pure"), "delta 0"),
        ((*TERMS, "--about", "two\nlines"), "--about must be"),
        ((*TERMS, "--blocks", ""), "--blocks must be"),
        ((*TERMS[:4], "--unit", " person", *TERMS[6:]), "--unit must be"),
    ],
)
def test_terms_that_cannot_be_kept_open_no_account_and_make_no_ledger(
    said: Callable[..., str], folder: Path, arguments: tuple[str, ...], hint: str
) -> None:
    assert hint in said("ledger", "open", "clinic", *arguments, code=2)
    assert not list(folder.iterdir())


@pytest.mark.usefixtures("two_accounts")
@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("show", "nobody"), "no account 'nobody'; known accounts: clinic, sales"),
        (("history", "nobody"), "no account 'nobody'"),
        (("export", "nobody", "--to", "out"), "no account 'nobody'"),
        (("export", "--to", "out", "--group", "0"), "choose another --group"),
        (("export", "--to", "out", "--group", "1000001"), "choose another --group"),
        (
            ("open", "new", *TERMS, "--currency", "pure", "--delta", "1e-9"),
            "write --delta 0, or choose --currency zcdp or gdp",
        ),
        (("raise", "nobody", "--epsilon", "3", "--reason", "why"), "no account 'nobody'"),
        (("raise", "clinic", "--epsilon", "nan", "--reason", "why"), "--epsilon must be"),
        (("raise", "clinic", "--epsilon", "10", "--reason", "why"), "can only be raised"),
        (("raise", "clinic", "--epsilon", "11", "--reason", ""), "a reason must be"),
        (("close", "clinic", "--reason", " "), "a reason must be"),
        (("allow", "clinic", "--analyst", "a b", "--epsilon", "1", "--reason", "why"), "--analyst takes a name"),
        (("allow", "clinic", "--purpose", "x", "--epsilon", "-1", "--reason", "why"), "--epsilon must be"),
        (("allow", "nobody", "--purpose", "x", "--epsilon", "1", "--reason", "why"), "no account 'nobody'"),
        (("block", "clinic", "2026"), "not kept by block"),
        (("block", "sales", "month-01"), "already"),
        (("seal", "sales", "month-09"), "open it first"),
        (("refund", "nobody"), "no run 'nobody'"),
        (("settle", "nobody"), "no run 'nobody'"),
        (("settle", "nobody"), "list the known runs with: dpflow ledger show --all"),
        (("show", "nobody"), "known accounts: clinic, sales; see: dpflow ledger show"),
        (("refund", "run-1"), "settled"),
        (("refund", "run-2"), "dpflow ledger settle run-2"),
        (("verify", "--head", "abc"), "64 hexadecimal digits"),
        (("verify", "--releases", "nowhere"), "nowhere; name a folder"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    said: Callable[..., str], read: Read, arguments: tuple[str, ...], hint: str
) -> None:
    before = head()
    error = said("ledger", *arguments, code=2)
    assert hint in error
    assert error.count("\n") == 1
    assert read("ledger", *arguments, code=2)["exit_code"] == 2
    assert head() == before
    assert not Path("out").exists()


def test_a_budget_is_raised_for_a_reason_that_stays(said: Callable[..., str], read: Read) -> None:
    read("ledger", "open", "clinic", "--epsilon", 1, "--delta", "1e-9", *TERMS[4:], "--currency", "gdp")
    text = said("ledger", "raise", "clinic", "--epsilon", 2, "--reason", "approved by the board")
    assert (
        text
        == "raised account clinic from epsilon 1 to 2; the next run can ask for epsilon 2.0000 at delta 1e-09\nit now promises epsilon 2 at delta 1e-09\n"
    )
    assert read("ledger", "raise", "clinic", "--epsilon", 3, "--reason", "again")["epsilon"] == 3.0
    assert "to epsilon 2: approved by the board" in said("ledger", "history")


@pytest.mark.usefixtures("two_accounts")
def test_a_closed_account_takes_no_runs_but_lets_open_ones_finish(said: Callable[..., str], read: Read) -> None:
    assert (
        said("ledger", "close", "clinic", "--reason", "over") == "closed account clinic; 2 open runs may still finish\n"
    )
    assert said("ledger", "close", "clinic", "--reason", "over") == "account clinic was already closed\n"
    assert read("ledger", "show", "clinic")["accounts"][0]["state"] == "closed"
    assert "closed: takes no more runs" in said("ledger", "show", "clinic")
    assert "is closed" in said("ledger", "raise", "clinic", "--epsilon", 20, "--reason", "why", code=2)


def test_an_analyst_and_a_purpose_are_allowed_a_part(said: Callable[..., str], read: Read) -> None:
    read("ledger", "open", "clinic", *TERMS)
    text = said("ledger", "allow", "clinic", "--analyst", "ann", "--epsilon", 0.5, "--reason", "thesis")
    assert "analyst ann may use epsilon 0.5 of account clinic: epsilon 0 is used, epsilon 0.5000 is left;" in text
    with made_at_noon() as ledger:
        spent(ledger, "run-1", account="clinic", amount=10**11, analyst="ann", purpose="billing")
    allowance = read("ledger", "allow", "clinic", "--purpose", "billing", "--epsilon", 1, "--reason", "invoices")
    assert (allowance["kind"], allowance["used"], allowance["remaining_epsilon"]) == ("purpose", 0.02, 0.98)
    shown = read("ledger", "show")["accounts"][0]["allowances"]
    assert [(one["name"], one["used"]) for one in shown] == [("ann", 0.02), ("billing", 0.02)]
    assert "allow at least as much" in said(
        *("ledger", "allow", "clinic", "--purpose", "billing", "--epsilon", 0.01, "--reason", "less"), code=2
    )


def test_one_has_to_say_whose_allowance_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for whose in ((), ("--analyst", "ann", "--purpose", "billing")):
        with pytest.raises(SystemExit, match="2"):
            dpflow("ledger", "allow", "clinic", *whose, "--epsilon", 1, "--reason", "why")
        assert "--analyst" in capsys.readouterr().err


def test_blocks_are_opened_and_sealed(said: Callable[..., str], read: Read) -> None:
    read("ledger", "open", "clinic", *TERMS, "--blocks", "month of visit_date")
    text = said("ledger", "block", "clinic", "2026-02", "2026-01")
    assert text == (
        "opened 2 blocks of account clinic; seal them when their data is complete: dpflow ledger seal clinic NAME...\n"
    )
    assert said("ledger", "seal", "clinic", "2026-01") == "sealed 1 block of account clinic: ready to be charged\n"
    assert read("ledger", "block", "clinic", "2026-03", "--seal") == {
        "account": "clinic",
        "blocks": ["2026-03"],
        "state": "sealed",
    }
    blocks = read("ledger", "show")["accounts"][0]["blocks"]
    assert [(block["block"], block["state"]) for block in blocks] == [
        ("2026-01", "sealed"),
        ("2026-02", "open"),
        ("2026-03", "sealed"),
    ]


@pytest.mark.usefixtures("two_accounts")
def test_a_run_that_was_never_charged_gives_everything_back(said: Callable[..., str], read: Read) -> None:
    before = read("ledger", "show", "clinic")["accounts"][0]
    answer = read("ledger", "refund", "run-3")
    assert (answer["state"], answer["spent"], answer["returned"]) == ("refunded", 0.0, 0.001)
    assert answer["remaining"] == pytest.approx(before["remaining"] + 0.001)
    assert "is refunded already: rho 0 stays spent, rho 0 was refunded" in said("ledger", "refund", "run-3")


@pytest.mark.usefixtures("two_accounts")
def test_a_run_that_will_not_go_on_is_settled(said: Callable[..., str], read: Read) -> None:
    text = said("ledger", "settle", "run-2")
    assert text.startswith(
        "run run-2 is settled: rho 0.002 stays spent, rho 0.008 was refunded\nthe next run can ask for epsilon "
    )
    assert "is settled already: rho 0.002 stays spent, rho 0 was refunded" in said("ledger", "settle", "run-2")
    assert read("ledger", "settle", "run-3")["returned"] == 0.001


def test_a_run_is_not_taken_from_a_worker_that_may_be_alive(said: Callable[..., str]) -> None:
    with open_ledger(create=True) as ledger:
        opened(ledger, "clinic")
        spent(ledger, "run-1", account="clinic", amount=10**10, steps=0, ended=False, holder=ELSEWHERE)
    for verb in ("refund", "settle"):
        assert "is held by process 4120 on elsewhere; if that worker is dead, try again in" in said(
            "ledger", verb, "run-1", code=2
        )
    assert "process 4120 on elsewhere, leased until" in said("ledger", "show")


@pytest.mark.usefixtures("two_accounts")
def test_history_tells_what_matters_of_every_kind_of_event(said: Callable[..., str], read: Read) -> None:
    with made_at_noon() as ledger:
        lease = ledger.lease("run-3", holder=ELSEWHERE)
        ledger.record_data_version(lease, "0123456789abcdef0123456789abcdef")
        ledger.share("run-3", analyst="ada", cap=10**9, token="ab" * 32)
        opened(ledger, "stays", epsilon=1, delta=1e-6, currency=Currency.GDP)
        ledger.settle("run-1", release="release-of-run-1", lease=None, manifest="m", manifest_sha256="ab" * 32)
        ledger.reserve("run-5", account=ledger.run("run-1").account, amount=1, claim="test")
        ledger.settle("run-5", release="release-of-run-5", lease=None)
        ledger.withdraw("run-1", reason="retention", keep=1)
        ledger.withdraw("run-1", reason="wrong codes")
        ledger.charge(lease, step="question", amount=10**8, mechanism={"name": "m"}, analyst="ada")
        ledger.reserve("run-4", account="sales", amount=10**9, claim="test", blocks=["month-01", "month-02"])
    read("ledger", "refund", "run-4")
    read("ledger", "allow", "sales", "--analyst", "ann", "--epsilon", 1, "--reason", "thesis")
    read("ledger", "raise", "sales", "--epsilon", 3, "--reason", "more")
    with made_at_noon() as ledger:
        ledger.adopt("sales", folder="/releases/sales", owner="5" * 64, reason="moved")
        ledger._lost = SeenHead(ledger=ledger.identity(), seq=99, hash="7" * 64, at="2026-07-01T13:00:00", place="")
        ledger.accept_restoration(reason="lost disk")
    read("ledger", "close", "sales", "--reason", "over")
    read("ledger", "open", "trips", *PERSONS, "--blocks", "month", "--across-blocks", 5)
    read("ledger", "raise", "trips", "--across-blocks", 6, "--reason", "more")
    text = said("ledger", "history")
    lines = [line.split(None, 6) for line in text.splitlines()]
    told = {(kind, what) for _, _, _, kind, _, _, what in lines[1:]}
    assert lines[0] == ["seq", "at", "(UTC)", "kind", "account", "run", "what"]
    assert {
        ("account-opened", "epsilon 10 at delta 1e-09 in zcdp, person, add-remove"),
        ("account-opened", "epsilon 2 in pure, row, add-remove, by month of visit"),
        ("account-opened", "epsilon 1 at delta 1e-06 in gdp, row, add-remove"),
        ("blocks-opened", "3 blocks, month-01 to month-03"),
        ("blocks-sealed", "3 blocks, month-01 to month-03"),
        ("reserved", "rho 0.01"),
        ("reserved", "epsilon 0.001, 2 blocks, month-01 to month-02"),
        ("leased", "process 4120 on worker-7, fence 1"),
        ("data-version", "0123456789abcdef"),
        ("charged", "round-002/measure, rho 0.001, discrete-laplace"),
        ("settled", "rho 0.002 spent, rho 0.008 refunded, release release-of-run-1"),
        ("refunded", "epsilon 0.001 refunded"),
        ("republished", "release release-of-run-1 of run run-1 was published again"),
        ("removed", "release release-of-run-1: retention"),
        ("withdrawn", "release release-of-run-1: wrong codes"),
        ("charged", "question, rho 0.0001, analyst ada, m"),
        ("allowed", "analyst ann, epsilon 1: thesis"),
        ("account-opened", "epsilon 2 in pure, person, add-remove, by month, epsilon 5 across blocks"),
        ("cap-raised", "to epsilon 3: more"),
        ("across-raised", "to epsilon 6 across blocks: more"),
        ("account-closed", "over"),
        ("adopted", "/releases/sales, from 555555555555...: moved"),
        ("restored", "without event 99 (777777777777...): lost disk"),
    } <= told
    assert any(kind == "shared" and what.startswith("analyst ada of run run-3: at most ") for kind, what in told)
    assert any(kind == "committed" and what.startswith("round-001/measure, 5 bytes, ") for kind, what in told)
    assert {kind for kind, _ in told} == set(EventKind)
    assert lines[1][1:3] == ["2026-07-01", "12:00:00"]


@pytest.mark.usefixtures("two_accounts")
def test_history_of_one_account_is_that_accounts_alone(said: Callable[..., str], read: Read) -> None:
    events = read("ledger", "history", "sales")["events"]
    assert {event["account"] for event in events} == {"sales"}
    assert events[0]["body"]["blocks_by"] == "month of visit"
    assert "account" not in said("ledger", "history", "sales").splitlines()[0]
    whole = read("ledger", "history")["events"]
    assert [event["seq"] for event in whole] == list(range(1, len(whole) + 1))
    assert [event["previous"] for event in whole[1:]] == [event["hash"] for event in whole[:-1]]


@pytest.mark.usefixtures("two_accounts")
def test_a_damaged_event_in_the_middle_ends_the_history_with_4(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(".dpflow/ledger.sqlite")) as connection:
        rules = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in rules:
            connection.execute(f'DROP TRIGGER "{name}"')
        connection.execute("UPDATE event SET body = '{}' WHERE seq = 7")
        for _, rule in rules:
            connection.execute(rule)
        connection.commit()
    for arguments in (("history", "--json"), ("export", "--to", "out", "--json")):
        capsys.readouterr()
        assert dpflow("ledger", *arguments) == 4
        captured = capsys.readouterr()
        assert "event 7" in captured.out + captured.err
        assert "Traceback" not in captured.err
    assert not list(Path("out").iterdir())
    assert dpflow("ledger", "verify") == 4


@pytest.mark.usefixtures("two_accounts")
def test_verify_says_what_it_found_whole(said: Callable[..., str], read: Read) -> None:
    verified = read("ledger", "verify")
    assert verified == {
        "events": 18,
        "runs": 3,
        "operations": 4,
        "outputs": 4,
        "manifests": 0,
        "head": head(),
        "others": 0,
        "files": 0,
        "absent": 0,
        "withdrawn": 0,
        "first_absent": [],
    }
    text = said("ledger", "verify", "--head", head())
    assert text.startswith("the ledger is sound\n")
    assert f"head {head()}" in text
    assert "is not in this chain" in said("ledger", "verify", "--head", "f" * 64, code=4)


def test_a_ledger_that_is_not_there_is_not_made(said: Callable[..., str], folder: Path) -> None:
    for arguments in (("show",), ("history",), ("verify",), ("export", "--to", "out"), ("settle", "run-1")):
        assert "dpflow ledger open" in said("ledger", *arguments, code=2)
    assert not list(folder.iterdir())


def test_a_cap_across_blocks_is_opened_shown_raised_and_exported(
    said: Callable[..., str], read: Read, folder: Path
) -> None:
    told = said("ledger", "open", "visits", *PERSONS, "--blocks", "month of day", "--across-blocks", "5")
    assert "across blocks" in told
    with open_ledger() as ledger:
        ledger.open_blocks("visits", ["2026-01", "2026-02"])
        ledger.seal_blocks("visits", ["2026-01", "2026-02"])
        ledger.reserve("one", account="visits", amount=10**12, claim="c", blocks=["2026-01", "2026-02"])
    (account,) = read("ledger", "show", "visits")["accounts"]
    assert (
        account["across_blocks"] | {"cap": 5, "reserved": 1, "remaining": 4, "epsilon": 5} == account["across_blocks"]
    )
    assert "across blocks  epsilon" in said("ledger", "show", "visits")
    assert "epsilon 5 across blocks" in said("ledger", "history")
    raised = read("ledger", "raise", "visits", "--across-blocks", "6", "--reason", "a second year")
    assert (raised["across_blocks"]["epsilon"], raised["across_blocks"]["remaining"]) == (6, 5)
    assert "to epsilon 6 across blocks: a second year" in said("ledger", "history")
    text = said("ledger", "raise", "visits", "--across-blocks", "7", "--reason", "more")
    assert (
        "raised the cap across blocks of account visits from epsilon 6 to 7; all runs together can still ask for epsilon 6.0000\n"
        in text
    )
    assert "it now promises epsilon 7 to one person with rows in several blocks\n" in text
    read("ledger", "export", "--to", folder / "out")
    (stated,) = json.loads((folder / "out" / "statement.json").read_text(encoding="utf-8"))["accounts"]
    assert stated["across_blocks"][0]["epsilon"] == 7
    page = (folder / "out" / "statement.md").read_text(encoding="utf-8")
    assert "with rows in several blocks" in page
    assert "no cap" not in page
    said("ledger", "verify")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("open", "visits", *PERSONS, "--across-blocks", "5"), "needs blocks; define them with --blocks"),
        (("open", "visits", *TERMS, "--blocks", "month", "--across-blocks", "5"), "a row lies in one block"),
        (("open", "visits", *PERSONS, "--blocks", "month", "--across-blocks", "0"), "--across-blocks must be a number"),
        (
            ("open", "visits", *PERSONS, "--blocks", "month", "--across-blocks", "nan"),
            "--across-blocks must be a number",
        ),
        (("raise", "sales", "--across-blocks", "5", "--reason", "r"), "was opened without a cap across blocks"),
    ],
    ids=str,
)
def test_a_cap_across_blocks_that_cannot_be_is_refused(
    said: Callable[..., str], arguments: tuple[str, ...], problem: str
) -> None:
    with made_at_noon() as ledger:
        opened(ledger, "sales", months=1, unit="person")
    before = head()
    assert problem in said("ledger", *arguments, code=2)
    assert head() == before

"""What a session begins with: the release that the ledger recorded, and nothing that was put in its place."""

import io
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpcore import Session, open_release, synthesize
from dpcore.cli.main import main
from dpcore.errors import (
    BudgetRefused,
    DpflowError,
    OutputError,
    RowsUnexpected,
    RunHeld,
    SourceError,
    TableChanged,
    UsageError,
)
from dpcore.ledger import Ledger, Run, RunState, open_ledger
from dpcore.runs import synthesis
from dpcore.session import opening, overview, turns
from dpcore.session.opening import reserve_session, with_unchanged_table
from dpcore.session.overview import close, listed
from dpcore.session.table import SessionTable
from dpcore.spec import Declaration, load_spec
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace, visits
from tests.dpcore.session.conftest import GROUPED, same_draws


def first_folder() -> Path:
    with open_ledger() as ledger:
        return Path("releases/visits", str(ledger.run("s-first").release))


def plant(release: Path) -> None:
    """Put a changed copy into a release, and a note that points to it."""
    copy = release / "x"
    shutil.copytree(release, copy)
    manifest = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    manifest["privacy"]["run"] = "s"
    (copy / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (release / "latest.json").write_text(json.dumps({"release": "x"}), encoding="utf-8")


def test_a_note_in_the_first_release_leads_to_no_other_release(copied: Callable[[], Path]) -> None:
    copied()
    plant(first_folder())
    with Session.join("spec.yaml") as session:
        assert session.knowledge.first.folder.name == first_folder().name
        assert session.knowledge.first.manifest["privacy"]["run"] == "s-first"


def runs() -> dict[str, Run]:
    with open_ledger() as ledger:
        return {run.id: run for run in ledger.runs("visits")}


def used() -> int:
    with open_ledger() as ledger:
        return ledger.balance("visits").used


def interrupted(workspace: Workspace) -> None:
    """Reserve a session's budget, and do nothing else."""
    workspace.open_account(epsilon=100)
    with open_ledger() as ledger:
        reserve_session(ledger, load_spec("spec.yaml"), session="s")


def test_only_opening_a_session_buys_its_first_release(workspace: Workspace) -> None:
    interrupted(workspace)
    assert [each["state"] for each in listed("spec.yaml")] == ["opening"]
    for session in (None, "s"):
        with pytest.raises(UsageError, match=r"finish opening it with: dpflow session open spec\.yaml --session s"):
            Session.join("spec.yaml", session=session)
    assert set(runs()) == {"s"}
    close("spec.yaml")
    assert [each["state"] for each in listed("spec.yaml")] == ["closed"]
    with pytest.raises(UsageError, match=r"was closed before it was opened to its end; open another: [^;]*$"):
        Session.open("spec.yaml", session="s")
    assert set(runs()) == {"s"}
    assert used() == 0


def test_a_closed_session_and_one_of_another_spec_are_not_opened_again(copied: Callable[[], Path]) -> None:
    spec = copied() / "spec.yaml"
    text = spec.read_text("utf-8")
    spec.write_text(text.replace("max: 99", "max: 199"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"session s was opened with another spec.*dpflow ledger settle s"):
        Session.open("spec.yaml", session="s")
    spec.write_text(text, encoding="utf-8")
    close("spec.yaml")
    with pytest.raises(UsageError, match="session s is closed; open another"):
        Session.open("spec.yaml", session="s")


def break_source(workspace: Workspace, _: pytest.MonkeyPatch) -> None:
    (workspace.folder / "visits.csv").unlink()


def break_columns(workspace: Workspace, _: pytest.MonkeyPatch) -> None:
    (workspace.folder / "visits.csv").write_text("a,b\n1,2\n", encoding="utf-8")


def break_output(workspace: Workspace, _: pytest.MonkeyPatch) -> None:
    (workspace.folder / "releases").write_text("not a folder", encoding="utf-8")


def take_account(_: Workspace, patch: pytest.MonkeyPatch) -> None:
    """Let another run take what is left of the account, right after the session's own reservation."""
    reserve = Ledger.reserve

    def reserving(ledger: Ledger, run_id: str, **request: object) -> Run:
        if run_id == "s-first":
            left = ledger.balance("visits").remaining
            reserve(ledger, "other", account="visits", amount=left, claim="f" * 64)
        return reserve(ledger, run_id, **request)  # type: ignore[arg-type]

    patch.setattr(Ledger, "reserve", reserving)


def fail_before_rows(_: Workspace, patch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise UsageError("something is wrong; mend it")

    patch.setattr(synthesis.Synthesis, "check_rows", fails)


@pytest.mark.parametrize(
    ("breaks", "error"),
    [
        (break_source, SourceError),
        (break_columns, SourceError),
        (break_output, OutputError),
        (take_account, BudgetRefused),
        (fail_before_rows, UsageError),
    ],
)
def test_a_session_that_cannot_be_opened_reserves_nothing(
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    breaks: Callable[[Workspace, pytest.MonkeyPatch], None],
    error: type[DpflowError],
) -> None:
    workspace.open_account(epsilon=100)
    breaks(workspace, monkeypatch)
    with pytest.raises(error) as raised:
        Session.open("spec.yaml", session="s")
    assert "stays reserved" not in str(raised.value)
    assert {run.state for name, run in runs().items() if name != "other"} == {RunState.REFUNDED}
    verify_ledger()


def test_a_refunded_session_can_be_opened_under_the_same_id(workspace: Workspace) -> None:
    workspace.open_account(epsilon=100)
    output = workspace.folder / "releases"
    output.write_text("not a folder", encoding="utf-8")
    with pytest.raises(OutputError):
        Session.open("spec.yaml", session="s")
    with pytest.raises(UsageError, match="finish opening it with: dpflow session open"):
        Session.join("spec.yaml", session="s")
    output.unlink()
    with Session.open("spec.yaml", session="s") as session:
        assert session.price(GROUPED, within=1e9).free
    assert runs()["s"].state is RunState.OPEN


def test_a_session_whose_first_release_is_paid_in_part_says_how_to_go_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.open_account(epsilon=100)

    def fails(*_: object, **__: object) -> None:
        raise OutputError("the disk is full; free some space")

    monkeypatch.setattr(synthesis, "publish", fails)
    told = (
        "the disk is full; free some space; session s stays reserved: go on with: dpflow session open spec.yaml --session s, "
        "or close it with: dpflow session close spec.yaml --session s"
    )
    for _ in range(2):
        with pytest.raises(OutputError) as raised:
            Session.open("spec.yaml", session="s")
        assert str(raised.value) == told
    assert runs()["s-first"].state is RunState.OPEN
    whole = used()
    returned = close("spec.yaml")["returned"]
    assert {run.state for run in runs().values()} == {RunState.SETTLED}
    assert used() == runs()["s-first"].spent == whole - round(returned * 1e12)
    verify_ledger()


def test_a_session_whose_first_release_stopped_returns_the_rest(workspace: Workspace) -> None:
    workspace.open_account(epsilon=100)
    workspace.write_spec(("neighbours:", "expect_rows: [90000, 99999], neighbours:"))
    with pytest.raises(RowsUnexpected):
        Session.open("spec.yaml", session="s")
    assert runs()["s"].state is RunState.REFUNDED
    assert used() == runs()["s-first"].spent > 0


def test_a_session_is_not_closed_while_another_thread_buys(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "CLOSING_SECONDS", 0.01)
    with turns.alone("s", seconds=1), pytest.raises(RunHeld, match="session s is busy"):
        session.close()
    assert session.run.state is RunState.OPEN
    session.close()
    assert runs()["s"].state is RunState.SETTLED


def test_retention_leaves_an_open_session_its_first_release_and_follows_its_own(workspace: Workspace) -> None:
    workspace.open_account(epsilon=100)
    workspace.write_spec(("rounds: 4}", "rounds: 1}\noutput: {keep: 1}"))

    def kept() -> set[str]:
        folder = Path("releases/visits")
        return {name for name, run in runs().items() if run.release and (folder / run.release / "data").exists()}

    with Session.open("spec.yaml", session="s") as session:
        synthesize("spec.yaml", run_id="a")
        assert kept() == {"s-first", "a"}
        session.release()
        assert kept() == {"s-first", "s-release-0"}
        session.close()
    synthesize("spec.yaml", run_id="b")
    assert kept() == {"b"}
    verify_ledger()


def test_withdrawing_the_first_release_of_an_open_session_warns(
    copied: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    copied()
    release = first_folder()
    assert main(["withdraw", str(release), "--reason", "wrong codes"], runner=None) == 0  # type: ignore[arg-type]
    assert "warning: session s began with this release and cannot go on without it" in capsys.readouterr().err
    with pytest.raises(UsageError, match="was withdrawn on"):
        open_release(release)
    close("spec.yaml")
    assert main(["withdraw", str(release), "--reason", "wrong codes"], runner=None) == 0  # type: ignore[arg-type]
    assert "warning" not in capsys.readouterr().err


Start = Callable[..., Run]


def declared(ledger: Ledger, declaration: Declaration, **terms: Any) -> Run:
    """Reserve a session as it is: what it starts from is declared."""
    return reserve_session(ledger, declaration, **terms)


def chosen_by_version(ledger: Ledger, declaration: Declaration, **terms: Any) -> Run:
    """Planted: whether the table is, byte for byte, that of the newest release decides what a session starts from."""
    made = ledger.run("s-first")
    same = SessionTable(declaration).version(made.id) == made.data_version
    return reserve_session(ledger, with_unchanged_table(declaration) if same else declaration, **terms)


def seen_of_opening(folder: Path, *, unchanged: bool, start: Start) -> list[object]:
    """Open a session. Return its progress, its first run, and its events of the ledger, without the keyed version of the data and noise."""
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    with pytest.MonkeyPatch.context() as patch, same_draws(11):
        patch.setattr(opening, "reserve_session", start)
        patch.setattr(opening.progress, "handlers", [handler])
        patch.setattr(opening.progress, "level", logging.INFO)
        Session.open(folder / "spec.yaml", epsilon=0.5, unchanged=unchanged, session="t").leave()
    with open_ledger() as ledger:
        events = [event for event in ledger.history("visits") if event.run in {"t", "t-first"}]
    assert lines.getvalue().startswith("session t: reserved epsilon 0.5")
    return [
        [line for line in lines.getvalue().splitlines() if line.startswith("session")],
        [(each.kind, each.run, each.details.get("claim"), each.details.get("amount")) for each in events],
    ]


@pytest.mark.parametrize(
    ("start", "unchanged", "alike"),
    [(declared, False, True), (declared, True, True), (chosen_by_version, False, False)],
)
def test_opening_a_session_does_not_tell_whether_a_row_has_changed(
    copied: Callable[[], Path], start: Start, unchanged: bool, alike: bool
) -> None:
    before = seen_of_opening(copied(), unchanged=unchanged, start=start)
    folder = copied()
    table = folder / "visits.csv"
    table.write_text("".join(table.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
    assert (seen_of_opening(folder, unchanged=unchanged, start=start) == before) is alike


def test_a_session_that_declares_its_table_unchanged_learns_from_the_newest_release(copied: Callable[[], Path]) -> None:
    copied()
    with open_ledger() as ledger:
        earlier = Path("releases/visits", str(ledger.run("s-first").release)).name
    with Session.open("spec.yaml", epsilon=0.5, unchanged=True, session="t") as session:
        own = session.knowledge.first
        published = session.release()
    assert own.manifest["prior"] == {**own.manifest["prior"], "name": earlier, "unchanged": True}
    stated = open_release(published["release"]).manifest["privacy"]
    assert [part["run"] for part in stated["made_from"]][:1] == ["s-first"]
    with Session.join("spec.yaml", session="t") as joined:  # the spec itself declares nothing
        assert joined.knowledge.first.name == own.name
    verify_ledger()


def test_a_session_whose_table_is_wrongly_declared_unchanged_returns_the_rest(copied: Callable[[], Path]) -> None:
    folder = copied()
    visits(1500, seed=2).to_csv(folder / "visits.csv", index=False)
    with pytest.raises(TableChanged, match="noisy counts of its columns contradict that"):
        Session.open("spec.yaml", epsilon=2.0, unchanged=True, session="t")
    found = runs()
    assert (found["t"].state, found["t-first"].state) == (RunState.REFUNDED, RunState.SETTLED)
    assert found["t-first"].spent > 0


def test_an_interrupted_session_keeps_what_was_declared_when_it_was_reserved(copied: Callable[[], Path]) -> None:
    copied()
    with open_ledger() as ledger:
        reserve_session(ledger, with_unchanged_table(load_spec("spec.yaml")), session="t")
    with Session.open("spec.yaml", session="t") as session:
        assert session.knowledge.first.manifest["prior"]["unchanged"]


def test_a_table_whose_dependencies_are_learned_is_not_declared_unchanged(workspace: Workspace) -> None:
    workspace.open_account(epsilon=100)
    workspace.write_spec(("workload:", "constraints: [{depends: city -> smoker}]\nworkload:"))
    with pytest.raises(UsageError, match="cannot be used with `depends`"):
        Session.open("spec.yaml", unchanged=True, session="s")
    assert runs() == {}

"""What the UI shows of a run: public, whole, at a low price, and never a reason to lose a run."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from prefect import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.flow_engine import run_flow
from prefect.states import Scheduled

from dpcore import Outcome
from dpcore.errors import DpflowError
from dpcore.ledger import Account, AccountState, Balance
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours
from dpcore.release.statement import Bookkeeping
from dpcore.reporting.markdown import code, plain, table
from dpcore.reporting.outcome import Report, Round
from flows.pages import artifacts
from flows.pages.data import MOST_BYTES, data_page
from flows.pages.keys import key
from flows.pages.run import MOST_ROUNDS, budget_page, release_page, rounds_page
from flows.synthesize import synthesize
from tests.conftest import Workspace
from tests.dpcore.release.statements import statement
from tests.dpcore.reporting.portraits import portrait

HOSTILE = "a|b`c`<script>alert(1)</script>\n# x\r\n![i](http://evil.example/i.png) **b** www.evil.example &amp; \\"
MARKER = "Zq7_private%"

ACCOUNT = Account(
    name="clinic",
    currency=Currency.ZCDP,
    cap=AMOUNT_OF_ONE,
    epsilon=4.0,
    delta=1e-9,
    unit="person",
    neighbours=Neighbours.ADD_REMOVE,
    description="",
    blocks_by=None,
    state=AccountState.OPEN,
    opened_at="2026-11-15T02:10:00+00:00",
)
AFTER = Balance(AMOUNT_OF_ONE, AMOUNT_OF_ONE // 2, AMOUNT_OF_ONE // 8)
REPORT = Report(
    outcome=Outcome(
        run="5f0c",
        release="releases/clinic/x",
        rows=1234,
        account="clinic",
        currency="zcdp",
        epsilon=2.0,
        delta=1e-9,
        sampler_delta=7e-27,
        reserved=0.25,
        spent=0.25,
        remaining=0.5,
        remaining_epsilon=2.5,
    ),
    account=ACCOUNT,
    before=Balance(AMOUNT_OF_ONE, AMOUNT_OF_ONE // 4, 0),
    after=AFTER,
    overall=AFTER,
    rounds=[Round(n, ("age", "sex"), 12, 4.5, 0.3, 0.1, 0.05, n / 4) for n in range(1, 5)],
    privacy=statement(
        epsilon=2.0,
        rho=0.25,
        account="clinic",
        run="5f0c",
        bookkeeping=Bookkeeping("rho", reserved=0.25, spent=0.25),
    ).to_json(),
    columns={"age": "int64", "sex": "dictionary<values=string, indices=int32, ordered=0>"},
    files=[
        {"path": "data/part-00000.parquet", "rows": 1234, "bytes": 5678, "sha256": "a" * 64},
        {"path": "card.html", "rows": None, "bytes": 90, "sha256": "b" * 64},
    ],
)


class Rendered(HTMLParser):
    """A page as a renderer makes it that lets raw HTML and any address through."""

    def __init__(self, markdown: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.alts: list[str] = []
        self.cells: list[list[str]] = []
        self.text = ""
        self.cell = False
        renderer = MarkdownIt("commonmark", {"html": True}).enable("table")
        renderer.validateLink = lambda _: True
        self.feed(renderer.render(markdown))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in {"td", "th"}:
            self.cell = True
            self.cells[-1].append("")
        if tag == "img":
            self.sources.append(str(dict(attrs)["src"]))
            self.alts.append(str(dict(attrs)["alt"]))

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.cell:
            self.cells[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag in {"td", "th"}:
            self.cell = False


def squeezed(text: str) -> str:
    """Return a text as a page shows it: nothing unprintable, and one space where there are several."""
    return " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())


@given(st.text(st.characters(codec="utf-8"), max_size=40) | st.text("\\`*_[]()#|~!$:@.<>&\n -=+1a", max_size=20))
def test_a_name_is_shown_as_it_is_and_stays_in_its_cell(name: str) -> None:
    page = Rendered(table(["name", "end"], [[plain(name), "end"]]))
    assert [len(row) for row in page.cells] == [2, 2]
    assert squeezed(page.cells[1][0]) == squeezed(name)
    assert page.cells[1][1] == "end"
    assert set(page.tags) <= {"table", "thead", "tbody", "tr", "th", "td"}


@given(st.text("`a\n<", max_size=30))
def test_nothing_leads_out_of_a_block_of_code(text: str) -> None:
    page = Rendered(code(text) + "\n\nafter")
    assert page.tags == ["pre", "code", "p"]


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_accounts_never_share_a_key(first: str, second: str) -> None:
    keys = [key("release", name) for name in (first, second)]
    assert all(re.fullmatch(r"release-[a-z0-9]+(-[a-z0-9]+)*", each) for each in keys)
    assert (keys[0] == keys[1]) == (first == second)
    imitated = key("release", "Clinic A").removeprefix("release-")
    assert key("release", imitated) != key("release", "Clinic A")


def test_hostile_names_break_out_of_no_page() -> None:
    hostile = replace(
        REPORT,
        account=replace(ACCOUNT, name=HOSTILE),
        outcome=replace(REPORT.outcome, account=HOSTILE, release=f"releases/{HOSTILE}"),
        rounds=[replace(each, columns=(HOSTILE, "age")) for each in REPORT.rounds],
        privacy={name: HOSTILE if isinstance(value, str) else value for name, value in REPORT.privacy.items()},
        columns={HOSTILE: HOSTILE},
        files=[{**file, "path": HOSTILE, "sha256": HOSTILE} for file in REPORT.files],
    )
    for write in (lambda it: release_page(it, note=HOSTILE), rounds_page, budget_page):
        page, plain_page = Rendered(write(hostile)), Rendered(write(REPORT))
        assert not {"script", "a"} & set(page.tags)
        assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
        assert {len(row) for row in page.cells} == {len(row) for row in plain_page.cells}
        assert squeezed(HOSTILE) in squeezed(page.text)


def test_the_release_page_tells_where_it_is_what_it_promises_and_how_to_read_it() -> None:
    page = Rendered(release_page(REPORT, note="for the board"))
    for told in (
        REPORT.privacy["guarantee"],
        "Note: for the board",
        "release = 'releases/clinic/x'",
        "duckdb.read_parquet(f'{release}/data/*.parquet')",
        "pandas.read_parquet(f'{release}/data')",
        "2" * 64,
        "card.html",
        "epsilon: 2\n",
        "delta: 1e-09\n",
        "unit: person\n",
        "neighbours: add-remove: one unit added or removed\n",
        "age: int64\n",
        "sex: string, dictionary-encoded\n",
        f"data/part-00000.parquet: 1,234 rows, 5,678 bytes, sha256 {'a' * 16}…\n",
    ):
        assert told in page.text
    assert "table" not in page.tags  # the UI cuts off a table that is wider than the page
    assert "Note" not in release_page(REPORT, note=" ")


def test_the_other_pages_tell_their_figures_in_lists_plot_and_words() -> None:
    budget, rounds = Rendered(budget_page(REPORT)), Rendered(rounds_page(REPORT))
    assert budget.alts == [
        "Before: spent 25.0 %, left 75.0 %. After: spent 25.0 %, this run 25.0 %, reserved 12.5 %, left 37.5 %."
    ]
    assert "before: spent 0.250000 (25.0 %), reserved 0.000000 (0 %), left 0.750000 (75.0 %)\n" in budget.text
    assert "table" not in budget.tags
    assert (
        "The release promises epsilon 2 at delta 1e-09. The run has spent rho 0.25 of 0.25 reserved, 25.0 % of the budget (bookkeeping)."
        in budget.text
    )
    assert {"table"}.isdisjoint(rounds.tags)  # the UI cuts off a table that is wider than the page
    assert rounds.tags.count("li") == len(REPORT.rounds)
    assert "by 30.0 % of the rows" in rounds.alts[0]
    assert "1: age × sex, 30.0 % → 10.0 %, noise alone 5.0 %, spent 25.0 %" in rounds.text  # noqa: RUF001  a sign of multiplication
    assert "standard deviation of 4.5." in rounds.text
    varied = [replace(each, noise=float(each.number)) for each in REPORT.rounds]
    assert "standard deviation of 1.0 to 4.0." in rounds_page(replace(REPORT, rounds=varied))


def test_a_page_of_very_many_rounds_shows_the_first_and_the_last() -> None:
    many = [replace(REPORT.rounds[0], number=number) for number in range(1, 1001)]
    text = rounds_page(replace(REPORT, rounds=many))
    lines = re.findall("^- ([0-9]+):", text, re.MULTILINE)
    assert (len(lines), lines[0], lines[-1]) == (MOST_ROUNDS, "1", "1000")
    assert "900 rounds in between are in" in text
    assert len(text) < 100_000
    assert "li" not in Rendered(rounds_page(replace(REPORT, rounds=[]))).tags


def test_the_page_of_the_data_has_the_pictures_of_the_card_and_says_what_to_rely_on() -> None:
    found = portrait("age", "sex", "city", "job")
    page = Rendered(data_page(REPORT, found))
    assert len(page.sources) == 1 + 4
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    assert page.alts[0].startswith("6 pairs: 4 good, 1 fair, 1 poor.")
    assert page.alts[1].startswith("age. The counts, with 95 % intervals: 20 to 39: 300 (250 to 360)")
    assert "✓ good: counts by age × sex, expected error" in page.text  # noqa: RUF001  a sign of multiplication
    assert "✗ poor: counts by" in page.text
    assert "table" not in page.tags


def test_the_page_of_a_wide_table_stays_small_and_says_where_the_rest_is() -> None:
    wide = portrait(*(f"column_{number}" for number in range(100)))
    text = data_page(REPORT, wide)
    assert len(text) < MOST_BYTES + 20_000
    assert re.search(r"The pictures of \d+ more columns are in `card.html`", text)
    assert "Only 24 of the 100 columns are shown here: those that depend most on another column" in text


def test_no_name_in_a_picture_becomes_markup() -> None:
    odd, plain_page = portrait(HOSTILE, "b", "c"), Rendered(data_page(REPORT, portrait("a", "b", "c")))
    page = Rendered(data_page(REPORT, odd))
    assert page.tags == plain_page.tags
    assert len(page.sources) == 4


class Server:
    """Stands for the server: takes progress, or fails."""

    def __init__(self) -> None:
        self.shown: list[tuple[float, str]] = []
        self.calls = 0
        self.fails = False

    def create(self, progress: float, *, key: str, description: str) -> Any:
        self.update(None, progress, description=description)
        return artifacts.UUID(int=1)

    def update(self, _artifact: object, progress: float, *, description: str) -> None:
        self.calls += 1
        if self.fails:
            raise httpx.ConnectError(MARKER)
        self.shown.append((progress, description))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    it = Server()
    monkeypatch.setattr(artifacts, "create_progress_artifact", it.create)
    monkeypatch.setattr(artifacts, "update_progress_artifact", it.update)
    return it


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    now = SimpleNamespace(at=100.0)
    with monkeypatch.context() as patch:
        patch.setattr(artifacts, "time", SimpleNamespace(monotonic=lambda: now.at))
        yield now


def a_run(rounds: int) -> Any:
    strategy = SimpleNamespace(rounds=rounds, finished=False)
    return SimpleNamespace(account=ACCOUNT, strategy=strategy, rounds=SimpleNamespace(done=[], seconds_left=12))


def go_on(run: Any, number: int) -> None:
    run.rounds.done.append(replace(REPORT.rounds[0], number=number, spent=number / run.strategy.rounds))


def test_progress_is_shown_about_once_a_second_and_reaches_the_end(server: Server, clock: SimpleNamespace) -> None:
    run = a_run(56)
    watch = artifacts.Watch(run)
    watch.update()  # after the first model
    for number in range(1, 57):
        clock.at += 0.25
        go_on(run, number)
        watch.update()
    watch.finish()
    assert server.shown[0] == (0.0, f"{'░' * 20} The first model is made; 56 rounds follow.")
    words = "Round 8 of 56: 14 % of its budget spent; about 12 s more."
    assert server.shown[2] == (pytest.approx(100 * 8 / 57), f"{'█' * 2}{'░' * 18} {words}")
    words = "56 of 56 rounds made; the release is written in about 12 s."
    assert server.shown[-2] == (pytest.approx(100 * 56 / 57), f"{'█' * 19}░ {words}")
    assert server.shown[-1] == (100.0, f"{'█' * 20} The release is written.")
    assert len(server.shown) == 1 + 56 // 4 + 1
    assert server.shown == sorted(server.shown)  # the bar never moves back


def test_a_run_without_rounds_has_only_its_release_to_write(server: Server) -> None:
    watch = artifacts.Watch(a_run(0))
    watch.update()
    watch.finish()
    assert [percent for percent, _ in server.shown] == [0.0, 100.0]
    assert server.shown[0][1].endswith("The model is made, without rounds; the release is written in about 12 s.")


def test_a_server_that_fails_costs_the_run_nothing_but_its_progress(
    server: Server, clock: SimpleNamespace, steward: Path
) -> None:
    run, server.fails = a_run(1000), True
    watch = artifacts.Watch(run)
    watch.update()  # after the first model
    for number in range(1, 91):
        clock.at += 1
        go_on(run, number)
        watch.update()
    assert server.calls == 4  # one at the start, and then one every half a minute
    assert steward.read_text(encoding="utf-8").count("the progress of a run") == 1
    server.fails = False
    go_on(run, 1000)
    watch.update()
    assert [percent for percent, _ in server.shown] == [pytest.approx(100 * 1000 / 1001)]


def test_pages_that_cannot_be_written_say_that_the_release_is_there(
    monkeypatch: pytest.MonkeyPatch, steward: Path
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise httpx.ConnectError(MARKER)

    monkeypatch.setattr(artifacts, "create_markdown_artifact", fail)
    with pytest.raises(DpflowError, match="the release is finished and paid for, at releases/clinic/x") as caught:
        artifacts.publish_report(REPORT, note="")
    assert "retry the run: nothing is charged or drawn again" in str(caught.value)
    assert MARKER not in str(caught.value)
    assert caught.value.__context__ is None
    assert MARKER in steward.read_text(encoding="utf-8")


@pytest.mark.prefect
def test_a_run_has_its_pages_and_a_retry_goes_on_with_its_progress(workspace: Workspace) -> None:
    workspace.open_account()
    outcome = synthesize(str(workspace.spec), note="for <b>the</b> board")
    first = artifacts_of(outcome["run"])
    assert sorted(first) == ["budget-visits", "data-visits", "progress-visits", "release-visits", "rounds-visits"]
    assert [(progress.data, progress.type) for progress in first["progress-visits"]] == [(100, "progress")]
    assert first["progress-visits"][0].description == f"{'█' * 20} The release is written."
    page = Rendered(first["release-visits"][0].data)
    assert outcome["release"] in page.text
    assert "for <b>the</b> board" in page.text
    assert Rendered(first["rounds-visits"][0].data).tags.count("li") == 4
    assert len(Rendered(first["data-visits"][0].data).sources) == 1 + 4  # the pairs, and each column
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(outcome["run"], Scheduled(), force=True)
        flow_run = client.read_flow_run(outcome["run"])
    run_flow(synthesize, flow_run=flow_run, parameters={"release": str(workspace.spec)})
    again = artifacts_of(outcome["run"])
    assert [each.id for each in again["progress-visits"]] == [first["progress-visits"][0].id]
    one, other = (Rendered(each.data).text for each in again["rounds-visits"])
    assert one == other


def artifacts_of(run: str) -> dict[str, list[Any]]:
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run])))
    return {each.key: [it for it in found if it.key == each.key] for each in found}

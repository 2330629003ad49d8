"""A release as a person makes it in the Prefect UI: form, run page, the steward's approval, pages of the run, card and Parquet.

The tests follow one visitor from page to page, in the order in which they stand here.
"""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.accessibility import violations
from tests.browser.chromium import HEIGHT, WIDTH, Visitor, visiting
from tests.browser.prefect_ui import FIELDS, Form, expect_state, log_in, open_form, open_run, open_tab, options, sent
from tests.flows.connections import recorded
from tests.flows.stack import Stack

NAME = "clinic"
DECLARED: dict[str, Any] = {"epsilon": 1, "delta": 1e-9, "workload": 2, "strategy": "mwem"}
"""What the spec declares, as far as the form can show it."""
TELEPHONE = 390

EPSILON, ROWS, NOTE = 0.5, 500, "For the board, as asked for on Monday"
MARKDOWN = "article.artifact-data-markdown"
NOT_OURS = ("scrollable-region-focusable",)
"""A wide table scrolls in a box of Prefect's own, which the keyboard does not reach."""


@pytest.fixture(scope="module")
def form(stack: Stack, visitor: Visitor) -> Form:
    """The form of a release that no other test uses, opened from the front page."""
    log_in(visitor.page, stack.login)
    return open_form(visitor.page, stack.page, NAME)


def test_every_field_of_the_form_is_plain_and_explains_itself(form: Form, visitor: Visitor) -> None:
    for name in FIELDS:
        field = form.field(name)
        expect(field.locator(".schema-form-property__description")).to_have_text(re.compile(r"\w+ \w+"))
        expect(field.locator("input, textarea, button.p-select-button__control")).to_have_count(1)  # so it has no tabs
    expect(form.chosen("release")).to_have_text(NAME)
    visitor.shoot("form")


def test_the_form_shows_what_the_spec_declares_and_what_the_account_can_pay_for(form: Form) -> None:
    for name, value in DECLARED.items():
        if name != "strategy":
            expect(form.field(name).locator("input")).to_have_value(re.sub("e-0", "e-", f"{value:g}"))
    expect(form.chosen("strategy")).to_have_text(str(DECLARED["strategy"]))
    help_text = form.field("epsilon").locator(".schema-form-property__description")
    expect(help_text).to_contain_text(
        re.compile(f"Account {NAME} as of [-0-9]+ [:0-9]+ UTC: the next run can ask for epsilon 2.0000")
    )
    expect(help_text).to_contain_text("A run above epsilon 0.8 waits for the steward's approval.")


def test_only_the_release_of_the_form_can_be_chosen(form: Form, stack: Stack) -> None:
    assert options(form.page, form.chosen("release")) == [NAME]
    refused = stack.submit({"release": "nobody"}, deployment=f"synthesize/{NAME}")
    assert (refused.status_code, "'nobody' is not one of" in refused.text) == (409, True)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("epsilon", "0", "0 is less than or equal to the minimum of 0"),
        ("delta", "0.5", "0.5 is greater than the maximum of 0.001"),
        ("rows", "0", "0 is less than the minimum of 1"),
    ],
)
def test_a_value_outside_its_limits_starts_no_run_and_is_marked_with_the_reason(
    name: str, value: str, reason: str, form: Form, stack: Stack
) -> None:
    form.fill(**{name: value})
    assert not form.check().json()["valid"]
    expect(form.field(name).get_by_text(reason)).to_be_visible()
    form.fill(**{name: f"{DECLARED[name]:g}" if name in DECLARED else ""})
    refused = stack.submit({name: float(value)}, deployment=f"synthesize/{NAME}")  # whoever does without the form
    assert (refused.status_code, reason.partition(" ")[2] in refused.text) == (409, True)


def test_a_note_that_is_too_long_starts_no_run_and_the_server_says_why(form: Form) -> None:
    form.fill(note="x" * 501)
    answer = form.submit()
    assert answer.status == 409
    expect(form.page.get_by_text("is too long").last).to_be_visible()
    form.fill(note="")


def test_a_number_of_rows_that_is_none_is_marked_in_the_form(form: Form) -> None:
    form.fill(rows="1.5")
    assert not form.check().json()["valid"]
    expect(form.field("rows").get_by_text("1.5 is not valid")).to_be_visible()
    form.fill(rows="")


def test_a_run_above_the_threshold_waits_until_it_is_resumed(form: Form, visitor: Visitor, stack: Stack) -> None:
    """The form is submitted as it was, or was made again: then the spec's epsilon counts, which is above the threshold."""
    page = visitor.page
    answer = form.submit()
    assert answer.status == 201
    assert {name: value for name, value in sent(answer).items() if value} == {"release": NAME, **DECLARED}
    run_id = answer.json()["id"]
    open_run(page, stack.page, run_id)
    expect_state(page, "Suspended")
    expect(page.get_by_text("needs the steward's approval above epsilon 0.8").first).to_be_visible()
    visitor.shoot("run-suspended")
    page.get_by_role("button", name="Resume").click()
    with page.expect_response(lambda it: it.url.endswith(f"/flow_runs/{run_id}/resume")) as resumed:
        page.get_by_role("dialog").get_by_role("button", name="Submit").click()
    assert resumed.value.json()["status"] == "ACCEPT", resumed.value.text()
    stack.wait(run_id, until=lambda run: run["state_type"] == "COMPLETED")
    page.reload()  # Prefect's page looks once after the answer, and no more at a run that it takes to be suspended
    expect_state(page, "Completed")
    assert len(pd.read_parquet(stack.release(run_id) / "data"))


@pytest.fixture(scope="module")
def budget(stack: Stack, form: Form) -> str:
    """The id of a run that writes the page of the account, at the same time as the next run is made."""
    return stack.start({"account": NAME}, deployment="budget/budget")


@pytest.fixture(scope="module")
def run(stack: Stack, visitor: Visitor, form: Form, budget: str) -> str:
    """The id of a completed run for which the form was filled in; its page is open."""
    again = open_form(visitor.page, stack.page, NAME)
    again.fill(epsilon=str(EPSILON), delta="", rows=str(ROWS), note=NOTE)
    answer = again.submit()
    assert answer.status == 201
    changed = {"epsilon": EPSILON, "rows": ROWS, "note": NOTE}
    kept = {name: value for name, value in DECLARED.items() if name != "delta"}  # emptied, and so left to the spec
    assert sent(answer) == {"release": NAME, **kept, **changed}
    run_id = str(answer.json()["id"])
    open_run(visitor.page, stack.page, run_id)
    expect_state(visitor.page, "Completed")
    return run_id


def test_the_run_page_shows_what_happened(run: str, visitor: Visitor) -> None:
    page = visitor.page
    expect(page.get_by_text(f"{NAME} at epsilon {EPSILON:g}", exact=True).first).to_be_visible()
    for line in (f"reserved epsilon {EPSILON:g} of account {NAME}", "round 4/4"):
        expect(page.get_by_text(line).first).to_be_visible()
    visitor.shoot("run", schemes=("dark",))
    open_tab(page, "Task Runs")
    for task in ("report", "settle", "publish", "sample", "round-004/update"):
        expect(page.get_by_role("link", name=task, exact=True)).to_be_visible()


def test_the_parquet_of_the_run_is_there_and_pandas_reads_it(run: str, stack: Stack) -> None:
    rows = pd.read_parquet(stack.release(run) / "data")
    assert (len(rows), list(rows.columns)) == (ROWS, ["sex", "age", "smoker", "city"])


@pytest.fixture(scope="module")
def links(run: str, budget: str, visitor: Visitor, stack: Stack) -> dict[str, str]:
    """The addresses of all pages of the run, as its own page has them, and that of its account, by key."""
    open_tab(visitor.page, "Artifacts")
    cards = visitor.page.locator("a[href^='/artifacts/artifact/']")
    expect(cards).to_have_count(5)
    found = {
        next(line for line in card.inner_text().split("\n") if line.endswith(f"-{NAME}")): card for card in cards.all()
    }
    addresses = {key: f"{stack.page}{card.get_attribute('href')}" for key, card in found.items()}
    stack.wait(budget)
    # Written by that run, unless one of the schedule has just told the same.
    key = f"account-{NAME}"
    return addresses | {key: f"{stack.page}/artifacts/artifact/{stack.newest_artifact(key)['id']}"}


@pytest.mark.parametrize(
    ("kind", "pictures", "words"),
    [
        ("budget", 1, f"The release promises epsilon {EPSILON:g}"),
        ("rounds", 1, "age × smoker"),  # noqa: RUF001  a sign of multiplication
        ("release", 0, NOTE),
        ("data", 5, "What you can rely on"),
        ("account", 1, "The account is open."),
    ],
)
def test_a_page_of_the_run_shows_its_tables_and_pictures_to_everybody(
    kind: str, pictures: int, words: str, links: dict[str, str], visitor: Visitor
) -> None:
    visitor.page.goto(links[f"{kind}-{NAME}"])
    article = visitor.page.locator(MARKDOWN)
    expect(article.get_by_text(words).first).to_be_visible()
    expect(article.get_by_role("table" if kind == "account" else "list").first).to_be_visible()
    expect(article.get_by_role("img")).to_have_count(pictures)
    for picture in article.get_by_role("img").all():
        assert picture.evaluate("it => it.decode().then(() => it.naturalWidth)") > 0
        assert (picture.get_attribute("alt") or "").endswith(".")
    visitor.shoot(f"{kind}-page")
    visitor.page.set_viewport_size({"width": TELEPHONE, "height": HEIGHT})
    assert article.evaluate("it => it.scrollWidth <= it.clientWidth")
    visitor.shoot(f"{kind}-page-telephone")
    visitor.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    assert violations(visitor, within=MARKDOWN, but=NOT_OURS) == []


def test_the_progress_of_the_run_is_shown(links: dict[str, str], visitor: Visitor) -> None:
    visitor.page.goto(links[f"progress-{NAME}"])
    expect(visitor.page.get_by_text("Progress: 100%")).to_be_visible()
    expect(visitor.page.get_by_text("█" * 20).first).to_be_visible()
    visitor.shoot("progress-page")


def test_the_card_of_the_release_shows_its_data_first(run: str, stack: Stack, browser: Browser) -> None:
    with visiting(browser) as reader:
        reader.page.goto((stack.release(run) / "card.html").as_uri())
        expect(reader.page.get_by_role("heading", level=2).first).to_have_text("What you can rely on")
        expect(reader.page.get_by_role("figure")).to_have_count(4)
        reader.shoot("card")


def test_the_ui_that_calls_an_analytics_host_is_not_offered(stack: Stack, visitor: Visitor) -> None:
    visitor.page.goto(f"{stack.page}/v2/dashboard")
    expect(visitor.page).to_have_url(f"{stack.page}/dashboard")
    expect(visitor.page.get_by_text("Active Work Pools")).to_be_visible()
    expect(visitor.page.get_by_text("V2 UI")).to_have_count(0)
    visitor.shoot("dashboard")


def test_server_worker_and_runs_call_no_other_machine(run: str, stack: Stack) -> None:
    """What they do is recorded from within each program, from its start."""
    found = recorded(Path(stack.more["RECORD_CONNECTIONS"]))
    # The server only answers, on a socket that it was handed: that it was recorded shows by its start.
    started, spoken = ({it.program for it in found if (it.event == "start") == start} for start in (True, False))
    assert any("flows.server.app" in it for it in started), started
    for program in ("flows serve", "flows.worker.execute"):
        assert any(program in it for it in spoken), (program, spoken)
    assert [it for it in found if it.outside] == []

"""The console of the service, as people use it: with a keyboard alone, on a phone, in dark and in light."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from dpcore.service.app import make_app
from dpcore.service.desk import Desk
from dpcore.service.door import Door
from dpcore.service.gate import Gate
from dpcore.service.serve import _config
from dpcore.session.analysts import add_analyst
from tests.browser.accessibility import violations
from tests.browser.chromium import Visitor, visiting
from tests.browser.test_card import STICKING_OUT, WIDTHS
from tests.dpcore.session.conftest import GROUPED, opened, same_draws  # noqa: F401  a fixture
from tests.hostile_clients import serving

RATE = 10_000.0


@contextmanager
def listening(spec: Path) -> Iterator[str]:
    """Serve a session in a thread, and yield its address."""
    desk = Desk(spec, None)
    desk.open()
    door = Door(spec, desk.session, rate=RATE)
    door.open()
    try:
        app = make_app(desk, door)
        with serving(lambda port: _config(Gate(app, hosts=[f"127.0.0.1:{port}"]))) as (port, _):
            yield f"http://127.0.0.1:{port}/"
    finally:
        door.close()
        desk.close()


@pytest.fixture(scope="module")
def console(opened: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:  # noqa: F811
    """The address of a console, and a token."""
    folder = tmp_path_factory.mktemp("console") / "copy"
    shutil.copytree(opened, folder)
    token = add_analyst(folder / "spec.yaml", "ada", share=0.9).token
    with same_draws(5), listening(folder / "spec.yaml") as address:
        yield address, token


@pytest.fixture
def reader(browser: Browser, console: tuple[str, str]) -> Iterator[Visitor]:
    with visiting(browser) as visitor:
        visitor.page.goto(console[0])
        yield visitor
        assert not visitor.outside
        assert not visitor.blocked


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.id"))


def tab_to(page: Page, name: str) -> None:
    for _ in range(12):
        if focused(page) == name:
            return
        page.keyboard.press("Tab")
    pytest.fail(f"{name} cannot be reached with the keyboard")


def enter(page: Page, token: str) -> None:
    tab_to(page, "token")
    page.keyboard.type(token)
    page.keyboard.press("Enter")
    expect(page.locator("#question")).to_be_visible()
    expect(page.locator("#query")).to_be_focused()


def write(page: Page, query: str, within: str) -> None:
    tab_to(page, "query")
    page.keyboard.press("Control+A")
    page.keyboard.type(query)
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type(within)
    page.keyboard.press("Enter")


def test_a_question_is_priced_paid_and_answered_with_the_keyboard_alone(
    reader: Visitor, console: tuple[str, str]
) -> None:
    page = reader.page
    enter(page, console[1])
    expect(page.locator("#who")).to_contain_text("ada, epsilon 0 of")
    page.locator("#about summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#columns")).to_contain_text("smoker")
    reader.shoot("console-columns")
    write(page, GROUPED, "25")
    expect(page.locator("#cost")).to_contain_text("remaining afterwards: ")
    expect(page.locator("#accuracy")).to_contain_text("25 to either side at most, at level 95 %")
    expect(page.locator("#answer")).to_be_hidden()
    reader.shoot("console-price")
    assert focused(page) == "ask"
    page.keyboard.press("Enter")
    expect(page.locator("#paid")).to_contain_text("Paid")
    expect(page.locator("#rows tr")).to_have_count(5)
    expect(page.locator("#rows svg")).to_have_count(4)
    expect(page.locator("#who")).not_to_contain_text("ada, epsilon 0 of")
    expect(page.locator("#bought")).to_be_visible()
    reader.shoot("console-paid")
    page.locator("#query").focus()
    page.keyboard.press("Control+Enter")
    expect(page.locator("#cost")).to_have_text("Free: this question was bought before.")
    page.keyboard.press("Enter")
    expect(page.locator("#paid")).to_have_text("Free: bought before.")


def test_a_price_that_comes_after_its_question_was_changed_is_not_offered(
    reader: Visitor, console: tuple[str, str]
) -> None:
    page = reader.page
    enter(page, console[1])
    waiting: list[Route] = []
    page.route("**/price", lambda route: waiting.append(route))  # noqa: PLW0108  Playwright looks at its parameters
    with page.expect_request("**/price"):
        write(page, GROUPED, "25")
    page.locator("#query").fill("select count(*) as n from release where smoker")
    expect(page.locator("#look")).to_have_attribute("aria-busy", "true")
    with page.expect_response("**/price"):
        waiting[0].continue_()
    expect(page.locator("#look")).not_to_have_attribute("aria-busy", "true")
    expect(page.locator("#offer")).to_be_hidden()
    page.unroute("**/price")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#offer")).to_be_visible()


def test_a_mistake_is_shown_where_it_is_and_a_wrong_token_opens_nothing(
    reader: Visitor, console: tuple[str, str]
) -> None:
    page = reader.page
    tab_to(page, "token")
    page.keyboard.type("guessed")
    page.keyboard.press("Enter")
    expect(page.locator("#problem")).to_contain_text(
        "This token is unknown or was replaced. Ask the steward for a new one."
    )
    expect(page.locator("#question")).to_be_hidden()
    page.locator("#token").fill("")
    enter(page, console[1])
    write(page, "select count(*) as n from release where agee > 5", "50")
    expect(page.locator("#problem")).to_contain_text("Line 1, column 41. There is no column 'agee'")
    assert page.evaluate("document.getElementById('query').selectionStart") == 40
    expect(page.locator("#offer")).to_be_hidden()
    write(page, "select count(*) as n from release where smoker", "3")
    expect(page.locator("#ask")).to_be_disabled()


def test_the_console_is_for_everybody_on_any_screen(reader: Visitor, console: tuple[str, str]) -> None:
    page = reader.page
    found = violations(reader)
    enter(page, console[1])
    page.locator("#about summary").click()
    write(page, GROUPED, "1000")
    expect(page.locator("#cost")).to_contain_text("Free")
    found += violations(reader)
    page.locator("#ask").click()
    expect(page.locator("#answer")).to_be_visible()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(STICKING_OUT) == []
        found += violations(reader)
    assert found == []
    reader.shoot("console-phone")


def test_nothing_of_the_token_is_left_in_the_browser(reader: Visitor, console: tuple[str, str]) -> None:
    enter(reader.page, console[1])
    stored = reader.page.evaluate(
        "[document.cookie, JSON.stringify({...localStorage, ...sessionStorage}), location.href]"
    )
    assert stored == ["", "{}", console[0]]
    assert reader.page.locator("#token").input_value() == ""

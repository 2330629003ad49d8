"""The card of a release in a browser: nothing sticks out, on a desk, a phone or paper; it asks nobody, and hinders nobody."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from dpcore.release import Draft
from dpcore.release.card import card
from tests.browser.accessibility import violations
from tests.browser.chromium import SCHEMES, Visitor, visiting
from tests.dpcore.release.test_card import FILES, PORTRAIT, draft  # noqa: F401  a fixture
from tests.dpcore.reporting.portraits import portrait

WIDTHS = (1280, 390)
LONG = "a_very_long_name_of_a_column_without_a_single_blank_in_it_"

STICKING_OUT = """() => {
    const wide = document.documentElement.clientWidth
    const scrolls = each => each.closest('.wide, pre') && !each.matches('.wide, pre')
    return [...document.querySelectorAll('main *')]
        .filter(each => !scrolls(each) && each.getBoundingClientRect().right > wide + 0.5)
        .map(each => each.outerHTML.slice(0, 80))
}"""


@pytest.fixture(params=["usual", "wide"])
def page(request: pytest.FixtureRequest, draft: Draft, tmp_path: Path) -> Path:  # noqa: F811  the fixture above
    """A usual card, or that of a table with many columns of long names, all of it unfolded."""
    shown = PORTRAIT if request.param == "usual" else portrait(*(f"{LONG}{number}" for number in range(60)))
    file = tmp_path / "card.html"
    text = card(draft, files=FILES, portrait=shown)
    file.write_text(text.replace("<details>", "<details open>") if request.param == "wide" else text, encoding="utf-8")
    return file


def test_nothing_sticks_out_on_any_screen_and_nobody_is_asked(page: Path, browser: Browser) -> None:
    with visiting(browser) as reader:
        reader.page.goto(page.as_uri())
        for width in WIDTHS:
            reader.page.set_viewport_size({"width": width, "height": 900})
            for scheme in SCHEMES:
                reader.wear(scheme)
                assert reader.page.evaluate("document.documentElement.scrollWidth") <= width
                assert reader.page.evaluate(STICKING_OUT) == []
        assert [url for url in reader.requests if not url.startswith("data:")] == [page.as_uri()]
        assert reader.blocked == []


@pytest.mark.parametrize("page", ["usual"], indirect=True)  # a wide one has more of the same, and axe takes long for it
def test_the_page_is_for_everybody(page: Path, browser: Browser) -> None:
    with visiting(browser) as reader:
        for width in WIDTHS:
            reader.page.set_viewport_size({"width": width, "height": 900})
            reader.page.goto(page.as_uri())
            assert violations(reader) == []


def test_what_sticks_out_would_be_found(page: Path, browser: Browser) -> None:
    page.write_text(page.read_text("utf-8").replace("<h2>", "<h2 style=width:3000px>", 1), encoding="utf-8")
    with visiting(browser) as reader:
        reader.page.goto(page.as_uri())
        assert len(reader.page.evaluate(STICKING_OUT)) == 1


def test_the_card_is_printed_whole_on_paper(page: Path, browser: Browser) -> None:
    with visiting(browser) as reader:
        reader.page.goto(page.as_uri())
        printed = reader.page.pdf(format="A4", margin=dict.fromkeys(("left", "right", "top", "bottom"), "1cm"))
        assert 3 <= len(re.findall(rb"/Type\s*/Page\b", printed)) < 60
        assert shrunk(reader) == []


def shrunk(reader: Visitor) -> list[str]:
    """Return what is wider than a page: a browser would make everything smaller to fit it in, or cut it off."""
    reader.page.set_viewport_size({"width": 720, "height": 1000})  # the width of A4 between its margins
    reader.page.emulate_media(media="print")
    found: list[str] = reader.page.evaluate(
        STICKING_OUT.replace("const scrolls = each =>", "const scrolls = each => false &&")
    )
    return found

"""The steward's report in a browser: on a phone no table is cut off without a sign, and it asks nobody, and hinders nobody."""

from playwright.sync_api import Browser

from tests.browser.accessibility import violations
from tests.browser.chromium import SCHEMES, visiting
from tests.browser.test_card import STICKING_OUT, WIDTHS, shrunk
from tests.dpcore.comparison.conftest import Site, site  # noqa: F401  a fixture

CUT_OFF = """() => [...document.querySelectorAll('.wide')]
    .filter(each => each.scrollWidth > each.clientWidth)
    .map(each => [each.querySelectorAll('thead th').length, getComputedStyle(each).maskImage])"""


def test_nothing_sticks_out_on_any_screen_and_nobody_is_asked(site: Site, browser: Browser) -> None:  # noqa: F811
    address = site.written.page.as_uri()
    with visiting(browser) as reader:
        reader.page.goto(address)
        for width in WIDTHS:
            reader.page.set_viewport_size({"width": width, "height": 900})
            for scheme in SCHEMES:
                reader.wear(scheme)
                assert reader.page.evaluate("document.documentElement.scrollWidth") <= width
                assert reader.page.evaluate(STICKING_OUT) == []
        assert [url for url in reader.requests if not url.startswith("data:")] == [address]


def test_on_a_phone_small_tables_fit_and_wide_ones_show_that_they_scroll(site: Site, browser: Browser) -> None:  # noqa: F811
    with visiting(browser) as reader:
        reader.page.set_viewport_size({"width": 390, "height": 900})
        reader.page.goto(site.written.page.as_uri())
        found = reader.page.evaluate(CUT_OFF)
        assert all(columns > 4 for columns, _ in found)
        assert all("gradient" in mask for _, mask in found)
        assert found  # such as the table of all columns


def test_nothing_is_wider_than_a_printed_page(site: Site, browser: Browser) -> None:  # noqa: F811
    with visiting(browser) as reader:
        reader.page.goto(site.written.page.as_uri())
        assert shrunk(reader) == []


def test_the_page_is_for_everybody(site: Site, browser: Browser) -> None:  # noqa: F811
    with visiting(browser) as reader:
        for width in WIDTHS:
            reader.page.set_viewport_size({"width": width, "height": 900})
            reader.page.goto(site.written.page.as_uri())
            assert violations(reader) == []

"""What the browser tests rely on: that they see a request to another machine, a page that shuts people out, and a missing browser."""

import os

import pytest
from playwright.sync_api import Browser

from tests.browser.accessibility import violations
from tests.browser.chromium import browser_path, is_outside, visiting

GOOD = """<!doctype html><html lang="en"><head><title>A page</title><style>html.dark {background: #000; color: #fff}</style></head>
<body><main><h1>A page</h1><h2>Its part</h2><img alt="a dot" src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">
<table><thead><tr><th>name</th></tr></thead><tbody><tr><td>cell</td></tr></tbody></table></main></body></html>"""
FLAWS = {
    "image-alt": ('alt="a dot"', ""),
    "color-contrast": ("<td>", '<td style="color: #888; background: #999">'),
    "heading-order": ("h2", "h4"),
    "empty-table-header": ("<th>name</th>", "<th></th>"),
    "html-has-lang": (' lang="en"', ""),
}


def test_an_image_from_another_machine_is_noticed(browser: Browser) -> None:
    with visiting(browser) as visitor:
        with visitor.page.expect_event("requestfailed"):
            visitor.page.set_content('<img src="http://outside.example/dot.png">')
        assert visitor.outside == ["http://outside.example/dot.png"]


def test_a_socket_to_another_machine_is_noticed(browser: Browser) -> None:
    with visiting(browser) as visitor:
        with visitor.page.expect_websocket():
            visitor.page.evaluate("() => { new WebSocket('ws://outside.example/') }")
        assert visitor.outside == ["ws://outside.example/"]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:4200/", "ws://127.0.0.1:4200/", "data:,", "blob:http://127.0.0.1/1", "file:///a"]
)
def test_this_machine_is_not_outside(url: str) -> None:
    assert not is_outside(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1.example.org/", "https://example.org/127.0.0.1", "ws://10.0.0.1/"])
def test_elsewhere_is_outside(url: str) -> None:
    assert is_outside(url)


def test_a_page_for_everybody_has_no_violations(browser: Browser) -> None:
    with visiting(browser) as visitor:
        visitor.page.set_content(GOOD)
        assert violations(visitor) == []


def test_a_page_that_shuts_people_out_is_noticed(browser: Browser) -> None:
    page = GOOD
    for good, bad in FLAWS.values():
        assert good in page
        page = page.replace(good, bad)
    with visiting(browser) as visitor:
        visitor.page.set_content(page)
        assert {line.split(": ")[1] for line in violations(visitor)} == set(FLAWS)


def test_without_a_browser_the_tests_are_skipped_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": ""})
    with pytest.raises(pytest.skip.Exception, match="apt install chromium"):
        browser_path()


@pytest.mark.parametrize("variable", ["CI", "DPFLOW_SKIP_NOTHING"])
def test_where_a_browser_is_required_its_absence_fails(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": "", variable: "1"})
    with pytest.raises(pytest.fail.Exception, match="must run"):
        browser_path()

"""A browser for each file of tests, and a visitor of whom it is known at the end that no request left this machine.

Nor did any page want what the policy of our server's pages forbids: the policy takes nothing from those that people use.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import Visitor, browser_path, launched, visiting
from tests.flows.stack import pytest_runtest_setup, pytest_runtest_teardown, stack  # noqa: F401  a fixture and hooks for all these tests


@pytest.fixture(scope="session", autouse=True)
def _browser_there() -> None:
    browser_path()  # before a stack is started for nothing


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as started:
        yield started


@pytest.fixture(scope="module")
def visitor(browser: Browser) -> Iterator[Visitor]:
    """The visitor of all tests of a file."""
    with visiting(browser) as opened:
        yield opened
        assert opened.requests
        assert not opened.outside
        assert not opened.blocked

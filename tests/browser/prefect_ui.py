"""Prefect's own pages, as far as a person who makes a release comes across them."""

import json
import re
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Locator, Page, Response, TimeoutError, expect  # noqa: A004  Playwright's own

RUN_MILLISECONDS = 600_000
FIELDS = ("release", "epsilon", "delta", "rows", "workload", "strategy", "note")


@dataclass(frozen=True)
class Form:
    """The form of a deployment."""

    page: Page

    def field(self, name: str) -> Locator:
        """Return a field with its label and its help text."""
        label = self.page.locator(".schema-form-property__label").filter(
            has_text=re.compile(rf"^{name}( \(Optional\))?$")
        )
        return self.page.locator(".schema-form-property").filter(has=label)

    def fill(self, **values: str) -> None:
        """Type into fields, or empty them."""
        for name, value in values.items():
            self.field(name).locator("input, textarea").fill(value)

    def chosen(self, name: str) -> Locator:
        """Return what a list shows as chosen."""
        return self.field(name).locator("button.p-select-button__control")

    def submit(self) -> Response:
        """Press the button and return the server's answer to the request for a run."""
        return self._press("/create_flow_run")

    def check(self) -> Response:
        """Press the button for values of which the UI can tell by itself that they are wrong; return what it was told."""
        return self._press("/schemas/validate")

    def _press(self, request: str) -> Response:
        """Press until the page sends the request: a click may be lost while the page still checks what was typed."""
        for last in (False, False, True):
            try:
                with self.page.expect_request(re.compile(f"{request}$"), timeout=RUN_MILLISECONDS / 3) as sent:
                    self.page.get_by_role("button", name="Submit").click()
            except TimeoutError:
                if last:
                    raise
            else:
                break
        answer = sent.value.response()
        if answer is None:
            raise RuntimeError(f"{request} was sent and not answered")
        return answer


def log_in(page: Page, address: str) -> None:
    """Open the address that `dpflow ui` prints, and wait for the page that it leads to."""
    page.goto(address)
    expect(page).to_have_url(re.compile("/dashboard$"))
    expect(page.get_by_text("Deployments", exact=True).first).to_be_visible()  # what else is there depends on past runs


def open_form(page: Page, address: str, deployment: str) -> Form:
    """Go from the front page to the form of a deployment."""
    page.goto(address)
    page.get_by_text("Deployments", exact=True).first.click()
    page.get_by_role("link", name=deployment, exact=True).click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run", exact=True).click()
    form = Form(page)
    expect(form.field(FIELDS[-1])).to_be_visible()
    return form


def open_run(page: Page, address: str, run_id: str) -> None:
    """Go to the page of a run. The notice with a link to it is not used: it disappears after a few seconds."""
    page.goto(f"{address}/runs/flow-run/{run_id}")
    expect(page.get_by_text("Job Variables", exact=True)).to_be_visible()


def expect_state(page: Page, state: str) -> None:
    """Wait until the page of a run shows a state."""
    expect(page.locator(".state-badge").first).to_have_text(re.compile(rf"^\s*{state}\s*$"), timeout=RUN_MILLISECONDS)


def open_tab(page: Page, name: str) -> None:
    """Go to a tab of the page of a run."""
    page.get_by_text(name, exact=True).click()


def sent(answer: Response) -> dict[str, Any]:
    """Return the parameters that were sent with the request for a run."""
    return dict(json.loads(answer.request.post_data or "{}")["parameters"])


def options(page: Page, chosen: Locator) -> list[str]:
    """Open a list, return what it offers, and close it. With the keyboard: a click opens it and closes it at once."""
    chosen.focus()
    page.keyboard.press("ArrowDown")
    offered = page.locator(".p-select-option")
    expect(offered.first).to_be_visible()
    found = [text.strip() for text in offered.all_inner_texts()]
    page.keyboard.press("Escape")
    expect(offered).to_have_count(0)
    return found

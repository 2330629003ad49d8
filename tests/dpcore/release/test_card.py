"""The card of a release: one page that needs nothing else, tells the whole promise, and can be read by everybody."""

import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcore import synthesize
from dpcore.release import Draft, SyntheticRows
from dpcore.release.card import STYLE, card
from dpcore.release.statement import Bookkeeping, Statement
from dpcore.reporting.outcome import Round
from dpcore.resolutions import Resolutions
from dpcore.spec import load_spec
from tests.conftest import Workspace
from tests.dpcore.reporting.contrast import colours_of, contrast

HOSTILE = "<script>alert(1)</script>\"'&|`"
FILES = [{"path": "data/part-00000.parquet", "rows": 1234, "bytes": 56789, "sha256": "ab" * 32}]
VOID = {"meta", "img"}

STATEMENT = Statement(
    epsilon=1.0,
    delta=1e-9,
    sampler_delta=7e-27,
    draws=1_000_000,
    accounting="zero-concentrated differential privacy",
    rho=0.0149731,
    mu=None,
    bookkeeping=Bookkeeping("rho", reserved=0.0149731, spent=0.0101),
    unit="person",
    max_rows_per_unit=2,
    neighbours="add-remove",
    account="visits",
    run="5f0c2ab1",
    ledger="1" * 64,
    ledger_head="2" * 64,
    spec_sha256="3" * 64,
    versions={"dpflow": "0.1.0"},
)


class Page(HTMLParser):
    """What a browser would make of a page: its tags in order, and its text by tag."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "the tags do not nest"

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[str]:
        return [text for inside, text in self.texts if inside == tag]

    @property
    def text(self) -> str:
        return " ".join(text for inside, text in self.texts if inside != "style")


@pytest.fixture
def draft(workspace: Workspace) -> Draft:
    rounds = [
        Round(number, ("sex", "age"), 12, 4.5, before=0.3 / number, after=0.1, noise_floor=0.05, spent=number / 4)
        for number in range(1, 5)
    ]
    declaration = load_spec(workspace.spec)
    return Draft(
        declaration=declaration,
        rows=SyntheticRows(1234, chunks=lambda: iter([[np.zeros(1234, dtype=np.int64)] * 4])),
        measurements=[],
        resolutions=Resolutions(declaration.universe.shape),
        rounds=rounds,
        statement=STATEMENT,
        name="20261115T021000Z-7d9117748bbf",
        seed=1,
    )


def test_the_card_tells_the_promise_the_columns_the_rounds_the_files_and_how_to_check_them(draft: Draft) -> None:
    page = Page(card(draft, files=FILES))
    for told in (
        STATEMENT.sentence,
        "at most 2.719 times as likely with one table as with the other, plus 1e-09",
        "1,234 rows",
        "F, M, missing",
        "string, dictionary-encoded",
        "sex × age",  # noqa: RUF001  a sign of multiplication
        "56,789",
        "ab" * 32,
        "2" * 64,
        "dpflow ledger verify --releases . --head",
        "pandas.read_parquet('data')",
    ):
        assert told in page.text
    assert len([row for row in page.all("th") if row in {"1", "2", "3", "4"}]) == 4


def test_the_page_is_well_formed_for_people_who_do_not_see_it(draft: Draft) -> None:
    page = Page(card(draft, files=FILES))
    assert page.open == []
    attributes = dict(page.tags)
    assert attributes["html"] == {"lang": "en"}
    assert len(page.all("title")) == len([tag for tag, _ in page.tags if tag == "main"]) == 1
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    tables = sum(tag == "table" for tag, _ in page.tags)
    assert tables == len(page.all("caption")) == 5
    assert all(found["scope"] in {"row", "col"} for tag, found in page.tags if tag == "th")
    assert all(found["alt"] for tag, found in page.tags if tag == "img")
    assert "30.0 % of the rows" in str(attributes["img"]["alt"])


def test_the_page_runs_nothing_and_asks_nobody(draft: Draft) -> None:
    page = Page(card(draft, files=FILES))
    assert outside(page) == []
    policy = [found["content"] for tag, found in page.tags if found.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    assert not re.search(r"url\(|@import", STYLE)


def test_a_page_that_asks_somebody_would_be_found() -> None:
    careless = (
        '<img src="https://example.org/x.png"><a href="//example.org">x</a><script>1</script><p onclick="x()"></p>'
    )
    assert len(outside(Page(careless))) == 4


def outside(page: Page) -> list[str]:
    """Return what is run, or is not within the page."""
    found = [tag for tag, _ in page.tags if tag in {"script", "link", "iframe", "object", "embed", "base", "form"}]
    for _, attributes in page.tags:
        found += [name for name in attributes if name.startswith("on")]
        addresses = [str(attributes[name]) for name in ("src", "href", "srcset", "action") if name in attributes]
        found += [address for address in addresses if not address.startswith("data:image/svg+xml;base64,")]
    return found


def test_no_name_becomes_markup(draft: Draft, workspace: Workspace) -> None:
    text = workspace.spec.read_text(encoding="utf-8").replace("smoker:", f"{json.dumps(HOSTILE)}:")
    workspace.spec.write_text(text.replace("[F, M]", f"[F, {json.dumps(HOSTILE)}]"), encoding="utf-8")
    odd_rounds = [replace(each, columns=(HOSTILE, "age")) for each in draft.rounds]
    odd_statement = replace(STATEMENT, unit=HOSTILE, account=HOSTILE, run=HOSTILE)
    odd = replace(
        draft, declaration=load_spec(workspace.spec), rounds=odd_rounds, statement=odd_statement, name=HOSTILE
    )
    plain, page = Page(card(draft, files=FILES)), Page(card(odd, files=[{**FILES[0], "path": HOSTILE}]))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert outside(page) == []
    assert page.text.count(HOSTILE) > 10


def test_the_same_draft_gives_the_same_page(draft: Draft) -> None:
    assert card(draft, files=FILES) == card(draft, files=FILES)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"neighbours": "replace-one"}, "in one person that is replaced by another"),
        ({"delta": 0.0, "rho": None}, "as likely with one table as with the other."),
        ({"epsilon": 50.0}, "e to the power of 50 times"),
        ({"unit": "row", "max_rows_per_unit": 1}, "about one row"),
        ({"weight": "visits", "max_row_weight": 9}, "the number of rows here, are therefore sums of visits"),
    ],
    ids=["replace-one", "pure", "weak", "row", "weight"],
)
def test_the_promise_is_told_as_it_is(draft: Draft, changes: dict[str, Any], told: str) -> None:
    assert told in Page(card(replace(draft, statement=replace(STATEMENT, **changes)), files=FILES)).text


def test_a_release_without_rounds_has_a_card_too(draft: Draft) -> None:
    page = Page(card(replace(draft, rounds=[]), files=FILES))
    assert "There were no rounds" in str(dict(page.tags)["img"]["alt"])
    assert len(page.all("caption")) == 4


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_of_the_card_stands_out(dark: bool) -> None:
    colours = colours_of(STYLE, dark=dark)
    used = set(re.findall(r"[{;]color:var\(--([a-z-]+)\)", STYLE))
    assert used == {"ink", "quiet"}
    assert all(contrast(colours[name], colours["panel"]) >= 4.5 for name in used)
    edges = set(re.findall(r"(?:outline|border|border-left):\dpx solid var\(--([a-z-]+)\)", STYLE))
    assert edges == {"outline", "spent"}
    assert all(contrast(colours[name], colours["panel"]) >= 3 for name in edges)
    assert (
        contrast(colours["grid"], colours["panel"]) < 3
    )  # the lines between rows only help the eye, and would not do as more


def test_every_release_has_its_card_and_lists_it(workspace: Workspace) -> None:
    workspace.open_account()
    release = Path(synthesize(workspace.spec).release)
    manifest = json.loads((release / "manifest.json").read_text(encoding="utf-8"))
    written = (release / "card.html").read_bytes()
    (listed,) = [file for file in manifest["files"] if file["path"] == "card.html"]
    assert listed["sha256"] == hashlib.sha256(written).hexdigest()
    assert listed["bytes"] == len(written)
    assert [each["number"] for each in manifest["rounds"]] == [1, 2, 3, 4]
    assert {"columns", "noise", "before", "after", "noise_floor", "spent"} <= set(manifest["rounds"][0])
    page = Page(written.decode())
    sentence, _, sampling = manifest["privacy"]["guarantee"].partition(". ")
    guarantee = (f"{sentence}.", sampling)
    for told in (*guarantee, *(file["sha256"] for file in manifest["files"] if file != listed)):
        assert told in page.text

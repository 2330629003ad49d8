"""The card of a release: one page that needs nothing else, tells the whole promise, and can be read by everybody."""

import json
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dpcore.answers.sql import parse
from dpcore.marginals.resolutions import Resolutions
from dpcore.release import Draft, SyntheticRows
from dpcore.release.card import STYLE, card
from dpcore.release.statement import ChosenLimit
from dpcore.reporting.outcome import Round
from dpcore.reporting.portrait import Portrait
from dpcore.spec import load_spec
from dpcore.universe import Boolean, Universe
from tests.conftest import Workspace
from tests.dpcore.release.conftest import Site
from tests.dpcore.release.statements import statement
from tests.dpcore.reporting.contrast import colours_of, contrast
from tests.dpcore.reporting.portraits import count_table, portrait

HOSTILE = "<script>alert(1)</script>\"'&|`"
FILES = [{"path": "data/part-00000.parquet", "rows": 1234, "bytes": 56789, "sha256": "ab" * 32}]
PORTRAIT = portrait("sex", "age", "smoker", "city")
VOID = {"meta", "img"}

STATEMENT = statement()


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
        name="20261115T0210Z-7d9117748bbf",
        seed=1,
    )


def page_of(draft: Draft, shown: Portrait | None = PORTRAIT, **changes: Any) -> Page:
    """Return the card of the draft, with changes of its statement."""
    return Page(card(replace(draft, statement=replace(draft.statement, **changes)), files=FILES, portrait=shown))


def test_the_card_tells_the_promise_the_columns_the_rounds_the_files_and_how_to_check_them(draft: Draft) -> None:
    page = page_of(draft)
    for told in (
        STATEMENT.sentence,
        "at most 2.719 times as likely with one table as with the other, plus 1e-09",
        "1,234 rows",
        "F, M, missing",
        "string, dictionary-encoded",
        "sex × age",  # noqa: RUF001  a sign of multiplication
        "56,789",
        "errors.parquet",
        "ab" * 32,
        "2" * 64,
        "dpflow ledger verify --releases . --head",
        "pandas.read_parquet('data')",
    ):
        assert told in page.text
    assert len([row for row in page.all("th") if row in {"1", "2", "3", "4"}]) == 4


def test_the_page_is_well_formed_for_people_who_do_not_see_it(draft: Draft) -> None:
    page = page_of(draft)
    assert page.open == []
    attributes = dict(page.tags)
    assert attributes["html"] == {"lang": "en"}
    assert len(page.all("title")) == len([tag for tag, _ in page.tags if tag == "main"]) == 1
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    tables = sum(tag == "table" for tag, _ in page.tags)
    assert tables == len(page.all("caption")) == 8
    assert all(found["scope"] in {"row", "col"} for tag, found in page.tags if tag == "th")
    assert all(found["alt"] for tag, found in page.tags if tag == "img")
    assert "30.0 % of the rows" in str(attributes["img"]["alt"])  # the last picture is that of the rounds
    assert len([tag for tag, _ in page.tags if tag == "figure"]) == len(page.all("figcaption")) // 2 == 4


def test_the_page_runs_nothing_and_asks_nobody(draft: Draft) -> None:
    page = page_of(draft)
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
    odd_portrait = portrait(HOSTILE, "age", "smoker", "city")
    odd = replace(
        draft, declaration=load_spec(workspace.spec), rounds=odd_rounds, statement=odd_statement, name=HOSTILE
    )
    plain, page = (
        page_of(draft),
        Page(card(odd, files=[{**FILES[0], "path": HOSTILE}], portrait=odd_portrait)),
    )
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert outside(page) == []
    assert page.text.count(HOSTILE) > 10


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
    assert told in page_of(draft, None, **changes).text


def test_a_release_without_rounds_has_a_card_too(draft: Draft) -> None:
    page = page_of(replace(draft, rounds=[]), None)
    assert "There were no rounds" in str(dict(page.tags)["img"]["alt"])
    assert len(page.all("caption")) == 4


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_of_the_card_stands_out(dark: bool) -> None:
    colours = colours_of(STYLE, dark=dark)
    for pattern, names, least in (
        (r"[{;]color:var\(--([a-z-]+)\)", {"ink", "quiet", "good", "fair", "poor"}, 4.5),
        (r"(?:outline|border|border-left):\dpx solid var\(--([a-z-]+)\)", {"outline", "spent"}, 3),
    ):
        assert set(re.findall(pattern, STYLE)) == names
        assert all(contrast(colours[name], colours["panel"]) >= least for name in names)


def test_every_release_has_its_card_and_lists_it(site: Site) -> None:
    release = site.release("second")
    manifest = json.loads((release / "manifest.json").read_bytes())
    page = Page((release / "card.html").read_text(encoding="utf-8"))
    sentence, _, sampling = manifest["privacy"]["guarantee"].partition(". ")
    tables = [file["sha256"] for file in manifest["files"] if file["path"].endswith(".parquet")]
    assert len(tables) >= 3
    for told in (f"{sentence}.", sampling, *tables):
        assert told in page.text


def headings(page: Page) -> list[str]:
    return page.all("h2")


def test_pictures_come_first_then_the_promise_then_how_it_was_made(draft: Draft) -> None:
    page = page_of(draft)
    assert headings(page) == [
        "What you can rely on",
        "The columns",
        "Pairs of columns",
        "The best and the worst tables of counts",
        "What is promised",
        "What was protected",
        "The possible values",
        "How the model was made",
        "Files",
        "How to read the data",
        "How to check the receipt",
    ]
    for nothing in (None, Portrait((), (), (), ())):  # without replicates, or with more cells than can be listed
        assert headings(page_of(draft, nothing))[0] == "What is promised"


def test_the_summary_names_figures_that_can_be_trusted_and_others_that_cannot(draft: Draft) -> None:
    tables = (
        count_table("sex", "age"),
        count_table("age", "city", error=0.4),
        count_table("smoker", error=0.9, cells=4321),
        count_table("sex", "city", basis="guess"),
    )
    page = page_of(draft, replace(PORTRAIT, total=4321.2, tables=tables, left_out=(("age", "sex", "city"),)))
    text = " ".join(page.text.split())
    trusted, _, doubtful = text.partition("Do not rely on figures such as these:")
    told = "✓ good . You can trust figures such as these: sex × age : for example, 120 rows have sex x"  # noqa: RUF001
    assert told in trusted
    assert "A typical one of its 4,321 counts is off by 90.0\xa0% of itself" in page.text
    assert "No measurement connects these columns" in doubtful
    assert "of which about 4,321 rows were counted" in text
    assert "1 pair or measured table is not listed, because it has too many counts: age × sex × city." in doubtful  # noqa: RUF001
    assert "Of 4 columns, 4 are good; of 6 pairs of columns, 4 are good, 1 is fair, 1 is poor." in text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"max_rows_per_unit": 1},
            "At most 1 row of each person is kept, chosen at random. How many rows this left out",
        ),
        ({"max_rows_per_unit": 2}, "At most 2 rows of each person are kept"),
        ({"chosen_limit": ChosenLimit(2, (1, 2), 0.02, 5.0, {"1": 90}, 0.125)}, "left out about 12.5\xa0% of the rows"),
        (
            {"chosen_limit": ChosenLimit(2, (1, 2), 0.02, 5.0, {"1": 90, "more than 64": 14}, 0.125)},
            "left out about 12.5\xa0% of the rows",
        ),
        (
            {"chosen_limit": ChosenLimit(2, (1, 2), 0.02, 5.0, {"1": 90, "more than 64": 16}, 0.125)},
            "left out at least about 12.5\xa0% of the rows",
        ),
        ({"chosen_limit": ChosenLimit(2, (1, 2), 0.02, 5.0, {"1": 0})}, "does not tell how many rows"),
    ],
    ids=["one", "several", "chosen", "only noise above", "many rows", "unknown"],
)
def test_the_card_says_how_many_rows_the_limit_removed(draft: Draft, changes: dict[str, Any], told: str) -> None:
    assert told in page_of(draft, **changes).text
    assert "chosen at random" not in page_of(draft, unit="row", max_rows_per_unit=1).text


def test_a_wide_table_is_folded(draft: Draft) -> None:
    wide = portrait(*(f"a_column_with_a_long_name_{number}" for number in range(100)))
    page = page_of(draft, replace(wide, more_columns=40))
    assert "88 more columns" in page.all("summary")
    assert "40 more columns have no picture here" in page.text
    assert "The 150 pairs with the strongest dependence as a table" in page.all("summary")


def test_the_worst_tables_are_those_of_known_errors_and_larger_ones_are_named_before_them(draft: Draft) -> None:
    shown = portrait("a", "b", "c", "d", "e")
    page = page_of(draft, replace(shown, left_out=(("a", "b", "c"), ("b", "c", "d"))))
    told = "2 pairs or measured tables are not listed, because they have too many counts: a × b × c; b × c × d. Their errors are not known here, and may be larger"  # noqa: RUF001
    assert told in page.text
    assert "The 5 worst of 10 tables with known errors" in page.all("caption")
    assert page.text.index(told) < page.text.index("The 5 best of 10 tables")
    assert "The 5 worst" in page_of(draft, shown).all("caption")


def test_a_table_whose_errors_are_not_known_is_not_called_good(draft: Draft) -> None:
    good = portrait("a", "b")
    assert not good.doubtful
    every = "All columns, pairs of columns and measured tables are good"
    assert f"{every}." in page_of(draft, good).text
    text = page_of(draft, replace(good, left_out=(("a", "b"),))).text
    assert f"{every}, as far as their errors are known. Larger tables without known errors: 1." in text


def test_the_card_says_which_columns_are_not_among_the_pairs_and_why(draft: Draft) -> None:
    names = [f"column_{number:02}" for number in range(42)]
    page = page_of(draft, portrait(*names))
    assert "Only 24 of the 42 columns are shown here: those that depend most on another column" in page.text
    assert "18 are left out, because" in page.text
    assert "The 150 pairs with the strongest dependence, among 24 of the columns. Expected error" in page.text
    assert "Columns left out: 18" in page.all("summary")
    assert f"{', '.join(names[24:])}. dpflow answer" in page.text
    assert "of 276 pairs of columns among the 24 that depend most on another" in page.text
    few = page_of(draft, portrait(*names[:24]))
    assert "left out, because" not in few.text
    assert "among the 24" not in few.text


@pytest.mark.parametrize("name", ["select", "it's", 'a "b" `c`', "$(echo x)", "Größe\\!"])
def test_the_example_command_can_be_copied_whatever_the_name_of_the_column(draft: Draft, name: str) -> None:
    page = page_of(draft, portrait(name, "other"))
    (command,) = [text for text in page.all("code") if text.startswith("dpflow answer")]
    told = subprocess.run(
        ["/bin/sh", "-c", command.replace("dpflow", "printf '%s\\n'", 1)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert told[:2] == ["answer", "."]
    universe = Universe({"other": Boolean(), name: Boolean()})
    assert len(told) == 3
    (key,) = parse(told[2], universe, tables=("release",)).keys
    assert universe.names[key.term.column] == name

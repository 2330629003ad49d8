"""Figures are bought before they are drawn, say what is true, and lie beside the release with their promise."""

import json
from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest

from dpcore.comparison.figures import buy_figures
from dpcore.errors import BudgetRefused, SpecError, UsageError
from dpcore.ledger import open_ledger
from dpcore.mechanisms import DiscreteLaplace, from_description
from dpcore.places import places_of_spec, using
from dpcore.privacy.accounting import Cap, Currency, budget_of, promise_of
from dpcore.reporting.formatting import pair
from dpcore.runs.reading import Reading
from dpcore.steward.approvals import require_approval, require_none
from dpcore.steward.verify import verify_ledger
from dpcore.tables.histogram import Histogram
from dpcore.universe import Universe
from tests.dpcore.comparison.conftest import MARKER, Site
from tests.dpcore.comparison.test_compare import COLUMNS, cells


def published(site: Site) -> list[Path]:
    return sorted(site.release.parent.glob("*-figures-*.json"))


def test_figures_are_paid_in_full_and_published_with_their_promise(site: Site) -> None:
    with open_ledger() as ledger:
        before = ledger.balance("visits").remaining
    bought = buy_figures(site.release, site.spec, epsilon=2.0, approved=False)
    _, price = budget_of(2.0, delta=1e-9)
    with open_ledger() as ledger:
        run = ledger.run(bought.run)
        rows = ledger.transcript(bought.run)
        assert before - ledger.balance("visits").remaining == run.spent <= price
    assert run.state == "settled"
    assert run.release is None
    assert [row.step for row in rows] == ["error/workload", "error/columns", "error/largest"]
    for row in rows:
        assert from_description(row.mechanism).price(Currency.ZCDP) == row.amount
    # at most two rows of a person count: their rows may lie in different cells, or in one
    assert [row.mechanism["l1"] for row in rows] == [2, 2, 2]
    assert sum(row.amount for row in rows) > 0.99 * price
    told = json.loads(bought.file.read_text(encoding="utf-8"))
    release, own = told["privacy"]["made_from"]  # whoever sees the figures sees something of the release, too
    assert (release["release"], own["run"], own["amount"]) == (site.release.name, bought.run, price)
    together = promise_of(
        Cap(Currency.ZCDP, release["amount"] + price, first=release["amount"]), delta=release["delta"]
    )
    assert told["privacy"]["guarantee"].startswith(
        f"These figures are {pair(together.epsilon, together.delta)}-differentially private with respect to"
    )
    assert "adding or removing one person with all its rows, of which at most 2 count" in told["privacy"]["guarantee"]
    assert [each["rows"] for each in told["figures"]] == [each.rows for each in bought.figures]
    assert bought.file.parent == site.release.parent
    assert MARKER not in bought.file.read_text(encoding="utf-8")
    with using(places_of_spec(site.spec)):
        verify_ledger()  # the figures disturb no release beside them


VALUES = {
    "sex": ["F", "M", "null"],
    "age": [0, 1, 2, 3],
    "smoker": [False, True],
    "city": ["north", "south", "west", "other"],
}


def test_without_its_noise_a_figure_is_the_error_of_the_rows_that_count(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[Histogram] = []
    count = Reading.count

    def watched(self: Reading, universe: Universe) -> Histogram:
        counted.append(count(self, universe))
        return counted[-1]

    monkeypatch.setattr(Reading, "count", watched)
    monkeypatch.setattr(DiscreteLaplace, "draw", lambda _, exact: exact)
    bought = buy_figures(site.release, site.spec, epsilon=3.0, approved=False)
    made, (truth,) = cells(pd.read_parquet(site.release / "data")), counted
    scale = bought.figures[0].total / len(made)
    errors = {}
    for axes in [*combinations(range(4), 1), *combinations(range(4), 2)]:
        names = [COLUMNS[axis] for axis in axes]
        shown = pd.MultiIndex.from_product([VALUES[name] for name in names], names=names)
        released = made.groupby(names).size()
        released.index = pd.MultiIndex.from_frame(released.index.to_frame(), names=names)
        expected = (released.reindex(shown, fill_value=0).to_numpy() * scale).round()
        errors[axes] = abs(truth.marginal(axes).ravel() - expected)
    pairs = [each for axes, each in errors.items() if len(axes) == 2]
    single = [each for axes, each in errors.items() if len(axes) == 1]
    exact = [sum(each.sum() for each in pairs) // 6, sum(each.sum() for each in single) // 4, max(map(max, pairs))]
    assert [figure.rows for figure in bought.figures] == exact
    assert min(exact) > 0
    assert [figure.marginals for figure in bought.figures] == [6, 4, 6]


def test_an_account_that_cannot_pay_refuses_before_anything_is_read(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpcore.runs.reading.Reading.count", lambda *_: pytest.fail("the table was read"))
    with open_ledger() as ledger:
        head = ledger.head()
    files = published(site)
    with pytest.raises(BudgetRefused, match="epsilon"):
        buy_figures(site.release, site.spec, epsilon=9.9, approved=False)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(SpecError, match="`epsilon` must be a number above 0"):
            buy_figures(site.release, site.spec, epsilon=wrong, approved=False)
    with open_ledger() as ledger:
        assert ledger.head() == head
    assert published(site) == files


def test_an_epsilon_above_the_threshold_needs_approval(site: Site) -> None:
    with using(places_of_spec(site.spec)):
        require_approval("visits", above=0.01, delta=1e-9, within_seconds=60)
        try:
            with pytest.raises(UsageError, match=r"needs the steward's approval above epsilon 0\.01"):
                buy_figures(site.release, site.spec, epsilon=0.1, approved=False)
            assert buy_figures(site.release, site.spec, epsilon=0.1, approved=True).file.exists()
        finally:
            require_none("visits")


def test_the_price_is_at_the_delta_of_the_spec_and_the_promise_at_that_of_the_release(site: Site) -> None:
    other = site.folder / "stricter.yaml"
    other.write_text(site.spec.read_text(encoding="utf-8").replace("delta: 1e-9", "delta: 1e-12"), encoding="utf-8")
    try:
        bought = buy_figures(site.release, other, epsilon=0.2, approved=False)
    finally:
        other.unlink()
    with open_ledger() as ledger:
        assert ledger.run(bought.run).reserved == budget_of(0.2, delta=1e-12)[1] < budget_of(0.2, delta=1e-9)[1]
    told = json.loads(bought.file.read_text(encoding="utf-8"))
    assert [part["delta"] for part in told["privacy"]["made_from"]] == [1e-9, 1e-12]
    assert told["privacy"]["delta"] == 1e-9  # of both together: what was fixed before the first draw
    assert told["dataset"] == "visits"
    assert bought.file.name.startswith(f"{site.release.name}-figures-")

"""A comparison agrees with an independent computation, stays in the private folder, charges nothing, and refuses what it cannot compare."""

import json
import logging
import shutil
import stat
from collections.abc import Callable
from contextlib import chdir
from dataclasses import replace
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpcore.answers.release import open_release
from dpcore.cli.main import main
from dpcore.comparison import compare as compare_module
from dpcore.comparison import errors, page
from dpcore.comparison.columns import FinePlaces
from dpcore.comparison.compare import compare
from dpcore.comparison.comparison import Comparison
from dpcore.comparison.figures import buy_figures
from dpcore.comparison.html import MARK
from dpcore.errors import OutputError, SourceError, UsageError
from dpcore.ledger import open_ledger
from dpcore.universe import Date, Every
from tests.dpcore.answers.releases import EVERY_KIND, make_release, restate, table
from tests.dpcore.comparison.conftest import MARKER, Site

COLUMNS = ("sex", "age", "smoker", "city")


@pytest.fixture(scope="module")
def found(site: Site) -> dict[str, Any]:
    """The content of a comparison."""
    return site.found


def cells(frame: pd.DataFrame) -> pd.DataFrame:
    """Put rows into the declared cells, without dpcore."""
    known = ["north", "south", "west"]
    return pd.DataFrame(
        {
            "sex": frame["sex"].astype(object).where(frame["sex"].notna(), "null"),
            "age": frame["age"].clip(0, 99) // 25,
            "smoker": frame["smoker"].astype(bool),
            "city": frame["city"].astype(str).where(frame["city"].isin(known), "other"),
        }
    )


def error(true: pd.DataFrame, made: pd.DataFrame, columns: tuple[str, ...]) -> float:
    """The L1 distance of two tables of shares."""
    shares = [each.groupby(list(columns)).size() / len(each) for each in (true, made)]
    return float(shares[0].sub(shares[1], fill_value=0).abs().sum())


def test_the_error_of_the_workload_is_that_of_an_independent_computation(site: Site, found: dict[str, Any]) -> None:
    true, made = cells(site.table), cells(pd.read_parquet(site.release / "data"))
    pairs = [error(true, made, pair) for pair in combinations(COLUMNS, 2)]
    assert found["errors"]["release"] == pytest.approx(sum(pairs) / len(pairs), abs=1e-9)
    assert found["errors"]["by_order"]["2"][0] == pytest.approx(sum(pairs) / len(pairs), abs=1e-9)
    single = [error(true, made, (name,)) for name in COLUMNS]
    assert found["errors"]["by_order"]["1"][0] == pytest.approx(sum(single) / len(single), abs=1e-9)
    assert [column["name"] for column in found["columns"]] == list(COLUMNS)
    worst = max(combinations(COLUMNS, 2), key=lambda pair: error(true, made, pair))
    assert tuple(found["errors"]["worst"][0][0]) == worst
    assert found["errors"]["marginals"] == found["errors"]["of"] == 6
    assert found["errors"]["bootstrap"] < found["errors"]["independent"]


def test_the_rows_that_the_limit_on_rows_per_unit_keeps_are_counted(site: Site, found: dict[str, Any]) -> None:
    kept = int(site.table["person"].value_counts().clip(upper=2).sum())
    assert (found["true_rows"], found["kept_rows"]) == (len(site.table), kept)
    assert found["steps"]["errors"][0] > 0  # a third of the rows belong to one person, of whom two rows are kept


def test_the_cost_of_reading_a_column_is_that_of_an_independent_computation(site: Site, found: dict[str, Any]) -> None:
    columns = {column["name"]: column for column in found["columns"]}
    outside = ~site.table["city"].isin(["north", "south", "west"])
    assert columns["city"]["outside"] == pytest.approx(outside.mean(), abs=1e-9)
    assert columns["city"]["dropped"] == 0
    assert columns["city"]["binning"] is None
    assert columns["age"]["outside"] == pytest.approx((site.table["age"] > 99).mean(), abs=1e-9)
    ages, made = site.table["age"], pd.read_parquet(site.release / "data")["age"]
    # Values outside are clipped, here as in the column itself.
    inside = ages.clip(0, 99)
    gap = max(abs((inside <= age).mean() - (made <= age).mean()) for age in range(100))
    assert columns["age"]["gap"] == pytest.approx(gap, abs=1e-9)
    assert 0 < columns["age"]["binning"] < 0.2


def test_a_cell_that_is_off_is_explained_by_the_steps_that_moved_it(found: dict[str, Any]) -> None:
    cells = found["steps"]["cells"]
    assert cells
    for cell in cells:
        assert sum(cell["steps"]) == pytest.approx(cell["released"] - cell["true"], abs=1e-6)
    errors = [abs(cell["released"] - cell["true"]) for cell in cells]
    assert errors == sorted(errors, reverse=True)


def test_the_page_says_which_marginals_the_causes_of_the_error_are_about(
    site: Site, found: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, text = found["steps"], site.written.page.read_text(encoding="utf-8")
    assert (steps["marginals"], steps["of"], steps["larger"]) == (6, 6, 0)
    told = f"6 of the 6 marginals of several columns in the workload and its parts, with a mean error of {steps['errors'][-1]:.3f}"
    assert text.count(told) == 2  # in short, and in the section about causes
    assert "may have worse ones" not in text
    for module in (errors, page):
        monkeypatch.setattr(module, "STEPPED_CELLS", 10)
    fewer = compare(site.release, site.spec)
    text = fewer.page.read_text(encoding="utf-8")
    steps = json.loads(fewer.data.read_text(encoding="utf-8"))["steps"]
    # smoker has at most ten cells together with any other column
    assert (steps["marginals"], steps["of"], steps["larger"]) == (3, 6, 3)
    assert "3 have more than 10 cells; their error may come from other steps." in text
    assert "Marginals that were not followed may have worse ones." in text


def comparison_of(site: Site, monkeypatch: pytest.MonkeyPatch) -> Comparison:
    """Compare, and return what the page is made from."""
    made: list[Comparison] = []

    def kept(found: Comparison) -> str:
        made.append(found)
        return page.page(found)

    with monkeypatch.context() as patch:
        patch.setattr(compare_module, "page", kept)
        compare(site.release, site.spec)
    return made[0]


def test_months_without_days_are_compared_as_months() -> None:
    bounds = {"minimum": date(2018, 1, 1), "maximum": date(2019, 12, 31), "every": Every.QUARTER}
    texts = pa.array(["Feb-2018", "Feb-2018", "Dec-2019"])
    places = FinePlaces.of(Date(**bounds, formats=("%b-%Y",)))
    assert places is not None
    assert np.flatnonzero(places.count(texts, None)).tolist() == [1, 23]


def test_a_cause_is_a_share_of_all_that_steps_add(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = comparison_of(site, monkeypatch)
    undone = replace(compared, steps=replace(compared.steps, errors=(0.1, 0.4, 0.2, 0.3)))
    assert "error, 60.0&nbsp;%, comes from this: marginals that were not measured" in page.page(
        undone
    )  # 0.3 of 0.1 + 0.3 + 0.1


def test_the_page_says_how_the_predicted_columns_were_chosen(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = comparison_of(site, monkeypatch)
    assert "The report predicts 4 of the 4 columns, at most 8: those that depend most on another column" in page.page(
        compared
    )
    assert "The report predicts sex, the target of the workload." in page.page(replace(compared, target="sex"))


def test_the_advice_for_a_blurred_column_fits_its_cause(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = comparison_of(site, monkeypatch)
    by_name = {each.name: each for each in compared.columns}
    assert (by_name["age"].cells, by_name["city"].cells) == ("width", None)
    told = {
        "tree": "a private tree found, and this blurs these columns: age. To reduce that, give them a larger `share`",
        "calendar": "blurs these columns: age. To reduce that, declare a shorter `every`",
        "discover": "blur these columns: age. To reduce that, let `discover` find more `bins`",
        "width": "blur these columns: age. To reduce that, declare a smaller `width`",
        "edges": "blur these columns: age. To reduce that, declare more `edges`",
        "bins": "blur these columns: age. To reduce that, declare more `bins`",
    }
    for cells in told:
        column = replace(by_name["age"], cells=cells, binning=0.06)
        text = page.page(replace(compared, columns=[column]))
        assert [each for each in told if told[each] in text] == [cells]
        assert ("`width`" in text) == (cells == "width")
    sharp = replace(by_name["age"], binning=0.04)
    assert "these columns: age" not in page.page(replace(compared, columns=[sharp]))


def outside_of(folder: Path, private: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(private)]


def test_no_byte_of_a_comparison_leaves_the_private_folder(
    site: Site, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tree_of: Callable[[Path], Any]
) -> None:
    private = site.folder / ".dpflow" / "private"
    public = {path: path.read_bytes() for path in outside_of(site.folder, private)}
    with open_ledger() as ledger:
        before = ledger.head(), ledger.balance("visits")
    with caplog.at_level(logging.DEBUG):
        assert main(["report", str(site.release), str(site.spec)], runner=None) == 0  # type: ignore[arg-type]
    said = capsys.readouterr()
    streams = said.out + said.err + caplog.text
    after = {path: path.read_bytes() for path in outside_of(site.folder, private)}
    assert after == public
    with open_ledger() as ledger:
        assert (ledger.head(), ledger.balance("visits")) == before  # nothing was charged
    assert MARKER not in streams
    assert not [path for path, content in after.items() if MARK.encode() in content]  # no copy of the page
    content = json.loads((next(private.rglob("comparison.json"))).read_text(encoding="utf-8"))
    told = [f"{content['errors'][name]:.3f}" for name in ("release", "independent", "bootstrap")]
    told += [f"{content['true_rows']:,.0f}", f"{content['kept_rows']:,.0f}", str(int(content["kept_rows"]))]
    assert not [figure for figure in told if figure in streams]
    for name, written in tree_of(private).items():
        if "comparison" in name:
            assert MARKER.encode() not in written  # cells have declared names: not even the page shows a raw value
    planted = site.folder / "visits.csv"
    others = [path for path, content in after.items() if MARKER.encode() in content]
    assert others == [planted]


def test_a_page_is_marked_as_private_on_screen_and_on_every_printed_page(site: Site) -> None:
    written = site.written
    page = written.page.read_text(encoding="utf-8")
    assert "<title>PRIVATE: " in page
    assert '<header class="private">PRIVATE - ' in page
    assert '@top-center{content:"PRIVATE - ' in page
    assert 'body::after{content:"PRIVATE";position:fixed' in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert next(iter(json.loads(written.data.read_text(encoding="utf-8")))) == "private"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (written.page, written.data)}
    assert modes == {0o600}
    assert stat.S_IMODE(written.page.parent.stat().st_mode) == 0o700
    assert written.page.is_relative_to(site.folder / ".dpflow" / "private")


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        ("values: [north, south, west]", "values: [north, south]", "`universe` differs"),
        ("dataset: visits", "dataset: other", "`dataset` differs"),
        ("max_rows_per_unit: 2", "max_rows_per_unit: 3", "`privacy` differs"),
    ],
)
def test_a_release_of_another_spec_is_refused(site: Site, old: str, new: str, differs: str) -> None:
    other = site.folder / "other.yaml"
    other.write_text(site.spec.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    try:
        with pytest.raises(UsageError, match=f"was not made from .*other.yaml: {differs}; name the spec"):
            compare(site.release, other)
    finally:
        other.unlink()


def test_a_run_whose_form_named_another_epsilon_can_be_compared_with_the_same_result(
    site: Site, found: dict[str, Any]
) -> None:
    other = site.folder / "cheap.yaml"
    other.write_text(site.spec.read_text(encoding="utf-8").replace("epsilon: 1.0", "epsilon: 0.5"), encoding="utf-8")
    try:
        again = json.loads(compare(site.release, other).data.read_text(encoding="utf-8"))
    finally:
        other.unlink()
    for part in ("errors", "dependence", "predictions", "recognition", "columns"):
        assert again[part] == found[part]


def test_a_missing_source_is_named(site: Site, tmp_path: Path) -> None:
    hidden = shutil.move(site.folder / "visits.csv", tmp_path / "visits.csv")
    try:
        with pytest.raises(SourceError, match=r"source.path 'visits.csv' leads to no table; name a file"):
            compare(site.release, site.spec)
    finally:
        shutil.move(hidden, site.folder / "visits.csv")


def test_a_table_that_has_changed_since_is_refused_unless_asked_for(site: Site) -> None:
    with pytest.raises(UsageError, match="the table has changed since the release was made"):
        compare(site.release, site.spec, table=site.table.iloc[1:])
    written = compare(site.release, site.spec, table=site.table.iloc[1:], allow_changed=True)
    assert "Warning: the table is not known to be the one" in written.page.read_text(encoding="utf-8")


def test_another_private_folder_cannot_tell_whether_the_table_has_changed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match=r"holds no fingerprint.key.*name the private folder of its run"):
        compare(site.release, site.spec)
    written = compare(site.release, site.spec, allow_changed=True)
    assert written.page.is_relative_to(tmp_path / "elsewhere")
    assert "Warning: " in written.page.read_text(encoding="utf-8")
    assert not (tmp_path / "elsewhere" / "fingerprint.key").exists()  # none is made up


@pytest.mark.parametrize("place", ["releases/visits/private", "releases/private"])
def test_a_private_folder_among_the_releases_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch, place: str, tmp_path: Path
) -> None:
    inside = site.folder / place
    monkeypatch.setenv("DPFLOW_PRIVATE", str(inside))
    try:
        with pytest.raises(UsageError, match="lies among the releases"):
            compare(site.release, site.spec)
        copy = shutil.copytree(site.release, tmp_path / "elsewhere" / site.release.name)
        with pytest.raises(UsageError, match="lies among the releases"):
            compare(copy, site.spec)
        assert not inside.exists()
    finally:
        shutil.rmtree(inside, ignore_errors=True)


def test_a_damaged_release_is_refused(site: Site, tmp_path: Path) -> None:
    copy = shutil.copytree(site.release, tmp_path / site.release.name)
    data = copy / "data" / "part-00000.parquet"
    data.write_bytes(data.read_bytes() + b"x")
    with pytest.raises(UsageError, match=r"is damaged.*copy the release again"):
        compare(copy, site.spec)


def test_a_release_of_another_ledger_is_refused(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{tmp_path}/ledger.sqlite")
    open_ledger(create=True).close()
    with pytest.raises(UsageError, match=r"was made with another ledger.*DPFLOW_LEDGER_URL"):
        compare(site.release, site.spec)


def test_columns_of_every_kind_can_be_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    release = make_release(tmp_path, EVERY_KIND.replace("rounds: 4", "rounds: 1"), rows=800)
    with chdir(tmp_path):
        written = compare(release, "spec.yaml", table=table(800, seed=1))
    found = json.loads(written.data.read_text(encoding="utf-8"))
    assert [column["name"] for column in found["columns"]] == list(open_release(release).universe.names)
    ordered = {column["name"]: column for column in found["columns"] if column["gap"] is not None}
    assert set(ordered) == {
        *("age", "children", "weight", "income", "cost", "hours", "born", "day", "at", "seen"),
    }
    kinds = {name: column["cells"] for name, column in ordered.items()}
    assert kinds == {
        "age": "width",
        "children": "values",
        "weight": "discover",
        "income": "edges",
        **dict.fromkeys(("cost", "hours", "day", "at"), "tree"),
        **dict.fromkeys(("born", "seen"), "calendar"),
    }
    assert ordered["children"]["binning"] < 0.01  # a cell for each number
    assert 0.02 < ordered["income"]["binning"] < 0.5  # four wide bins
    assert all(column["gap"] < 0.5 for column in ordered.values())
    for column in found["columns"]:
        assert sum(column["true"]) == pytest.approx(1)
        assert sum(column["released"]) == pytest.approx(1)


@pytest.mark.parametrize(
    "planted",
    [
        {"dataset": "../../../leak"},
        {"dataset": "{tmp_path}/leak"},
        {"release": "../../leak"},
        {"privacy": {"delta": 0.5}, "spec": {"privacy": {"delta": 0.5}}},
        {"privacy": {"max_rows_per_unit": 1}},
    ],
)
def test_a_manifest_that_the_ledger_has_not_recorded_is_refused(
    site: Site, tmp_path: Path, planted: dict[str, Any], tree_of: Callable[[Path], Any]
) -> None:
    copy = shutil.copytree(site.release, tmp_path / "releases" / site.release.name)
    manifest = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    plant(manifest, planted, tmp_path)
    restate(copy, manifest)
    before = tree_of(tmp_path), tree_of(site.folder)
    with pytest.raises(UsageError, match=r"manifest.json of .* is not the one that the ledger has recorded"):
        compare(copy, site.spec)
    with pytest.raises(UsageError, match=r"manifest.json of .* is not the one that the ledger has recorded"):
        buy_figures(copy, site.spec, epsilon=0.1, approved=False)
    assert (tree_of(tmp_path), tree_of(site.folder)) == before


def plant(manifest: dict[str, Any], planted: dict[str, Any], folder: Path) -> None:
    for key, value in planted.items():
        if isinstance(value, dict):
            plant(manifest[key], value, folder)
        else:
            manifest[key] = value.format(tmp_path=folder) if isinstance(value, str) else value


def test_a_link_that_leads_out_of_the_private_folder_is_refused(site: Site, tmp_path: Path) -> None:
    folder = site.folder / ".dpflow" / "private" / "comparisons"
    kept = shutil.move(folder, tmp_path / "kept")
    outside = tmp_path / "outside"
    outside.mkdir()
    folder.symlink_to(outside)
    try:
        with pytest.raises(OutputError, match="comparisons leads out of the private folder; remove it"):
            compare(site.release, site.spec)
        assert not list(outside.iterdir())
    finally:
        folder.unlink()
        shutil.move(kept, folder)


@pytest.mark.parametrize("stated", [None, {}, {"run": "r"}])
def test_a_manifest_without_its_privacy_statement_is_refused(site: Site, tmp_path: Path, stated: Any) -> None:
    copy = shutil.copytree(site.release, tmp_path / site.release.name)
    manifest = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    for changed in ({**manifest, "privacy": stated}, {key: part for key, part in manifest.items() if key != "privacy"}):
        restate(copy, changed)
        with pytest.raises(UsageError, match=r"privacy.* in manifest\.json is not what dpflow writes"):
            compare(copy, site.spec)
        with pytest.raises(UsageError, match=r"privacy.* in manifest\.json is not what dpflow writes"):
            buy_figures(copy, site.spec, epsilon=0.1, approved=False)

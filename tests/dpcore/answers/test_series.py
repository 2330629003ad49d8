"""Questions about releases of several months: which releases are read, and what their sum answers."""

import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import replace
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.coverage_releases import seeded
from dpcore import answer, open_release, open_series, synthesize
from dpcore.answers.choice import Choice, Member, named_blocks
from dpcore.answers.merged import merge
from dpcore.answers.release import Release
from dpcore.answers.series import Series
from dpcore.answers.summed import summed_release
from dpcore.cli.main import main
from dpcore.errors import UsageError
from dpcore.ledger import open_ledger
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.release.manifest import Manifest
from dpcore.release.problems import verify_release
from dpcore.steward.releases import withdraw_release
from dpcore.steward.verify import verify_ledger
from dpcore.universe import Boolean, Categorical, Universe
from dpcore.universe.blocks import TimeBlock
from tests.dpcore.answers.releases import restate

SPEC = """\
dataset: visits
privacy: {unit: row, neighbours: add-remove, epsilon: EPSILON, delta: 1e-9}
blocks: {column: day, every: month, start: 2024-01-01, window: new}
universe:
  ward: {type: categorical, values: [a, b, c]}
  smoker: {type: boolean}
  age: {type: integer, min: 0, max: 59, width: 10}DAYS
workload: {marginals: 2}
strategy: {name: mwem, rounds: 3}
"""
MONTHS = (1, 2, 3, 5)  # nobody publishes April
EXACT, USUAL = 3000.0, 1.5


def visits(month: int, *, rows: int = 1500) -> pd.DataFrame:
    """Make the visits of a month. More of the older ones smoke, in each ward in another way."""
    rng = np.random.default_rng(month)
    ward = rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])
    age = np.clip(rng.normal(25 + 8 * (ward == "b"), 12, rows), 0, 59).astype(int)
    smoker = rng.random(rows) < np.where(ward == "c", 0.6, age / 100)
    days = [date(2024, month, day) for day in rng.integers(1, 29, rows).tolist()]
    return pd.DataFrame({"day": days, "ward": ward, "smoker": smoker, "age": age})


def open_account(epsilon: float) -> None:
    currency, cap = budget_of(epsilon, delta=1e-9)
    with open_ledger(create=True) as ledger:
        ledger.open_account(
            "visits",
            currency=currency,
            cap=cap,
            epsilon=epsilon,
            delta=1e-9,
            unit="row",
            neighbours=Neighbours.ADD_REMOVE,
            blocks_by="month of day",
        )


def make_series(
    folder: Path, *, epsilon: float, months: tuple[int, ...] = MONTHS, days: str = "", more: str = ""
) -> Path:
    """Release some months, one by one, and return the folder of the dataset."""
    text = SPEC.replace("EPSILON", str(epsilon)).replace("DAYS", days) + more
    with chdir(folder), seeded(7):
        open_account(4 * epsilon)
        for month in months:
            start = text.replace("start: 2024-01-01", f"start: 2024-{month:02}-01")
            Path("spec.yaml").write_text(start, encoding="utf-8")
            synthesize("spec.yaml", table=visits(month), as_of=date(2024, month + 1, 1))
        return Path("releases", "visits").resolve()


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four months with so much budget that counts are those of the table."""
    return make_series(tmp_path_factory.mktemp("series"), epsilon=EXACT)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="dpcore.progress"):
        yield caplog


def truth(*months: int) -> pd.DataFrame:
    return pd.concat([visits(month) for month in months])


def test_answers_are_about_all_months_together(series: Path) -> None:
    frame = answer(
        series,
        "select ward, count(*) as n, avg(age) as age, median(age) as middle, count(*) filter (smoker) / count(*) as share "
        "from release group by ward",
    )
    table = truth(*MONTHS).groupby("ward")
    assert frame["ward"].tolist() == ["a", "b", "c"]
    assert frame["n"].tolist() == pytest.approx(table.size().to_numpy(), abs=2)
    assert frame["share"].tolist() == pytest.approx(table["smoker"].mean().to_numpy(), abs=0.01)
    for number in ("age", "middle"):
        expected = (table["age"].mean() if number == "age" else table["age"].median()).to_numpy()
        assert (frame[f"{number}_low"] - 1 <= expected).all()
        assert (expected <= frame[f"{number}_high"] + 1).all()
    assert frame.attrs["missing_blocks"] == ["2024-04"]
    assert len(frame.attrs["releases"]) == 4


def test_only_releases_of_the_asked_months_are_read(series: Path, log: pytest.LogCaptureFixture) -> None:
    frame = answer(
        series, "select count(*) as n from visits where day between '2024-02-01' and '2024-03-31' and smoker"
    )
    assert frame["n"][0] == pytest.approx(truth(2, 3)["smoker"].sum(), abs=2)
    assert frame.attrs["missing_blocks"] == []
    assert [line for line in log.messages if line.startswith("answering from")] == [
        f"answering from {name}: 2024-0{month}" for name, month in zip(frame.attrs["releases"], (2, 3), strict=True)
    ]


def test_blocks_that_nobody_published_are_named(series: Path, log: pytest.LogCaptureFixture) -> None:
    frame = answer(series, "select count(*) from release where day >= '2024-03-01' and day < '2024-08-01'")
    assert frame.attrs["missing_blocks"] == ["2024-04", "2024-06", "2024-07"]
    assert (
        "warning: no release covers 2024-04, 2024-06, 2024-07, so the answer is about the other blocks only"
        in log.messages
    )
    with pytest.raises(
        UsageError, match=r"no release of visits covers the time .*; published: 2024-01, 2024-02, 2024-03, 2024-05"
    ):
        answer(series, "select count(*) from release where day >= '2024-08-01'")


def test_a_question_without_end_is_answered(series: Path, log: pytest.LogCaptureFixture) -> None:
    frame = answer(series, "select count(*) as n from release where day between '2024-05-01' and '9999-12-31'")
    assert frame["n"][0] == pytest.approx(1500, abs=2)
    assert frame.attrs["missing_blocks"] == ["2024-06 to 9999-12"]
    assert "warning: no release covers 2024-06 to 9999-12, so the answer" in "".join(log.messages)


def test_groups_by_period_are_the_releases_of_that_period(series: Path) -> None:
    frame = answer(
        series,
        "select smoker, date_trunc('quarter', day) as quarter, count(*) as n from release group by 1, 2 having n > 100 order by 1, 2 desc",
    )
    table = truth(*MONTHS)
    expected = table.groupby([table["smoker"], pd.to_datetime(table["day"]).dt.quarter]).size()
    assert frame["smoker"].tolist() == [False, False, True, True]
    assert frame["quarter"].tolist() == [date(2024, 4, 1), date(2024, 1, 1)] * 2
    assert frame["n"].tolist() == pytest.approx(
        expected.loc[[(False, 2), (False, 1), (True, 2), (True, 1)]].to_numpy(), abs=2
    )


def test_a_period_that_cuts_a_release_without_the_column_is_refused(series: Path) -> None:
    for question in ("where day < '2024-02-15'", "group by day(day)", "where day = '2024-01-01' or smoker"):
        with pytest.raises(
            UsageError, match=r"does not have the column day, so its rows cannot be divided by it; ask for whole"
        ):
            answer(series, f"select count(*) from release {question}")
    with pytest.raises(UsageError, match=r"use it in where and group by, not in sum, avg or median"):
        answer(series, "select median(day) from release")
    with pytest.raises(UsageError, match=r"ask for the counts of the periods"):
        answer(series, "select count(*) / sum(count(*)) over () from release group by month(day)")


@pytest.mark.parametrize(
    "question",
    [
        "select ward, count(*) filter (where day < '2024-02-01') as early, count(*) as n from release group by ward",
        "select ward, count(*) as n from release where smoker or day < '2024-02-01' group by ward",
        "select count(*) as n from release where smoker or day < '2024-02-01'",
    ],
)
def test_one_group_cannot_have_different_rows_of_different_periods(series: Path, question: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"asks for different rows of different periods in one group; group by the period, such as by date_trunc\('month', day\)",
    ):
        answer(series, question)


def test_periods_that_several_conditions_name_are_one_group(series: Path) -> None:
    frame = answer(series, "select count(*) as n from release where day < '2024-02-01' or day >= '2024-05-01'")
    assert frame["n"].tolist() == pytest.approx([3000], abs=2)


def test_numbers_that_are_the_same_in_one_period_stay_apart_in_others(series: Path) -> None:
    frame = answer(
        series,
        "select quarter(day) as quarter, count(*) filter (where day < '2024-04-01') as early, count(*) as n, "
        "count(*) filter (where smoker) as smokers from release group by 1",
    )
    first, second = truth(1, 2, 3), truth(5)
    assert frame["early"].tolist() == pytest.approx([len(first), 0], abs=2)
    assert frame["n"].tolist() == pytest.approx([len(first), len(second)], abs=2)
    assert frame["smokers"].tolist() == pytest.approx([first["smoker"].sum(), second["smoker"].sum()], abs=2)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"ward": "ward", "smoker": "smoker"}, "it lacks age"),
        ({"ward": "ward", "smoker": "smoker", "day": "age"}, "it lacks age and it also has day"),
        ({"ward": "ward", "age": "age", "smoker": "smoker"}, "its columns are in another order"),
        ({"ward": "age", "smoker": "smoker", "age": "age"}, "the type of ward is another one"),
    ],
)
def test_a_release_with_other_columns_than_the_newest_is_refused(
    series: Path, tmp_path: Path, columns: dict[str, str], message: str
) -> None:
    opened = open_series(series)
    assert opened is not None
    first = opened.members[-1]
    attributes = first.universe.attributes
    own = Universe({name: attributes[of] for name, of in columns.items()})
    mixed = replace(opened, members=(*opened.members[:-1], replace(first, universe=own)))
    for question in ("select count(*) as n from release", "select count(*) as n from release where month(day) = 1"):
        with pytest.raises(
            UsageError, match=f"^{first.folder.name} has other columns than .*: {message}; .*name the folder of one"
        ):
            answer(mixed, question)
    with pytest.raises(UsageError, match=message):
        merge(mixed, tmp_path / "sum")
    assert answer(mixed, "select count(*) as n from release where month(day) = 5")["n"][0] == pytest.approx(1500, abs=2)


def test_nothing_is_charged_and_the_newest_release_alone_can_still_be_asked(series: Path) -> None:
    with chdir(series.parents[1]):
        with open_ledger() as ledger:
            head = ledger.head()
        opened = open_series(series)
        assert opened is not None
        assert answer(opened, "select count(*) as n from release where month(day) = 5")["n"][0] == pytest.approx(
            1500, abs=2
        )
        newest = series / max(path.name for path in series.iterdir() if path.is_dir())
        assert answer(newest, "select count(*) as n from release")["n"][0] == pytest.approx(1500, abs=2)
        with open_ledger() as ledger:
            assert ledger.head() == head


def test_the_newest_release_of_a_block_that_is_not_withdrawn_is_read(tmp_path: Path) -> None:
    folder = make_series(tmp_path, epsilon=EXACT, months=(1, 2))
    with chdir(tmp_path), seeded(8):
        again = (tmp_path / "spec.yaml").read_text(encoding="utf-8").replace("window: new", "window: all")
        (tmp_path / "spec.yaml").write_text(again, encoding="utf-8")
        newer = Path(synthesize("spec.yaml", table=visits(2).iloc[:1000], as_of=date(2024, 3, 1)).release)
        question = "select count(*) as n from release"
        answered = answer(folder, question)
        assert answered["n"][0] == pytest.approx(2500, abs=2)
        assert newer.name in answered.attrs["releases"]
        withdraw_release(str(newer), reason="rows were missing")
        assert answer(folder, question)["n"][0] == pytest.approx(3000, abs=2)


def test_a_release_that_was_left_out_is_named(series: Path, tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    opened = open_series(series)
    assert opened is not None
    may, march, february, january = opened.members
    both = replace(february, blocks=(*february.blocks, *march.blocks))  # a newer release covers March alone
    mixed = replace(opened, members=(may, march, both, january))
    left_out = f"the rows of 2024-02 are missing: {both.folder.name} has them, but was left out, because a newer release covers a part of its blocks"
    frame = answer(mixed, "select count(*) as n from release")
    assert frame["n"][0] == pytest.approx(4500, abs=2)
    assert frame.attrs["missing_blocks"] == ["2024-02", "2024-04"]
    assert [line for line in log.messages if line.startswith("warning")] == [
        f"warning: {left_out}",
        "warning: no release covers 2024-04, so the answer is about the other blocks only",
    ]
    merged = merge(mixed, tmp_path / "spring", where="day < '2024-05-01'")
    assert merged.manifest["warnings"][:2] == [
        left_out,
        "no release covers 2024-04, so the rows of that time are missing",
    ]


@pytest.mark.parametrize(
    "blocks",
    [
        {"by": "month of day", "names": []},
        {"by": "month of day"},
        {"by": "month of day", "names": ["2024-13"]},
        ["2024-01"],
        "x",
    ],
)
def test_damaged_blocks_of_any_release_are_refused(series: Path, tmp_path: Path, blocks: object) -> None:
    folder = shutil.copytree(series, tmp_path / "visits")
    oldest = min(path for path in folder.iterdir() if path.is_dir())
    manifest = json.loads((oldest / "manifest.json").read_text(encoding="utf-8"))
    whole = isinstance(blocks, dict) and "names" in blocks  # else the manifest does not follow its contract
    manifest["privacy"]["blocks"] = {**manifest["privacy"]["blocks"], **blocks} if whole else blocks
    restate(oldest, manifest)
    sentence = "the blocks in its manifest" if whole else "blocks.* in manifest"
    with pytest.raises(UsageError, match=rf"{oldest.name} is damaged: .*{sentence}"):
        open_series(folder)


def test_released_days_can_be_divided_at_will(tmp_path: Path) -> None:
    days = "\n  day: {type: date, min: 2024-01-01, max: 2024-12-31, every: week}"
    folder = make_series(tmp_path, epsilon=EXACT, months=(2, 3), days=days)
    frame = answer(folder, "select date_trunc('month', day) as month, count(*) as n from release group by 1")
    assert frame["month"].tolist() == [date(2024, 2, 1), date(2024, 3, 1)]
    both = answer(folder, "select count(*) as n from release where day >= '2024-02-12' and day < '2024-03-11'")
    table = truth(2, 3)
    expected = ((table["day"] >= date(2024, 2, 12)) & (table["day"] < date(2024, 3, 11))).sum()
    assert both["n"][0] == pytest.approx(expected, abs=5)


def test_intervals_of_a_sum_contain_the_truth_although_structure_that_was_never_measured_adds_up(
    tmp_path: Path,
) -> None:
    months = (1, 2, 3)
    opened = open_series(make_series(tmp_path, epsilon=USUAL, months=months))
    assert isinstance(opened, Series)
    alone = [open_release(member.folder) for member in reversed(opened.members)]
    total = summed_release(alone)
    narrow = replace(total, manifest={**total.manifest, "parts": None})  # as if the sum were a release of one run
    covered, control = (_covered(release, truth(*months)) for release in (total, narrow))
    # The noise is seeded. One series alone covers 0.86 to 1, since its counts share their noise: benchmarks.series measures several.
    assert np.mean(covered) > 0.9
    assert np.mean(control) < np.mean(covered) - 0.02


def _covered(release: Release, table: pd.DataFrame) -> list[bool]:
    """Return whether each interval of many counts contains the truth."""
    covered: list[bool] = []
    values = {"ward": ["a", "b", "c"], "smoker": [False, True], "age": list(range(0, 60, 10))}
    for keys in (("ward",), ("smoker",), ("ward", "smoker"), ("ward", "age"), ("ward", "smoker", "age")):
        named = ", ".join("bin(age) as age" if key == "age" else key for key in keys)
        numbers = ", ".join(map(str, range(1, len(keys) + 1)))
        frame = answer(release, f"select {named}, count(*) as n from release group by {numbers}")
        groups = [table["age"] // 10 * 10 if key == "age" else table[key] for key in keys]
        counts = table.groupby(groups).size()
        expected = [
            float(counts.get(group if len(keys) > 1 else group[0], 0))
            for group in product(*(values[key] for key in keys))
        ]
        covered += ((frame["n_low"] - 1e-6 <= expected) & (expected <= frame["n_high"] + 1e-6)).tolist()
    return covered


def test_blocks_are_named_in_short() -> None:
    assert named_blocks(["2024-01", "2024-02"]) == "2024-01, 2024-02"


def test_a_merged_release_is_complete_verifiable_and_names_its_parts(series: Path, tmp_path: Path) -> None:
    opened = open_series(series)
    assert opened is not None
    merged = merge(opened, tmp_path / "spring", where="day < '2024-04-01'")
    assert verify_release(merged.folder).problems == ()
    manifest = Manifest.model_validate(merged.manifest)
    assert manifest.parts is not None
    assert [part.blocks for part in manifest.parts] == [("2024-01",), ("2024-02",), ("2024-03",)]
    assert manifest.privacy.epsilon == open_release(opened.members[0].folder).manifest["privacy"]["epsilon"]
    table = truth(1, 2, 3)
    rows = pd.read_parquet(merged.folder / "data")
    assert len(rows) == pytest.approx(len(table), abs=2)
    assert (rows["ward"] == "b").sum() == pytest.approx((table["ward"] == "b").sum(), abs=3)
    question = "select ward, smoker, count(*) as n from release group by 1, 2"
    expected = table.groupby(["ward", "smoker"]).size().to_numpy()
    assert answer(merged.folder, question)["n"].tolist() == pytest.approx(expected, abs=2)


def test_the_command_line_answers_and_merges_a_series(
    series: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    question = "select count(*) as n from release where month(day) = 2"
    assert main(["answer", str(series), question, "--json"], runner=None) == 0  # type: ignore[arg-type]
    (row,) = json.loads(capsys.readouterr().out)
    assert row["n"] == pytest.approx(1500, abs=2)
    merged = ["merge", str(series), str(tmp_path / "two"), "--where", "day < '2024-03-01'", "--json"]
    assert main(merged, runner=None) == 0  # type: ignore[arg-type]
    written = json.loads(capsys.readouterr().out)
    assert written["blocks"] == ["2024-01", "2024-02"]
    assert written["guarantee"].startswith("This release is (")
    assert main(merged, runner=None) == 2  # type: ignore[arg-type]
    assert "already exists; choose a new folder" in "".join(capsys.readouterr())


def test_a_merged_release_needs_a_place_of_its_own_and_whole_blocks(series: Path, tmp_path: Path) -> None:
    opened = open_series(series)
    assert opened is not None
    for folder, where, message in (
        (series / "sum", None, "lies among the releases that are added"),
        (tmp_path, None, "already exists; choose a new folder"),
        (tmp_path / "new", "smoker", "use day alone in the condition"),
        (tmp_path / "new", "day < '2024-02-10'", "its rows cannot be divided by it"),
        (tmp_path / "new", "month(day) = 5", "there is nothing to add; use that release"),
    ):
        with pytest.raises(UsageError, match=message):
            merge(opened, folder, where=where)
    assert not (tmp_path / "new").exists()


def test_releases_are_added_if_they_have_learned_the_same_function(tmp_path: Path) -> None:
    folder = make_series(tmp_path, epsilon=EXACT, months=(1, 2), days="\nconstraints: [{depends: ward -> smoker}]")
    first, second = (open_release(folder) for folder in sorted(folder.glob("2*")))
    merged = open_release(merge(open_series(folder), tmp_path / "merged").folder)
    assert merged.universe.constraints == first.universe.constraints
    assert merged.manifest["dependencies"] == second.manifest["dependencies"]
    rows = pd.read_parquet(merged.folder / "data")
    assert len(rows) > 2900
    assert rows.groupby("ward", observed=True).smoker.nunique().max() == 1
    (learned,) = second.universe.constraints
    changed = Universe(second.universe.attributes, (replace(learned, codes=learned.codes[::-1]),))
    with pytest.raises(UsageError, match="have learned different functions for `depends`, so they cannot be added"):
        summed_release([first, replace(second, universe=changed)])


def listed(privacy: dict[str, Any]) -> list[str]:
    return [block for part in privacy["made_from"] for block in part["blocks"]]


def test_months_that_start_from_the_month_before_list_all_months_and_so_does_their_sum(tmp_path: Path) -> None:
    folder = make_series(tmp_path, epsilon=USUAL, months=(1, 2, 3), more="prior: latest\n")
    stated = [json.loads(manifest.read_text("utf-8"))["privacy"] for manifest in folder.glob("*/manifest.json")]
    months = sorted(stated, key=lambda privacy: privacy["blocks"]["first"])
    assert [listed(month) for month in months] == [
        ["2024-01"],
        ["2024-01", "2024-02"],
        ["2024-01", "2024-02", "2024-03"],
    ]
    assert len({month["epsilon"] for month in months}) == 1  # a row lies in one block, which one run has read
    assert months[1]["draws"] > months[0]["draws"]
    with chdir(tmp_path):
        verify_ledger()
    series = open_series(folder)
    assert series is not None
    releases = [open_release(member.folder) for member in reversed(series.members)]
    assert releases[-1].start.news < 1  # what March alone has learned beyond its start
    assert summed_release(releases).start.news == 1
    merge(series, tmp_path / "all")
    merge(series, tmp_path / "later", where="day >= '2024-02-01'")
    whole, later = (json.loads((tmp_path / name / "manifest.json").read_text("utf-8")) for name in ("all", "later"))
    for merged in (whole["privacy"], later["privacy"]):  # February goes back to January, which is no part of `later`
        assert listed(merged) == ["2024-01", "2024-02", "2024-03"]
        assert (merged["epsilon"], merged["draws"]) == (months[0]["epsilon"], months[2]["draws"])
    Manifest.model_validate(later)
    assert not verify_release(tmp_path / "later").problems


def test_releases_that_count_different_numbers_of_rows_of_a_unit_are_no_series_to_compare() -> None:
    universe = Universe({"smoker": Boolean()})
    blocks = [TimeBlock(month, late=False, name=f"2024-{month:02}") for month in (1, 2)]
    for limits, warned in (((4, 4), False), ((1, 64), True)):
        members = [
            Member(Path(block.name), universe, (block,), limit) for block, limit in zip(blocks, limits, strict=True)
        ]
        warnings = Choice(tuple(members), (), ()).warnings(so="")
        assert ["at most 1 of the rows of a unit, others up to 64" in warning for warning in warnings] == [
            True
        ] * warned


def merging_release(name: str, merged: list[int]) -> Release:
    """A release that has measured two columns together, the first with merged cells. Its noise is so large that the model ignores most of it."""
    resolutions = Resolutions((4, 2))
    coarser = resolutions.coarsen(0, merged)
    universe = Universe({"ward": Categorical(("a", "b", "c", "d")), "smoker": Boolean()})
    related = np.array([[900, 100], [100, 900]])
    measured = (
        Measurement("one-way/00/measure", (0,), None, np.array([500, 500, 500, 500]), 5.0),
        Measurement("one-way/01/measure", (1,), None, np.array([1000, 1000]), 5.0),
        Measurement("round-001/measure", (1, coarser), None, related.T, 2000.0),
    )
    manifest = {"dataset": "visits", "release": name, "strategy": "adaptive", "discovered": [], "files": []}
    spec = {"privacy": {"delta": 1e-9}}
    return Release(Path(name), {**manifest, "spec": spec}, universe, resolutions, measured)


def test_counts_with_other_cells_merged_are_added_as_measured_and_not_as_the_model_has_smoothed_them() -> None:
    first, last = merging_release("first", [0, 0, 1, 1]), merging_release("last", [0, 1, 1, 1])
    total = summed_release([first, last])
    (counts,) = (measured.values for measured in total.measurements if len(measured.axes) == 2)
    smoothed = first.model.marginal((0, 1))
    assert np.abs(smoothed - 250).max() < 100  # the model takes the relation for noise
    # Of ward a, the first release knows what it has measured in a and b together, and divides that equally.
    assert counts.tolist() == pytest.approx(np.array([[900 + 450, 100 + 550], [100 + 50, 900 + 950]]), abs=3)

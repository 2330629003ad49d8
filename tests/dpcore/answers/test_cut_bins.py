"""Questions that cut bins of dates and times, of which only the first day or moment is released."""

import pandas as pd
import pytest

from dpcore import answer
from dpcore.answers import ensemble
from dpcore.answers.release import Release
from tests.dpcore.answers.releases import table

CUT = [
    "born between '2025-03-10' and '2025-03-20'",
    "born >= '2025-03-10' and born < '2025-05-25'",  # more days than the bins that begin between the ends
    "born = '2025-07-04'",
    "born in ('2025-07-04', '2025-08-17')",
    "dayofweek(born) = 1",
    "seen >= '2025-01-02 03:15:00' and seen < '2025-01-02 03:45:00'",
]
WHOLE = [
    "born >= '2025-03-01' and born < '2025-05-01'",
    "born between '2025-03-01' and '2025-03-31'",
    "born = '2025-07-01'",
    "born <> '2025-07-01'",
    "month(born) in (4, 5)",
    "seen >= '2025-01-02 03:00:00' and seen < '2025-01-02 05:00:00'",
]


def truth(where: str) -> pd.DataFrame:
    """Return the rows of the table that satisfy a condition. A first day alone stands for its month, as in the released rows."""
    frame = table(4000, seed=1)
    born, seen = frame["born"], frame["seen"]
    day = born.dt.strftime("%Y-%m-%d")
    kept = {
        CUT[0]: (day >= "2025-03-10") & (day <= "2025-03-20"),
        CUT[1]: (day >= "2025-03-10") & (day < "2025-05-25"),
        CUT[2]: day == "2025-07-04",
        CUT[3]: day.isin(["2025-07-04", "2025-08-17"]),
        CUT[4]: born.dt.day_of_week == 0,
        CUT[5]: (seen >= "2025-01-02 03:15:00") & (seen < "2025-01-02 03:45:00"),
        WHOLE[0]: (day >= "2025-03") & (day < "2025-05"),
        WHOLE[1]: day.str.startswith("2025-03"),
        WHOLE[2]: day.str.startswith("2025-07"),
        WHOLE[3]: born.notna() & ~day.str.startswith("2025-07"),
        WHOLE[4]: born.dt.month.isin([4, 5]),
        WHOLE[5]: (seen >= "2025-01-02 03:00:00") & (seen < "2025-01-02 05:00:00"),
    }
    return frame[kept[where].fillna(value=False).astype(bool)]


def asked(release: Release, where: str) -> pd.Series:
    question = f"select count(*) as n, sum(children) as children, count(*) / 4000 as share from release where {where}"
    return answer(release, question).iloc[0]


@pytest.mark.parametrize("where", CUT)
def test_intervals_include_all_rows_of_a_bin_that_is_cut(
    kinds: Release, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, rows = asked(kinds, where), truth(where)
    assert found["n_low"] <= len(rows) <= found["n_high"]
    assert found["share_low"] <= len(rows) / 4000 <= found["share_high"]
    assert found["children_low"] <= rows["children"].sum() <= found["children_high"]
    monkeypatch.setattr(ensemble, "cuts_bins", lambda merging, axis: False)
    without = asked(kinds, where)
    assert not without["n_low"] <= len(rows) <= without["n_high"]
    assert without["n"] == found["n"]


@pytest.mark.parametrize("where", WHOLE)
def test_whole_bins_and_bins_named_by_their_first_day_have_the_usual_intervals(
    kinds: Release, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, rows = asked(kinds, where), truth(where)
    assert found["n_low"] - 2 <= len(rows) <= found["n_high"] + 2
    assert found["n_basis"] == "measured"
    monkeypatch.setattr(ensemble, "cuts_bins", lambda merging, axis: False)
    assert asked(kinds, where).equals(found)


def test_a_group_of_a_period_that_bins_do_not_have_may_be_empty_or_have_all_rows_of_its_bins(kinds: Release) -> None:
    found = answer(kinds, "select dayofweek(born) as day, count(*) as n from release where born is not null group by 1")
    born = table(4000, seed=1)["born"].dropna()
    true = ((born.dt.day_of_week + 1) % 7).value_counts()
    assert (found["n_low"] == 0).all()
    assert all(row.n_low <= true[row.day] <= row.n_high for row in found.itertuples())
    assert found["n_high"].max() < 1.05 * len(born)


def test_rows_that_count_on_every_day_of_a_bin_are_certain_and_the_others_are_not(kinds: Release) -> None:
    few, july = asked(kinds, "born = '2025-07-01' and children < 2"), asked(kinds, "born = '2025-07-01'")
    assert few["n"] < 0.7 * july["n"]
    found = asked(kinds, "born = '2025-07-04' or (born = '2025-07-01' and children < 2)")
    assert found["n"] == pytest.approx(few["n"])
    assert found["n_low"] == pytest.approx(few["n_low"], abs=0.02 * few["n"])
    assert few["n_high"] < found["n_high"]
    assert july["n"] <= found["n_high"]

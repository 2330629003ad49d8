"""If there is a round for every pair, every pair is measured, however large the columns are: means by any small column come out right."""

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.simulated import SeededCurator, Table, release
from dpcore.marginals.workload import Workload
from dpcore.strategies import Adaptive, Column
from dpcore.strategies.grouping import spread_weights

Codes = npt.NDArray[np.int64]
ROWS = 60_000
SIZES = {"month": 12, "hour": 20, "carrier": 12, "place": 90, "miles": 80, "minutes": 90, "delay": 60}
DELAYS = tuple(float(step**2) for step in range(60))


def flights() -> Table:
    """Return made-up flights: delays are longer in the evening, in summer and with some carriers, and few are very long."""
    rng = np.random.default_rng(3)
    place = (90 * rng.beta(1, 3, ROWS)).astype(int)
    hour = np.clip(rng.normal(9, 5, ROWS), 0, 19).astype(int)
    month, carrier = rng.integers(0, 12, ROWS), np.minimum((place // 8 + rng.geometric(0.4, ROWS)) % 13, 11)
    miles = np.clip(place * 0.85 + rng.normal(0, 1, ROWS), 0, 79).astype(int)
    minutes = np.clip(miles * 1.05 + rng.normal(0, 3, ROWS), 0, 89).astype(int)
    scale = 4 + hour + 6 * (month > 5) + 2 * (carrier % 4)
    delay = np.clip(np.sqrt(rng.exponential(scale * 12)), 0, 59).astype(int)
    codes = (month, hour, carrier, place, miles, minutes, delay)
    return Table("flights", tuple(each.astype(np.int64) for each in codes), tuple(SIZES.values()))


TRUE = flights()


def released(seed: int) -> tuple[Adaptive, Table]:
    columns = [
        Column(name, size, name not in {"carrier", "place"}, values=DELAYS if name == "delay" else ())
        for name, size in SIZES.items()
    ]
    workload = Workload.all_of(attributes=len(columns), order=2)
    strategy = Adaptive(columns, workload, rounds=None, pure=False, model_mb=1.0)
    curator = SeededCurator(TRUE, epsilon=1.0, delta=1e-9, currency=None, seed=seed)
    return strategy, release(strategy, curator, seed=seed, near=workload.marginals)


def means(table: Table, by: int) -> npt.NDArray[np.float64]:
    delays = np.array(DELAYS)[table.codes[-1]]
    rows = np.bincount(table.codes[by], minlength=table.sizes[by])
    sums: npt.NDArray[np.float64] = np.bincount(table.codes[by], weights=delays, minlength=table.sizes[by])
    return sums / np.maximum(rows, 1)


def errors(made: Table) -> list[float]:
    """Return the mean error of the mean delay by month, hour and carrier, as a share of that of a table in which none of them matters."""
    overall = np.array(DELAYS)[TRUE.codes[-1]].mean()
    return [
        float(np.abs(means(made, by) - means(TRUE, by)).mean() / np.abs(overall - means(TRUE, by)).mean())
        for by in range(3)
    ]


def pairs_of(strategy: Adaptive) -> set[tuple[int, ...]]:
    column = strategy.resolutions.column
    return {tuple(sorted(map(column, each.axes))) for each in strategy.measurements if len(each.axes) == 2}


def test_every_pair_is_measured_and_means_by_small_columns_are_right() -> None:
    strategy, made = released(seed=1)
    assert strategy.rounds == len(pairs_of(strategy)) == 21
    assert max(errors(made)) < 0.5


def test_without_the_grid_means_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Adaptive, "_grid", lambda _: ())
    _, made = released(seed=1)
    assert max(errors(made)) > 0.6


def test_groups_of_equal_spread_tell_a_tail_from_the_rest() -> None:
    rows = np.array([500, 300, 150, 40, 10])
    assert spread_weights(rows, [0.0, 1.0, 2.0, 50.0, 400.0]).tolist()[-2:] == [153, 347]
    assert spread_weights(np.zeros(3, dtype=np.int64), [0.0, 1.0, 2.0]).tolist() == [0, 0, 0]
    assert spread_weights(np.array([5, 3]), [7.0]).tolist() == [0, 3]  # one value, and one cell apart

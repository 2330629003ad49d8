"""The usual error of a count: a cell of a measured marginal errs more than a count of the same size over any columns."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.coverage_releases import seeded
from dpcore.answers import replicates
from dpcore.answers.release import Release, open_release
from dpcore.answers.usual import covered_counts
from tests.dpcore.answers.releases import make_release

COLUMNS, VALUES = 7, 6
LEAST = 30  # rows of a cell
SPEC = "\n".join(
    [
        "dataset: chain",
        "privacy: {unit: row, neighbours: add-remove, epsilon: 1, delta: 1e-9}",
        "universe:",
        *(f"  c{number}: {{type: integer, min: 1, max: {VALUES}}}" for number in range(COLUMNS)),
        "workload: {marginals: 2}",
        "strategy: {name: adaptive, rounds: 8}",
    ]
)


def chain(rows: int = 8000) -> pd.DataFrame:
    """Make a table in which each column depends on the one before."""
    rng = np.random.default_rng(2)
    weights = np.arange(VALUES, 0, -1) / np.arange(VALUES, 0, -1).sum()
    columns = {"c0": rng.choice(VALUES, rows, p=weights)}
    for number in range(1, COLUMNS):
        fresh = rng.choice(VALUES, rows, p=weights)
        columns[f"c{number}"] = np.where(rng.random(rows) < 0.5, columns[f"c{number - 1}"], fresh)
    return pd.DataFrame(columns) + 1


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release with the same noise in every run of the tests, and with as many replicates as users get."""
    with pytest.MonkeyPatch.context() as patch, seeded(1):
        patch.setattr(replicates, "REPLICATES", 5)
        return open_release(make_release(tmp_path_factory.mktemp("chain"), SPEC, frame=chain()))


def test_the_usual_error_of_measured_cells_is_theirs_and_that_of_any_counts_is_not(release: Release) -> None:
    uncertainty = release.uncertainty
    assert uncertainty is not None
    pairs = [measured for measured in release.measurements if measured.cell is None and len(measured.axes) == 2]
    assert len(pairs) >= 4
    models = [release.assigned(fit) for fit in (uncertainty.pilot, *uncertainty.replicates)]
    measured, of_any = [], []
    for pair in pairs:
        pilot, *others = (model.marginal(pair.axes) for model in models)
        squares = np.mean([(counts - pilot) ** 2 for counts in others], axis=0)
        some = pilot >= LEAST
        variances = np.full(some.sum(), pair.noise**2)
        measured += np.log(squares[some] / uncertainty.scale.usual_measured(pilot[some], variances, columns=2)).tolist()
        of_any += np.log(squares[some] / uncertainty.scale.usual(pilot[some], columns=2)).tolist()
    assert abs(np.mean(measured)) < 0.3
    assert np.mean(of_any) > np.mean(measured) + 0.3


def test_the_variance_of_a_covered_count_combines_all_measurements_that_cover_it(release: Release) -> None:
    whole = [measured for measured in release.measurements if measured.cell is None and measured.axes]
    axes = whole[0].axes
    cell = next(
        count for count in covered_counts(whole[:1], release.model, np.random.default_rng(1)) if count.axes == axes
    )
    cells = np.prod([side.stop - side.start for side in cell.box])
    assert cell.variance == pytest.approx(cells * whole[0].noise ** 2)
    more = [measured for measured in whole if set(axes) <= set(measured.axes)]
    assert len(more) > 1  # the column alone, and pairs with it
    every = [count for count in covered_counts(more, release.model, np.random.default_rng(1)) if count.axes == axes]
    assert (
        max(count.variance / np.prod([part.stop - part.start for part in count.box]) for count in every)
        < whole[0].noise ** 2
    )

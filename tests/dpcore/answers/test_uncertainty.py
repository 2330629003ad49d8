"""What replicates need is stored compactly with a release, and restored."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dpcore.answers.release import Release, open_release
from dpcore.answers.replicates import make_uncertainty
from dpcore.answers.uncertainty import (
    FEWEST,
    Fit,
    Scale,
    Uncertainty,
    file_size,
    read_uncertainty,
    restored,
    uncertainty_table,
)
from dpcore.errors import UsageError
from dpcore.release.measured import writing_options
from tests.dpcore.answers.releases import restate


def test_a_release_is_published_with_replicates_that_its_measurements_determine(kinds: Release) -> None:
    stored, again = kinds.uncertainty, uncertainty_table(make_uncertainty(kinds), kinds.measurements)
    assert stored is not None
    assert len(stored.replicates) == 2
    assert again.equals(pq.read_table(kinds.folder / "uncertainty.parquet"))
    size = {name: (kinds.folder / f"{name}.parquet").stat().st_size for name in ("uncertainty", "measurements")}
    assert size["uncertainty"] <= 4 * size["measurements"]


def test_rounding_moves_no_count_by_more_than_a_small_part_of_its_error(kinds: Release, tmp_path: Path) -> None:
    uncertainty = make_uncertainty(kinds)
    written = uncertainty_table(uncertainty, kinds.measurements)
    pq.write_table(written, tmp_path / "file", compression="zstd", **writing_options(written))
    read = read_uncertainty(tmp_path / "file", kinds.measurements)
    assert read.scale == uncertainty.scale
    for before, after in zip(uncertainty.fits.values(), read.fits.values(), strict=True):
        exact, rounded = kinds.assigned(before), kinds.assigned(after)
        assert rounded.total == exact.total
        for axes in [(0,), (1, 4), (2, 3)]:
            moved = np.abs(rounded.marginal(axes) - exact.marginal(axes)).max()
            spread = np.abs(exact.marginal(axes) - kinds.assigned(uncertainty.pilot).marginal(axes)).max()
            assert moved <= 0.2 * spread + 0.2
    distances = [
        np.abs(kinds.assigned(replicate).marginal((0,)) - kinds.assigned(uncertainty.pilot).marginal((0,))).max()
        for replicate in uncertainty.replicates
    ]
    assert min(distances) > 0.05  # a control: replicates differ from the pilot


def test_a_file_that_would_be_too_large_has_larger_steps_or_fewer_replicates(kinds: Release) -> None:
    uncertainty = make_uncertainty(kinds)
    whole = uncertainty_table(uncertainty, kinds.measurements)
    smaller = uncertainty_table(uncertainty, kinds.measurements, most_bytes=file_size(whole) - 1)
    assert file_size(smaller) < file_size(whole)
    least = uncertainty_table(uncertainty, kinds.measurements, most_bytes=1)
    assert least.num_columns == 2 + min(FEWEST, len(uncertainty.replicates))


def test_a_damaged_file_is_refused(kinds: Release, tmp_path: Path) -> None:
    copy = shutil.copytree(kinds.folder, tmp_path / "copy")
    (copy / "uncertainty.parquet").write_bytes(b"other")
    with pytest.raises(UsageError, match="is missing, or not what was published"):
        open_release(copy).model  # noqa: B018
    with pytest.raises(UsageError, match="cannot be read"):
        read_uncertainty(copy / "uncertainty.parquet", kinds.measurements)


def test_a_release_without_the_file_is_answered_as_well(kinds: Release, tmp_path: Path) -> None:
    copy = shutil.copytree(kinds.folder, tmp_path / "copy")
    manifest = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"] = [file for file in manifest["files"] if file["path"] != "uncertainty.parquet"]
    restate(copy, manifest)
    release = open_release(copy)
    assert release.uncertainty is None
    assert np.allclose(release.model.marginal((0,)), kinds.model.marginal((0,)), atol=0.1)


def test_a_model_that_was_never_corrected_is_stored_and_restored() -> None:
    """`pmw` corrects nothing if no count is wrong by more than 2 alpha rows."""
    plain = Uncertainty(Fit(10.0, {}), Fit(11.0, {}), (Fit(12.0, {}), Fit(13.0, {})), Scale((0.0,) * 4, (0.0,) * 5))
    table = uncertainty_table(plain, ())
    assert table.num_rows == 0
    uncertainty = restored(table, ())
    assert [fit.total for fit in uncertainty.fits.values()] == [10.0, 11.0, 12.0, 13.0]
    assert all(not fit.functions for fit in uncertainty.fits.values())

"""Open a release: from its folder alone come the same universe, measurements and model as the run had."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcore.answers.release import open_release
from dpcore.errors import ReleaseDamaged, UsageError
from dpcore.models.fitting import Transcript
from dpcore.release import publishing
from dpcore.strategies import Adaptive, Mwem, Pmw, Strategy
from dpcore.universe import Boolean
from dpcore.universe.description import describe
from tests.dpcore.answers.releases import DENSE, EVERY_KIND, make_release, restate

WAYS = {
    "kinds": (EVERY_KIND, Adaptive),
    "mwem": (DENSE.replace("STRATEGY", "{name: mwem, rounds: 4}"), Mwem),
    "pmw": (DENSE.replace("STRATEGY", "{name: pmw, rounds: 20, alpha: 0.02}"), Pmw),
}
SETS = [(0,), (1, 2), (0, 2, 4)]


@pytest.fixture(params=WAYS)
def release_and_run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """A release, the strategy that made it, marginals of its last model, and the declaration."""
    spec, kind = WAYS[request.param]
    seen: dict[str, Any] = {}
    conclude, describe = kind.conclude, publishing.describe_universe

    def noted(strategy: Strategy) -> None:
        conclude(strategy)  # drawing rows afterwards normalises a dense model, which rounds its weights
        seen["strategy"] = strategy, {axes: strategy.model.marginal(axes) for axes in SETS}

    def described(declaration: Any) -> Any:
        seen["declaration"] = declaration
        return describe(declaration)

    monkeypatch.setattr(kind, "conclude", noted)
    monkeypatch.setattr(publishing, "describe_universe", described)
    return make_release(tmp_path / "run", spec, rows=1500), *seen["strategy"], seen["declaration"]


def test_a_folder_restores_the_universe_and_the_last_model_to_the_last_bit(
    release_and_run: tuple[Any, ...], tmp_path: Path
) -> None:
    folder, strategy, marginals, declaration = release_and_run
    copy = shutil.copytree(folder, tmp_path / "elsewhere" / "copy")
    shutil.rmtree(tmp_path / "run")  # only the folder is left: no spec, no ledger
    release = open_release(copy)
    assert release.universe == declaration.universe
    assert release.resolutions.shape == strategy.resolutions.shape
    learned = [measured for measured in release.measurements if measured.step != "expected-total"]
    assert [measured.to_bytes() for measured in learned] == [measured.to_bytes() for measured in strategy.measurements]
    whole = release.transcript
    fitted = release.fit(whole)
    assert release.model.total == fitted.total == strategy.model.total
    for axes, expected in marginals.items():
        assert np.array_equal(fitted.marginal(axes), expected)
        assert np.allclose(release.model.marginal(axes), expected, atol=0.5)  # stored, and rounded to small steps
    if not isinstance(strategy, Pmw):  # a control: a fit of fewer measurements differs
        fewer = release.fit(Transcript(whole.first[:-1], whole.later[:-1]))
        assert any(
            not np.allclose(fewer.marginal(axes), fitted.marginal(axes), rtol=1e-6) for axes in [*SETS, (3,), (4,)]
        )


def test_what_is_no_release_or_is_damaged_is_refused(kinds: Any, tmp_path: Path) -> None:
    assert open_release(kinds.folder.parent).folder == kinds.folder  # the dataset's newest
    with pytest.raises(UsageError, match="name the folder of a release"):
        open_release(tmp_path)
    copy = shutil.copytree(kinds.folder, tmp_path / "copy")
    manifest = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    damaged = {
        "universe in manifest": {key: value for key, value in manifest.items() if key != "universe"},
        "measurements.parquet is missing": {**manifest, "files": []},
        "the columns in manifest": {**manifest, "universe": {"cost": {"kind": "fine number", "scale": 3}}},
        "universe.sex in manifest": {
            **manifest,
            "spec": {**manifest["spec"], "universe": {"sex": {"type": "nothing"}}},
        },
        "contradict each other": {
            **manifest,
            "universe": {**manifest["universe"], "sex": describe(Boolean())},
        },
        "is not what dpflow writes": {},
    }
    for message, content in damaged.items():
        restate(copy, content)
        with pytest.raises(ReleaseDamaged, match=message):
            open_release(copy)
    (copy / "manifest.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(ReleaseDamaged, match="is not what SHA256SUMS lists"):
        open_release(copy)
    restate(copy, manifest)
    assert open_release(copy).universe == kinds.universe
    (copy / "measurements.parquet").write_bytes(b"other")
    with pytest.raises(ReleaseDamaged, match=r"measurements\.parquet is missing, or not what was published"):
        open_release(copy)

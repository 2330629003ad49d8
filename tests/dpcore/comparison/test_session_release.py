"""A release of a session is compared with the table that the session's first run has read."""

import json
from pathlib import Path

import pytest

from dpcore.comparison.compare import compare
from dpcore.comparison.figures import buy_figures
from dpcore.errors import UsageError
from dpcore.session.session import Session
from tests.conftest import SPEC, Workspace, visits

GROUPED = "select sex, count(*) as n from release where age >= 50 and city <> 'north' group by sex"


def test_a_release_of_a_session_is_compared_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    table = visits(2000, seed=1)
    table.to_csv("visits.csv", index=False)
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.replace("rounds: 4", "rounds: 2"), encoding="utf-8")
    Workspace(tmp_path, spec).open_account(epsilon=100)
    with Session.open(spec, epsilon=4.0, first_share=0.3, session="s") as session:
        session.ask(GROUPED, within=0.6 * session.price(GROUPED, within=1e9).half_width)
        assert session.knowledge.bought
        release = session.release()["release"]
    found = json.loads(compare(release, spec).data.read_text(encoding="utf-8"))
    assert not found["changed"]
    assert found["true_rows"] == len(table)
    assert len(found["steps"]["errors"]) == 4
    with pytest.raises(UsageError, match="the table has changed since the release was made"):
        compare(release, spec, table=table.iloc[1:])
    bought = buy_figures(release, spec, epsilon=1.0, approved=False)
    assert bought.file.name.startswith(f"{Path(release).name}-figures-")

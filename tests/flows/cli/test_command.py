"""The `dpflow` command: what would be refused is refused before Prefect is started, and the rest is handed to the flow."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dpcore import cli
from dpcore.errors import UsageError
from dpcore.ledger import open_ledger
from dpcore.runs.paying import unfinished_run
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import load_spec
from dpcore.steward.approvals import require_approval
from dpcore.steward.registry import register
from flows.cli.run import run
from tests.conftest import Workspace
from tests.dpcore.runs.test_synthesis_blocks import Site, site  # noqa: F401  a fixture

Calls = list[dict[str, Any]]

OUTCOME = {
    "run": "r1",
    "release": "releases/visits/1",
    "rows": 3,
    "account": "visits",
    "currency": "pure",
    "epsilon": 1.0,
    "delta": 0.0,
    "sampler_delta": 1e-27,
    "reserved": 1.0,
    "spent": 1.0,
    "remaining": 9.0,
    "remaining_epsilon": 9.0,
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Put modules that only note down in the place of those that need Prefect; return the parameters of each call of the flow."""
    made: Calls = []

    @contextmanager
    def quiet() -> Iterator[None]:
        yield

    def synthesize(**parameters: Any) -> dict[str, Any]:
        made.append(parameters)
        return OUTCOME

    for name, function in (("flows.cli.quiet", quiet), ("flows.synthesize", synthesize)):
        module = ModuleType(name)
        setattr(module, function.__name__, function)
        monkeypatch.setitem(sys.modules, name, module)
    return made


def call(release: object, **chosen: Any) -> dict[str, Any]:
    """Return the parameters of a call that chooses nothing but these."""
    return {"release": str(release), "resume": None, "as_of": None, "approved": False} | chosen


def dpflow(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments], runner=run)


def test_a_spec_is_run_by_its_path_or_its_registered_name(workspace: Workspace, calls: Calls) -> None:
    workspace.open_account()
    register(workspace.spec, name="nightly")
    assert dpflow("run", workspace.spec) == 0
    assert dpflow("run", "nightly") == 0
    assert calls == [call(workspace.spec), call("nightly")]


def test_a_day_reaches_the_flow(site: Site, calls: Calls) -> None:  # noqa: F811  the fixture
    site.open_account()
    assert dpflow("run", site.spec, "--as-of", "2024-03-01") == 0
    assert dpflow("run", site.spec, "--as-of", "2024-01-31") == 2
    assert calls == [call(site.spec, as_of=date(2024, 3, 1))]


def test_what_would_be_refused_never_starts_the_flow(
    workspace: Workspace, calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    register(workspace.spec, name="nightly")
    for arguments, code, hint in (
        (["nightly"], 2, "dpflow ledger open"),
        (["monthly"], 2, "registered specs: nightly"),
        (["gone.yaml"], 2, "no such file"),
    ):
        assert dpflow("run", *arguments) == code
        assert hint in capsys.readouterr().err
    workspace.open_account(epsilon=0.5)
    assert dpflow("run", "nightly") == 3
    assert dpflow("run", "nightly", "--resume", "nobody") == 2
    workspace.write_spec(("epsilon: 1.0", "epsilon: 0.1"))
    capsys.readouterr()
    assert dpflow("run", "nightly") == 2
    assert "was changed since" in capsys.readouterr().err
    assert dpflow("run", workspace.spec) == 0  # the control: as a file it may be run
    assert [parameters["release"] for parameters in calls] == [str(workspace.spec)]


def test_a_plain_run_names_the_run_of_its_spec_that_was_killed(
    workspace: Workspace, calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.open_account(epsilon=1.2)
    killed = Synthesis(load_spec(workspace.spec), run_id="killed", resume=False)
    killed.reserve()
    killed.close()
    hint = (
        "run killed of this spec is not finished; if no worker is running it, resume it without a new reservation: "
        f"dpflow run {workspace.spec} --resume killed"
    )
    assert dpflow("run", workspace.spec) == 3  # the killed run holds what a new one would need
    refused = capsys.readouterr().err
    assert [line for line in refused.splitlines() if "--resume" in line] == [hint]
    assert dpflow("run", workspace.spec, "--resume", "killed") == 0
    assert "not finished" not in capsys.readouterr().err
    workspace.write_spec(("epsilon: 1.0", "epsilon: 0.1"))  # another spec, which cannot resume it
    assert dpflow("run", workspace.spec) == 0
    assert "not finished" not in capsys.readouterr().err
    assert [parameters["resume"] for parameters in calls] == ["killed", None]
    workspace.write_spec()
    (workspace.folder / "visits.csv").unlink()
    assert unfinished_run(load_spec(workspace.spec)) == "killed"  # without the table


def test_above_the_threshold_only_the_steward_runs(
    workspace: Workspace, calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.open_account()
    require_approval("visits", above=0.5, delta=1e-9, within_seconds=60)
    assert dpflow("run", "spec.yaml") == 2
    assert "run it again with --approve" in capsys.readouterr().err
    assert calls == []
    assert dpflow("run", "spec.yaml", "--approve") == 0
    assert calls == [call("spec.yaml", approved=True)]


@pytest.mark.prefect
def test_the_stewards_yes_reaches_the_flow(workspace: Workspace) -> None:
    workspace.open_account()
    require_approval("visits", above=0.5, delta=1e-9, within_seconds=60)
    register(Path("spec.yaml"), name="nightly")
    from flows.synthesize import synthesize  # noqa: PLC0415  the other tests here do without Prefect

    with pytest.raises(UsageError, match="needs the steward's approval"):
        synthesize(release="nightly")
    assert run(Path("nightly"), None, approved=True, as_of=None).account == "visits"
    with open_ledger() as ledger:
        assert len(ledger.runs("visits")) == 1

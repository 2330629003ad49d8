"""The flow on either store: the same charges, and never more runs than the cap allows."""

import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.steward.verify import verify_ledger
from flows.synthesize import synthesize
from tests.campaign import often
from tests.conftest import Workspace
from tests.flows.test_synthesize import dpflow
from tests.postgres import PostgresServer

pytestmark = pytest.mark.prefect

STORES = ["sqlite", "postgres"]
RUNS = often(3, campaign=4)


@pytest.fixture
def use_store(
    workspace: Workspace, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Let the ledger be a new one in this store."""

    def use(store: str) -> None:
        url = f"sqlite:///{workspace.folder / 'ledger.sqlite'}" if store == "sqlite" else postgres_server.new_database()
        monkeypatch.setenv("DPFLOW_LEDGER_URL", url)
        monkeypatch.setenv("DPFLOW_REGISTRY", str(workspace.folder / "registry"))

    return use


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_the_same_run_has_the_same_charges_on_either_store(
    workspace: Workspace, use_store: Callable[[str], None], delta: float
) -> None:
    spec = workspace.write_spec(("delta: 1e-9", f"delta: {delta:g}"))
    charges = []
    for store in STORES:
        shutil.rmtree(workspace.folder / "releases", ignore_errors=True)  # which would belong to the other ledger
        use_store(store)
        workspace.open_account(delta=delta)
        outcome = synthesize(str(spec))
        with open_ledger() as ledger:
            charges.append([(done.step, done.amount, done.mechanism) for done in ledger.transcript(outcome["run"])])
            assert ledger.run(outcome["run"]).spent == sum(amount for _, amount, _ in charges[-1])
        assert verify_ledger().manifests == 1
    assert charges[0] == charges[1] != []


def _ended(run: subprocess.Popen[str]) -> tuple[int, str]:
    errors = run.communicate()[1]
    return run.returncode, errors


@pytest.mark.campaign
@pytest.mark.parametrize("store", often(["postgres"], campaign=STORES))
def test_of_several_runs_at_once_as_many_complete_as_the_cap_allows(
    workspace: Workspace,
    prefect_server: str,
    use_store: Callable[[str], None],
    store: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Clients at once may be more than Prefect's server on SQLite answers at the first attempt.
    monkeypatch.setenv("PREFECT_CLIENT_MAX_RETRIES", "10")
    use_store(store)
    _, each = budget_of(1.0, delta=1e-9)
    with open_ledger(create=True) as ledger:
        ledger.open_account(
            "visits",
            currency=Currency.ZCDP,
            cap=2 * each + each // 2,
            epsilon=3.0,
            delta=1e-9,
            unit="person",
            neighbours=Neighbours.ADD_REMOVE,
        )
    with ExitStack() as running:
        runs = [running.enter_context(dpflow("run", str(workspace.spec), url=prefect_server)) for _ in range(RUNS)]
        ended = [_ended(run) for run in runs]
        for place, (code, error) in enumerate(ended):
            if code == 1 and "resume the run" in error:  # Prefect's server was too busy for it: what a user would do
                known = re.findall(r"run (\S+): reserved", error)
                resume = ["--resume", known[0]] if known else []
                again = running.enter_context(dpflow("run", str(workspace.spec), *resume, url=prefect_server))
                ended[place] = _ended(again)
    assert sorted(code for code, _ in ended) == [0] * 2 + [3] * (RUNS - 2), [
        error for code, error in ended if code not in {0, 3}
    ]
    assert all("cannot pay" in error and "remains" in error for code, error in ended if code)
    with open_ledger() as ledger:
        # A run that was refused is not in the ledger, and the data's version is recorded before the data is read.
        assert [(run.state, run.data_version is not None) for run in ledger.runs("visits")] == [("settled", True)] * 2
        assert ledger.balance("visits").spent == sum(run.spent for run in ledger.runs("visits"))
    assert verify_ledger().runs == 2

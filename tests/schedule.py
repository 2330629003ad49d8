"""In which order, and which of them together, several test processes get the files: `pytest -n 4 --dist loadfile --no-loadscope-reorder`.

Files that need the same server go to one process, which starts it once. What takes longest comes first, so that no process is left
with a long file when the others are done.
"""

import pytest

STACK = (
    "tests/flows/cli/test_serve.py",
    "tests/browser/test_other_origin.py",
    "tests/browser/test_release_in_prefect.py",
    "tests/flows/tasks/test_approval.py",
    "tests/flows/server/test_password.py",
    "tests/flows/cli/test_ui.py",
)
"""The files with tests that share one installation, started by `dpflow ui`. The last one kills its programs."""

FAULTS = (
    "tests/faults/flows/test_shared_ledger.py",
    "tests/faults/flows/test_recovery.py",
    "tests/faults/flows/test_noninterference.py",
    "tests/flows/test_synthesize.py",
    "tests/flows/test_synthesize_blocks.py",
    "tests/flows/test_whole_run.py",
    "tests/flows/test_budget.py",
    "tests/flows/test_discovery.py",
    "tests/flows/test_answer.py",
    "tests/flows/test_published.py",
    "tests/flows/pages/test_artifacts.py",
)
PARTS = (
    "tests/flows/worker/test_worker.py",
    "tests/flows/worker/test_execute.py",
    "tests/flows/deploy/test_deployments.py",
    "tests/flows/deploy/test_automations.py",
    "tests/flows/doctor/test_doctor.py",
    "tests/flows/cli/test_quiet.py",
    "tests/flows/cli/test_command.py",
    "tests/flows/server/test_app.py",
    "tests/flows/tasks/test_cluster.py",
    "tests/flows/tasks/test_guard.py",
    "tests/flows/tasks/test_private_task.py",
    "tests/flows/tasks/test_refusals.py",
    "tests/flows/test_budgeted_tasks.py",
    "tests/flows/test_budget_page.py",
    "tests/benchmarks/test_overhead.py",
)
"""The files with tests that share one quiet Prefect server, in two halves."""

TUTORIAL = ("tests/docs/test_tutorial.py", "tests/docs/test_readme.py")
SAMPLE = ("tests/docs/test_notebook.py", "tests/data/test_sample_release.py")
"""The files with tests that share a release of the sample table."""

LONGEST = (
    *STACK,
    *FAULTS,
    *PARTS,
    # The next three are given out at once, to wait behind the first three: short ones.
    "tests/dpcore/runs/test_person_level.py",
    *SAMPLE,
    "tests/dpcore/ledger/test_tampering.py",
    # Three minutes of computing, and one and a half.
    "tests/power/test_6_noninterference.py",
    "tests/dpcore/audit/test_whole_run.py",
    *TUTORIAL,
    "tests/faults/flows/test_canary.py",
    "tests/dpcore/runs/test_synthesis.py",
    "tests/faults/test_soak.py",
    "tests/faults/test_ledger_faults.py",
    "tests/dpcore/tables/sources/test_one_record.py",
    "tests/power/test_2_mechanisms.py",
    "tests/dpcore/ledger/test_model.py",
    "tests/dpcore/tables/cluster/test_cluster.py",
    "tests/dpcore/ledger/test_catalogue.py",
    "tests/dpcore/ledger/test_postgres.py",
    "tests/docs/test_site.py",
    "tests/browser/test_earlier_program.py",
    "tests/dpcore/strategies/test_adaptive_edges.py",
    "tests/dpcore/runs/test_synthesis_adaptive_edges.py",
)
GROUPS = (STACK, FAULTS, PARTS, TUTORIAL, SAMPLE)
TOGETHER = {file: group for group in GROUPS for file in group}


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; within a file, and among the others, the order stays."""
    places = {file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(file_of(item.nodeid), len(places)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Let files that belong together count as one file."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415  only where several processes test

    if config.getvalue("dist") != "loadfile":
        return None

    class Together(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = file_of(nodeid)
            return TOGETHER.get(file, (file,))[0]

    return Together(config, log)

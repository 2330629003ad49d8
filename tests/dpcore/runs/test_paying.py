"""The account that pays for a spec: how to open it, and what to do if it has other terms."""

import shlex
from datetime import date

import pytest

from dpcore import cli, load_spec
from dpcore.errors import NoLedger, UsageError
from dpcore.ledger import open_ledger
from dpcore.runs.paying import ledger_of, paying_account
from dpcore.runs.planning.plan import plan_run
from tests.conftest import Workspace

BLOCKS = ("strategy:", "blocks: {column: day, every: month, start: 2024-01-01}\nstrategy:")
REPLACED = ("neighbours: add-remove", "neighbours: replace-one")


def run_pasted(message: str) -> int:
    """Run the command that a message ends with, or has before its next semicolon."""
    command = message[message.index("dpflow ledger open") :].partition(";")[0]
    _, *arguments = shlex.split(command)
    return cli.main(arguments, runner=lambda *_, **__: pytest.fail("nothing is to be run"))


@pytest.mark.parametrize("changes", [(), (("delta: 1e-9", "delta: 0"),), (BLOCKS,), (BLOCKS, REPLACED)])
def test_the_command_in_the_error_opens_an_account_that_pays_for_one_run(
    workspace: Workspace, changes: tuple[tuple[str, str], ...]
) -> None:
    declaration = load_spec(workspace.write_spec(*changes))
    with pytest.raises(NoLedger) as missing:
        ledger_of(declaration)
    assert run_pasted(str(missing.value)) == 0
    planned = plan_run(declaration, rows=None, as_of=date(2024, 3, 1) if BLOCKS in changes else None).account
    assert planned.missing is None
    assert planned.refused is None


def test_an_account_that_is_missing_in_a_ledger_is_opened_likewise(workspace: Workspace) -> None:
    workspace.open_account()
    declaration = load_spec(workspace.write_spec(("dataset: visits", "dataset: others")))
    with open_ledger() as ledger, pytest.raises(UsageError, match="known accounts: visits") as missing:
        paying_account(ledger, declaration)
    assert run_pasted(str(missing.value)) == 0
    assert plan_run(declaration, rows=None).account.missing is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            ("unit: person, max_rows_per_unit: 2", "unit: row"),
            "says `unit: row`, but account visits was opened with person",
        ),
        (REPLACED, "says `neighbours: replace-one`, but account visits was opened with add-remove"),
        (("delta: 1e-9", "delta: 0"), "says `delta: 0`, but account visits is kept in zcdp"),
        (BLOCKS, "divides the table by month of day, but account visits is kept without blocks"),
    ],
)
def test_a_spec_with_other_terms_is_told_to_open_an_account_with_a_free_name(
    workspace: Workspace, change: tuple[str, str], told: str
) -> None:
    workspace.open_account()
    declaration = load_spec(workspace.write_spec(change))
    with (
        open_ledger() as ledger,
        pytest.raises(UsageError, match=rf"the spec {told}.*; an account's terms are fixed") as other,
    ):
        paying_account(ledger, declaration)
    assert "write `dataset: visits-2` into it" in str(other.value)
    assert run_pasted(str(other.value)) == 0
    renamed = load_spec(workspace.write_spec(change, ("dataset: visits", "dataset: visits-2")))
    with open_ledger() as ledger:
        assert paying_account(ledger, renamed).name == "visits-2"

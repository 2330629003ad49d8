"""Whether a ledger's books say what the model says."""

from datetime import datetime

from dpcore.ledger import Balance, Ledger, Run
from tests.dpcore.ledger.model import PlainLedger
from tests.dpcore.ledger.plain import PlainRun


def assert_agrees(ledger: Ledger, model: PlainLedger, name: str) -> dict[str, int]:
    """An account's balances, allowances and runs are the model's; return what each of its blocks has spent."""
    plain, plain_runs, blocks = model.accounts[name], model.runs_of(name), ledger.blocks(name)
    with ledger.reading() as rows:
        allowances, runs = rows.allowances(name), rows.runs(name)
    assert {block.name: block.state == "sealed" for block, _ in blocks} == plain.sealed
    for block, balance in blocks:
        used, spent = model.used(name, block.name), model.spent(name, block.name)
        assert balance == Balance(plain.cap, spent=spent, reserved=used - spent)
        assert block.used == used <= plain.cap == block.cap
    with ledger.reading() as rows:
        account, held = rows.account(name), sum(run.remaining for run in runs)
    used_across = 0 if plain.across is None else model.used_across(name)
    assert (account.across, account.across_used) == (plain.across, used_across)
    assert plain.across is None or ledger.across(name) == Balance(plain.across, used_across - held, held)
    assert {(allowance.kind, allowance.name): allowance.cap for allowance in allowances} == plain.allowed
    for allowance in allowances:
        assert allowance.used == model.used_by(name, allowance.kind, allowance.name) <= allowance.cap
    assert [run.id for run in runs] == list(plain_runs)
    for run in runs:
        _assert_same(run, plain_runs[run.id])
    return {block.name: balance.spent for block, balance in blocks}


def _assert_same(run: Run, plain: PlainRun) -> None:
    asked = plain.request
    assert (run.reserved, run.claim) == (asked["amount"], asked["claim"])
    assert (run.analyst, run.purpose) == (asked["analyst"], asked["purpose"])
    assert (run.state, run.spent) == (plain.state, plain.charged)
    assert (run.data_version, run.release) == (plain.version, plain.release)
    assert datetime.fromisoformat(run.opened_at) == plain.began.replace(second=0, microsecond=0)
    assert (run.fence, run.holder, run.lease_seconds) == (plain.fence, plain.holder, plain.seconds)


def assert_same_terms(ledger: Ledger, model: PlainLedger, name: str) -> None:
    """An account's terms and its balance, which is that of its most used block, are the model's."""
    plain, terms = model.accounts[name], ledger.account(name)
    assert (terms.currency, terms.neighbours, terms.blocks_by) == (plain.currency, plain.neighbours, plain.blocks_by)
    assert (terms.cap, terms.epsilon, terms.state) == (plain.cap, plain.epsilon, "closed" if plain.closed else "open")
    assert ledger.balance(name).used == max((model.used(name, block) for block in plain.sealed), default=0)


def assert_reads_back(ledger: Ledger, run_id: str, plain: PlainRun) -> None:
    """Everything that a run committed is there, once, in the order of commitment, and nothing else is."""
    transcript = [(operation.step, operation.output) for operation in ledger.transcript(run_id)]
    assert transcript == list(plain.outputs.items())
    for step in plain.prices:
        operation = ledger.operation(run_id, step)
        assert (operation and operation.output) == plain.outputs.get(step)
    assert frozenset(ledger.blocks_of(run_id)) == plain.blocks

"""Errors: each has its exit code, and survives the way between processes."""

import pickle

from dpcore import errors


def test_every_kind_has_the_exit_code_that_the_readme_states() -> None:
    codes = {
        kind.__name__: kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert {name for name, code in codes.items() if code == 2} == {
        "BlocksCovered",
        "NoLedger",
        "RunHeld",
        "SpecError",
        "TableChanged",
        "UsageError",
    }
    assert {name for name, code in codes.items() if code == 3} == {"BudgetRefused"}
    assert {name for name, code in codes.items() if code == 4} == {"LedgerDamaged"}
    assert set(codes.values()) == {1, 2, 3, 4}


def test_a_refusal_keeps_its_numbers_when_it_is_pickled() -> None:
    refusal = pickle.loads(pickle.dumps(errors.BudgetRefused("too little", requested=5, remaining=2)))  # noqa: S301  our own
    assert (str(refusal), refusal.requested, refusal.remaining, refusal.difference) == ("too little", 5, 2, 3)

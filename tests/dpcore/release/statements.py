"""Privacy statements of releases that never were."""

from typing import Any

from dpcore.ledger import WHOLE
from dpcore.release.statement import Bookkeeping, StatedPart, Statement


def part(run: str = "5f0c2ab1", **changes: Any) -> StatedPart:
    """Return a run that a release is made from."""
    terms = {
        "amount": 14_973_100_000,
        "fixed": 9,
        "blocks": (WHOLE,),
        "delta": 1e-9,
        "draws": 100,
        "max_rows_per_unit": 2,
    }
    return StatedPart(run, None, **(terms | changes))


def statement(**changes: Any) -> Statement:
    """Return the statement of one run in zCDP about persons, with changes."""
    terms: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-9,
        "sampler_delta": 7e-27,
        "draws": 1_000_000,
        "accounting": "zero-concentrated differential privacy",
        "rho": 0.0149731,
        "bookkeeping": Bookkeeping("rho", reserved=0.0149731, spent=0.0101),
        "unit": "person",
        "max_rows_per_unit": 2,
        "neighbours": "add-remove",
        "account": "visits",
        "run": "5f0c2ab1",
        "ledger": "1" * 64,
        "ledger_head": "2" * 64,
        "spec_sha256": "3" * 64,
        "versions": {"dpflow": "0.1.0"},
        "made_from": (part(),),
        "max_row_weight": 1,
        "reservation": 9,
        **dict.fromkeys(("mu", "in_one_block", "blocks", "weight", "chosen_limit")),
    }
    return Statement(**(terms | changes))

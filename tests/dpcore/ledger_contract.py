"""What every store of a ledger must do: a store's test class inherits this and says where a new one lies."""

from tests.dpcore.ledger_accounts import LedgerAccounts
from tests.dpcore.ledger_across import LedgerAcrossBlocks
from tests.dpcore.ledger_allowances import LedgerAllowances
from tests.dpcore.ledger_blocks import LedgerBlocks
from tests.dpcore.ledger_leases import LedgerLeases
from tests.dpcore.ledger_outputs import LedgerOutputs
from tests.dpcore.ledger_runs import LedgerRuns
from tests.dpcore.ledger_stress import LedgerStress


class LedgerContract(
    LedgerAccounts,
    LedgerRuns,
    LedgerLeases,
    LedgerBlocks,
    LedgerAcrossBlocks,
    LedgerAllowances,
    LedgerOutputs,
    LedgerStress,
):
    """Inherit it, and give it `new_url` and `dump`; see `ledger_store.py`."""

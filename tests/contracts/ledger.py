"""What every store of a ledger must do: a store's test class inherits this and says where a new one lies."""

from tests.contracts.ledger_accounts import LedgerAccounts
from tests.contracts.ledger_across import LedgerAcrossBlocks
from tests.contracts.ledger_allowances import LedgerAllowances
from tests.contracts.ledger_blocks import LedgerBlocks
from tests.contracts.ledger_leases import LedgerLeases
from tests.contracts.ledger_outputs import LedgerOutputs
from tests.contracts.ledger_runs import LedgerRuns
from tests.contracts.ledger_shares import LedgerShares
from tests.dpcore.ledger.stress import LedgerStress


class LedgerContract(
    LedgerAccounts,
    LedgerRuns,
    LedgerLeases,
    LedgerBlocks,
    LedgerAcrossBlocks,
    LedgerAllowances,
    LedgerShares,
    LedgerOutputs,
    LedgerStress,
):
    """Inherit it, and give it `new_url` and `dump`; see `ledger_store.py`."""

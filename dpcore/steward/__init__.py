"""What a steward decides and checks: registered specs, approvals, the inventory of private files, and verification of the ledger."""

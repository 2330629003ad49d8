"""The steward's tools: the registry of specs, approvals, the inventory of private files, and verification of the ledger."""

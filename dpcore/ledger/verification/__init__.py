"""Verify a ledger: its hash chain, every row that follows from it, and the prices."""

from dpcore.ledger.verification.check import Price, Verified, verify

__all__ = ["Price", "Verified", "verify"]

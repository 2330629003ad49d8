"""Whether a ledger is whole: the chain, all that follows from it, and the prices."""

from dpcore.ledger.verification.check import Price, Verified, verify

__all__ = ["Price", "Verified", "verify"]

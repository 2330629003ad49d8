"""Whom a release protects and what that costs: neighbours, units, sensitivities, and the accounting of privacy loss."""

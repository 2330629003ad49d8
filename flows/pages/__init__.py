"""Artifacts in the Prefect UI, the pages of runs and accounts, and events about budgets."""

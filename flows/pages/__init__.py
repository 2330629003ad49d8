"""What the Prefect UI shows: artifacts, pages of runs and accounts, and events about budgets."""

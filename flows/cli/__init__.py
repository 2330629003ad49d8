"""The `dpflow` command with the verbs that need Prefect."""

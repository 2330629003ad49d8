"""Deploy to a Prefect server: deployments, automations and the work pool."""

"""What is deployed to a Prefect server: deployments, automations and the work pool."""

"""Our Prefect worker, and the process that executes one run."""

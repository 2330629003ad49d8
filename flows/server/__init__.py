"""The Prefect server that dpflow starts on this machine: gate, password, connection and background processes."""

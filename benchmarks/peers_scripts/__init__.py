"""Scripts that run inside a peer's own environment and import nothing of ours but each other."""

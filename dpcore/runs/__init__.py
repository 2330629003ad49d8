"""A run from its spec to a release: plan, reservation, discovery and synthesis."""

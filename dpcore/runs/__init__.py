"""Run a spec to a release: planning, reservation, discovery and synthesis."""

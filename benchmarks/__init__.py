"""Benchmarks of speed and accuracy, each a module to run: `python -m benchmarks.dense --json`."""

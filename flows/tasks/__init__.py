"""Shared parts of the flows: the guard that keeps private values out of Prefect, approval, retries and refusals."""

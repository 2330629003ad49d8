"""The benchmark of Prefect's overhead runs on the server of the flows' tests."""

from tests.flows.conftest import _clean_home, _served, prefect_server

__all__ = ["_clean_home", "_served", "prefect_server"]

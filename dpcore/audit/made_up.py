"""Temporary ledgers and environment variables for audits on made-up data."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dpcore.ledger import Ledger, open_ledger
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Protection

ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
"""With one row per unit, no rows are dropped at random, so every random word belongs to the noise."""


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables of this process while the context is open."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def temporary_account(name: str, *, cap: int) -> Iterator[Ledger]:
    """Open an account in pure epsilon that protects `ROW`, in a temporary ledger, which is this process's ledger meanwhile."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'ledger.sqlite')}"
        with environment(DPFLOW_LEDGER_URL=url), open_ledger(url, create=True) as ledger:
            ledger.open_account(
                name,
                currency=Currency.PURE,
                cap=cap,
                epsilon=cap / AMOUNT_OF_ONE,
                delta=0.0,
                unit=ROW.unit,
                neighbours=ROW.neighbours,
            )
            yield ledger

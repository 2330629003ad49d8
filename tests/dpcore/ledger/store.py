"""Where the contract's tests find a ledger: each store says how one is made and how all of it is read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpcore.errors import DpflowError
from dpcore.ledger import Ledger, open_ledger
from tests.dpcore.ledger.fixtures import opened


class LedgerStoreTests:
    """The fixtures of the contract; a store's test class gives it `new_url` and `dump`."""

    @pytest.fixture
    def new_url(self, tmp_path: Path) -> Callable[[], str]:
        """Return a function to a place without accounts; a test may use two of them at a time."""
        raise NotImplementedError

    def dump(self, url: str) -> list[str]:
        """Return all rows of all tables as text."""
        raise NotImplementedError

    @pytest.fixture
    def url(self, new_url: Callable[[], str]) -> str:
        return new_url()

    @pytest.fixture
    def ledger(self, url: str) -> Iterator[Ledger]:
        with open_ledger(url, create=True) as ledger:
            opened(ledger)
            yield ledger

    @contextmanager
    def unchanged(self, url: str) -> Iterator[None]:
        before = self.dump(url)
        yield
        assert self.dump(url) == before

    @contextmanager
    def refused(self, url: str, wanted: type[DpflowError], match: str) -> Iterator[pytest.ExceptionInfo[DpflowError]]:
        """Expect exactly this error, and no change of any row."""
        with self.unchanged(url):
            with pytest.raises(wanted, match=match) as told:
                yield told
            assert type(told.value) is wanted

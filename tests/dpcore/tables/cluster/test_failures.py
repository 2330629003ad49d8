"""What is said of a failure on a cluster: our words, and not those of the error."""

import pickle
from pathlib import Path

import pytest

from dpcore.errors import SourceBroken, SourceError, StepFailed
from dpcore.tables.cluster.failures import publicly

MARKER = "Jane Doe"


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path))
    return tmp_path / "failures.log"


class KilledWorker(Exception):  # noqa: N818  as Dask's
    pass


class FutureCancelledError(Exception):
    pass


@pytest.mark.parametrize("kind", [ValueError, MemoryError, BaseException, KilledWorker, FutureCancelledError])
def test_a_foreign_error_leaves_nothing_but_its_kind(kind: type[BaseException], log: Path) -> None:
    with pytest.raises(StepFailed) as caught:
        publicly(lambda: _fail(kind), doing="counting", where="on the cluster")
    assert str(caught.value).startswith("counting failed on the cluster: ")
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert MARKER.encode() not in pickle.dumps(caught.value)
    assert MARKER in log.read_text()


@pytest.mark.parametrize("kind", [SourceError, SourceBroken])
def test_whether_values_may_have_decided_is_known_in_other_processes_too(kind: type[SourceError]) -> None:
    def fail() -> None:
        raise kind("the query fails")

    with pytest.raises(SourceError) as caught:
        publicly(fail, doing="reading", where="on a worker")
    there = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  our own
    assert (type(there), there.args) == (kind, ("the query fails",))


def test_an_error_of_ours_keeps_its_words_and_loses_its_company(log: Path) -> None:
    def fail() -> None:
        try:
            _fail(ValueError)
        except ValueError as error:
            ours = SourceError("visits.csv is damaged")
            ours.add_note(MARKER)
            raise ours from error

    with pytest.raises(SourceError, match=r"^visits.csv is damaged$") as caught:
        publicly(fail, doing="reading", where="on a worker")
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert not hasattr(caught.value, "__notes__")


def test_being_ended_from_outside_is_no_failure(log: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        publicly(lambda: _fail(KeyboardInterrupt), doing="reading", where="on a worker")
    assert not log.exists()


def _fail(kind: type[BaseException]) -> None:
    raise kind(MARKER)

"""Odd questions at the library and at the command line: each gets an answer or a refusal, and nothing is unexpected."""

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path

import pytest

from dpcore import answer
from dpcore.answers.answer import plain_rows
from dpcore.answers.release import Release, open_release
from dpcore.answers.sql import statement, terms
from dpcore.cli.main import main
from dpcore.errors import DpflowError
from tests.dpcore.answers.malformed import odd
from tests.dpcore.answers.releases import DENSE, make_release

COLUMNS = {"category": "city", "number": "income", "flag": "smoker"}
FIXED = 20


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    spec = DENSE.replace("STRATEGY", "{name: mwem, rounds: 2}")
    return open_release(make_release(tmp_path_factory.mktemp("odd"), spec, rows=300))


def outcomes(release: Release, questions: Iterable[str]) -> Counter[str]:
    """Count answers, refusals, and the names of all other errors. An answer or a refusal that cannot be sent as JSON is such an error, too."""
    counts: Counter[str] = Counter()
    for question in questions:
        try:
            try:
                sent = json.dumps(plain_rows(answer(release, question)), allow_nan=False, ensure_ascii=False)
                kind = "answer"
            except DpflowError as error:
                sent, kind = str(error), "refusal"
            sent.encode("utf-8")
        except Exception as error:  # noqa: BLE001  whatever it is
            kind = type(error).__name__
        counts[kind] += 1
    return counts


def test_odd_questions_are_answered_or_refused(release: Release) -> None:
    seen = outcomes(release, odd(120, seed=1, **COLUMNS))
    assert set(seen) == {"answer", "refusal"}
    assert min(seen.values()) > 15


def unlimited(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statement, "MOST_DEPTH", 10**9)


def any_text(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statement, "is_unicode", lambda _: True)


def infinite(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(terms, "_read_number", Fraction)


@pytest.mark.parametrize(
    ("plant", "error"),
    [(unlimited, "RecursionError"), (any_text, "UnicodeEncodeError"), (infinite, "OverflowError")],
)
def test_a_parser_without_one_of_its_bounds_is_caught(
    release: Release, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], error: str
) -> None:
    plant(monkeypatch)
    assert error in outcomes(release, odd(FIXED, seed=1, **COLUMNS))


def test_the_command_line_refuses_what_it_does_not_answer_with_a_sentence(
    release: Release, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "private"))
    codes = set()
    for question in odd(FIXED, seed=1, **COLUMNS):
        codes.add(main(["answer", str(release.folder), question, "--json"], runner=None))  # type: ignore[arg-type]
        printed = capsys.readouterr()
        assert "unexpected" not in printed.out + printed.err
    assert codes == {0, 2}
    assert not (tmp_path / "private").exists(), "a failure was written to the steward's log"
    assert main(["answer", "\udcff", "select 1"], runner=None) == 2  # type: ignore[arg-type]
    assert "argument 2 is not valid UTF-8" in capsys.readouterr().err


def test_numbers_that_are_too_large_are_null_and_warn_of_nothing(release: Release) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = answer(release, "select count(*) * 1e308 * 10 as n, count(*) + 1 as m from release")
    assert plain_rows(frame)[0]["n"] is None
    assert frame["m"][0] > 1

"""A charged look at a private table: noisy types, ranges and frequent values."""

from pathlib import Path
from typing import Any

import pytest

from dpcore import cli
from dpcore.curator.curator import Curator
from dpcore.errors import SourceBroken
from dpcore.ledger import Ledger, RunState, open_ledger
from dpcore.marginals.measurements import Measurement
from dpcore.runs.discovery import Descents
from dpcore.spec import load_spec
from dpcore.tables.histogram import Histogram

SPEC = "visits.yaml"
LOOK = ("init", "visits", "--from", "visits.csv", "--epsilon", "20")


def dpflow(*arguments: str) -> int:
    return cli.main([*arguments], runner=lambda *_, **__: pytest.fail("init runs nothing"))


def opened(unit: str, *, delta: str = "0") -> None:
    account = ("--epsilon", "50", "--delta", delta, "--unit", unit, "--neighbours", "add-remove")
    assert dpflow("ledger", "open", "visits", *account) == 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of 2,000 patients with a row each, and of one with 500 rows, all of them strange."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{place},{20 + place % 60},{'FM'[place % 2]},{3 + place % 9}/{1 + place % 28}/2025,{place % 40 / 4}\n"
        for place in range(2000)
    ]
    strange = "31337,999999,CANARY,1/1/1911,-888888.5\n"
    (tmp_path / "visits.csv").write_text("patient_id,age,sex,day,cost\n" + "".join(rows) + 500 * strange)
    return tmp_path


def runs() -> list[Any]:
    with open_ledger() as ledger:
        return list(ledger.runs("visits"))


@pytest.mark.parametrize("delta", ["0", "1e-9"])
def test_types_ranges_and_values_are_found_and_one_run_is_charged(
    folder: Path, capsys: pytest.CaptureFixture[str], delta: str
) -> None:
    opened("patient_id", delta=delta)
    assert dpflow(*LOOK, "--unit", "patient_id") == 0
    assert "Rows were read once, for epsilon 20 of account visits" in capsys.readouterr().out
    text = (folder / SPEC).read_text()
    assert "No row was read" not in text
    assert "measured in the table with noise" in text
    assert "CANARY" not in text
    assert "  age: {type: integer, min: 20, max: 79, missing: true}\n" in text
    assert "  sex: {type: categorical, values: [F, M], outside: other, missing: true}\n" in text
    assert '  day: {type: date, min: 2025-01-01, max: 2025-12-31, format: "%m/%d/%Y", missing: true}\n' in text
    assert "  cost: {type: number, min: 0, max: 9.8, step: 0.0001, missing: true}\n" in text
    assert "# patient_id: FILL_IN   # it identifies the unit" in text
    (run,) = runs()
    assert run.state is RunState.SETTLED
    assert 0 < run.spent <= run.reserved
    with open_ledger() as ledger:
        total = ledger.operation(run.id, "total")
    assert total is not None
    assert Measurement.from_bytes(total.output, step="total").values.item() == pytest.approx(2001, abs=50)
    (folder / SPEC).write_text(text.replace("max_rows_per_unit: FILL_IN", "max_rows_per_unit: 1"))
    assert load_spec(folder / SPEC).universe.names == ("age", "sex", "day", "cost")


class Uses:
    """Counts the uses of exact counts that no new charge precedes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.unpaid = self.paid = 0
        charges = [0]
        charged, marginal = Ledger.charge, Histogram.marginal

        def charging(ledger: Ledger, *arguments: Any, **more: Any) -> Any:
            charges[0] += 1
            return charged(ledger, *arguments, **more)

        def using(histogram: Histogram, axes: Any) -> Any:
            self.paid, self.unpaid = self.paid + (charges[0] > 0), self.unpaid + (charges[0] == 0)
            charges[0] = 0
            return marginal(histogram, axes)

        patch.setattr(Ledger, "charge", charging)
        patch.setattr(Histogram, "marginal", using)


def test_every_count_is_charged_before_it_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened("patient_id")
    uses = Uses(monkeypatch)
    assert dpflow(*LOOK, "--unit", "patient_id") == 0
    assert uses.unpaid == 0
    assert uses.paid >= 9  # forms, the total, ranges and texts

    def free(self: Descents, curator: Curator, descent: Any, *, axis: int, **_: Any) -> None:
        descent.take(curator._received[0].marginal((axis,)), least=1, noise=0.0)  # type: ignore[index]

    (folder / SPEC).unlink()
    monkeypatch.setattr(Descents, "_buy", free)
    dpflow(*LOOK, "--unit", "patient_id")
    assert uses.unpaid > 0  # the planted look reads values without a charge, and is caught


def test_only_columns_that_nothing_else_describes_are_bought(folder: Path) -> None:
    opened("row")
    (folder / "codebook.csv").write_text("name,min,max\nage,0,110\ncost,0,50\n")
    (folder / "public.csv").write_text("day\n1/31/2025\n")
    known = ("--from", "codebook.csv", "--like", "public.csv")
    assert dpflow(*LOOK, *known, "--unit", "row") == 0
    text = (folder / SPEC).read_text()
    assert "age: {type: integer, min: 0, max: 110" in text
    assert "sex: {type: categorical, values: [CANARY, F, M], outside: other" in text  # 500 rows, and rows are the units
    (run,) = runs()
    with open_ledger() as ledger:
        assert ledger.operation(run.id, "discover/form/01-sex/1") is not None
        assert ledger.operation(run.id, "discover/form/02-age/1") is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "--epsilon needs the protected unit"),
        (("--unit", "nobody"), "there is no column 'nobody'"),
        (("--unit", "row"), "protects patient_id"),
        (("--unit", "patient_id", "--epsilon", "1e-9"), "too small"),
        (("--unit", "patient_id", "--epsilon", "60"), "remains"),
        (("--unit", "patient_id", "--epsilon", "-1"), "epsilon"),
    ],
)
def test_a_refused_look_reads_and_spends_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], words: str
) -> None:
    opened("patient_id")
    monkeypatch.setattr("dpcore.starter.charged_look.ingest", lambda *_, **__: pytest.fail("rows were read"))
    assert dpflow(*LOOK, *more) != 0
    assert words in capsys.readouterr().err
    assert runs() == []
    assert not (folder / SPEC).exists()


def test_without_an_account_the_command_that_opens_it_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dpflow(*LOOK, "--unit", "row") != 0
    assert "dpflow ledger open visits --epsilon 10 --delta 1e-9 --unit row" in capsys.readouterr().err
    assert not (folder / ".dpflow").exists()


def test_a_look_above_the_approval_threshold_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened("row")
    assert dpflow("approval", "visits", "--above", "5") == 0
    assert dpflow(*LOOK, "--unit", "row") != 0
    assert "needs the steward's approval above epsilon 5.0" in capsys.readouterr().err
    assert runs() == []


def test_a_failure_that_rows_may_have_caused_keeps_the_reservation(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened("row")

    def broken(*_: Any, **__: Any) -> Any:
        raise SourceBroken("the table cannot be read")

    monkeypatch.setattr("dpcore.starter.charged_look.ingest", broken)
    assert dpflow(*LOOK, "--unit", "row") != 0
    (run,) = runs()
    assert run.state is RunState.OPEN
    assert f"dpflow ledger settle {run.id}" in capsys.readouterr().err

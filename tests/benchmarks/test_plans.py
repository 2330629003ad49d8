"""What `dpflow plan` expects of real tables is what a run on them then measures."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.tables import SPECS, shared_data
from dpcore import load_spec
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.runs.planning.plan import plan_run
from tests.benchmarks.test_tables import skip_without_data
from tests.dpcore.runs.planning.test_plan import measured_in_a_run
from tests.dpcore.runs.planning.test_rated import check_pairs

CASES: list[tuple[str, str, tuple[str, ...], int, dict[str, Any], str]] = [
    (
        "nist_national2019",
        "nist_national2019.parquet",
        ("SEX", "MSP", "RAC1P", "HOUSING_TYPE", "OWN_RENT", "EDU"),
        27_253,
        {"workload": {"marginals": 3}},
        "yes",
    ),
    (
        "diabetes_patients",
        "diabetes_130us.parquet",
        ("age", "time_in_hospital", "readmitted", "insulin", "num_procedures"),
        97_700,  # of 101,766: whoever has more than four is there with four
        {"workload": {"marginals": 2}, "strategy": {"name": "adaptive", "rounds": 4}},
        "perhaps",
    ),
]


@pytest.mark.parametrize(("name", "table", "columns", "rows", "parts", "measured"), CASES)
def test_a_run_on_a_real_table_has_the_noise_of_its_plan(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    name: str,
    table: str,
    columns: tuple[str, ...],
    rows: int,
    parts: dict[str, Any],
    measured: str,
) -> None:
    skip_without_data()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    written = yaml.safe_load((SPECS / f"{name}.yaml").read_text(encoding="utf-8"))
    universe = {column: written["universe"][column] for column in columns}
    written |= {"universe": universe, "source": {"path": str(shared_data() / table)}, **parts}
    Path("spec.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")
    currency, cap = budget_of(10.0, delta=1e-9, currency=Currency.GDP)
    with open_ledger(create=True) as ledger:
        ledger.open_account(
            written["dataset"],
            currency=currency,
            cap=cap,
            epsilon=10.0,
            delta=1e-9,
            unit=written["privacy"]["unit"],
            neighbours=Neighbours(written["privacy"]["neighbours"]),
        )
    units = None if written["privacy"]["unit"] == "row" else rows
    plan = plan_run(load_spec("spec.yaml"), rows=rows, units=units)
    check_pairs(plan, measured_in_a_run(Path("spec.yaml")), measured=measured)

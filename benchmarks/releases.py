"""Release every real table through the flow, from its spec to Parquet: `python -m benchmarks.releases [--only NAME] [--json]`.

Each release is made with `dpflow run` in its own folder with a new ledger: Prefect's temporary server, the whole flow, the Parquet files.
Seconds are those of the whole command; memory is that of its process, without the server.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from pyarrow import parquet

from benchmarks.tables import SPECS, shared_data

WHOLE_TABLES = ("adult", "adult_discretized", "nist_national2019", "diabetes_patients", "census_kdd", "retrosheet")
DPFLOW = (sys.executable, "-m", "flows")


def main() -> None:
    """Release the tables, and print the cost of each release."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.releases", description=__doc__)
    parser.add_argument("--only", choices=WHOLE_TABLES, help="one table; default: all")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for name in [arguments.only] if arguments.only else WHOLE_TABLES:
        result = release(name)
        print(json.dumps(result) if arguments.json else _text(result), flush=True)


def release(name: str) -> dict[str, Any]:
    """Release a table, and return its size and cost."""
    spec = yaml.safe_load((SPECS / f"{name}.yaml").read_text(encoding="utf-8"))
    file = shared_data() / Path(spec["source"]["path"]).name
    spec["source"]["path"] = str(file.resolve())
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        (base / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
        shutil.copy(SPECS / "icd9.txt", base)
        _dpflow(base, "ledger", "open", name, *_terms(spec))
        begin = time.monotonic()
        outcome, peak = _run(base)
        seconds = time.monotonic() - begin
        rows = parquet.read_table(base / outcome["release"] / "data")
    return {
        "table": name,
        "raw_rows": parquet.read_metadata(file).num_rows,
        "unit": spec["privacy"]["unit"],
        "blocks": spec.get("blocks", {}).get("every"),
        "columns": rows.num_columns,
        "rows": rows.num_rows,
        "epsilon": outcome["epsilon"],
        "seconds": seconds,
        "peak_memory_mb": peak,
    }


def _run(folder: Path) -> tuple[dict[str, Any], float]:
    """Run the flow; return its outcome, and the peak memory of its process in MB."""
    with (folder / "out").open("w+", encoding="utf-8") as out, (folder / "err").open("w+", encoding="utf-8") as err:
        command = [*DPFLOW, "run", "spec.yaml", "--json"]
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=err)  # noqa: S603  our own command
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (out, err):
            file.seek(0)
        if process.returncode:
            sys.exit(f"benchmarks: dpflow run failed:\n{err.read()}")
        return json.loads(out.read()), usage.ru_maxrss / 1024


def _terms(spec: dict[str, Any]) -> list[str]:
    privacy, blocks = spec["privacy"], spec.get("blocks")
    terms = {
        "epsilon": privacy["epsilon"],
        "delta": privacy["delta"],
        "unit": privacy["unit"],
        "neighbours": privacy["neighbours"],
    }
    if blocks:
        terms["blocks"] = f"{blocks['every']} of {blocks['column']}"
    return [part for name, value in terms.items() for part in (f"--{name}", str(value))]


def _dpflow(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*DPFLOW, *arguments], cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  our own command
    if done.returncode:
        sys.exit(f"benchmarks: dpflow {arguments[0]} failed in the release of {folder}:\n{done.stderr}")
    return done.stdout


def _text(result: dict[str, Any]) -> str:
    by = f", a budget for each {result['blocks']}" if result["blocks"] else ""
    return (
        f"{result['table']:18} {result['raw_rows']:>9,} rows x {result['columns']} columns, unit {result['unit']}{by}: {result['rows']:,} synthetic rows, "
        f"epsilon {result['epsilon']:.3g}, {result['seconds']:.0f} s, {result['peak_memory_mb']:.0f} MB at most"
    )


if __name__ == "__main__":
    main()

"""Read the results of the accuracy and peers benchmarks from their JSON files."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OURS = "dpflow"
REFERENCES = {"independent_columns": "independent columns", "bootstrap": "bootstrap"}
"""The references, which use no mechanism and no epsilon: their keys in accuracy's output, and their names in the output of peers."""


@dataclass(frozen=True)
class Result:
    """The errors of one mechanism at one epsilon, and its cost if it was measured."""

    name: str
    epsilon: float
    error: dict[int, float]
    cpu_seconds: float | None


@dataclass(frozen=True)
class Table:
    """All results on one table, and its references."""

    data: str
    results: tuple[Result, ...]
    references: dict[str, dict[int, float]]


def read_results(folder: Path) -> list[Table]:
    """Read all JSON files of a folder, and group the results by table."""
    results: dict[str, dict[tuple[str, float], Result]] = {}
    references: dict[str, dict[str, dict[int, float]]] = {}
    for path in sorted(folder.glob("*.json")):
        for data, found in _rows(json.loads(path.read_text(encoding="utf-8"))):
            if isinstance(found, dict):
                references.setdefault(data, {}).update(found)
                continue
            known = results.setdefault(data, {})
            if (found.name, found.epsilon) in known and found.name != OURS:
                sys.exit(
                    f"benchmarks: {path.name} has {found.name} on {data} at epsilon {found.epsilon:g} a second time; keep one"
                )
            # dpflow's result from accuracy comes first and has more runs; a comparison repeats it
            known.setdefault((found.name, found.epsilon), found)
    return [Table(data, tuple(each.values()), references.get(data, {})) for data, each in sorted(results.items())]


def _rows(document: dict[str, Any]) -> Iterator[tuple[str, Result | dict[str, dict[int, float]]]]:
    """Yield the results of a file, each with its table. References are mappings by name."""
    if "tables" not in document:
        data = document["data"]
        yield data, _result(OURS, document["epsilon"], document)
        yield data, {name: _error(document[key]) for key, name in REFERENCES.items() if key in document}
        return
    for table in document["tables"]:
        for row in table["compared"]:
            outcome = row["outcome"]
            if not outcome["error"]:
                continue  # it did not finish, and the reason is in the table of results
            if row["name"] in REFERENCES.values():
                yield table["data"], {row["name"]: _error(outcome["error"])}
            else:
                yield table["data"], _result(row["name"], document["epsilon"], outcome)


def _result(name: str, epsilon: float, measured: dict[str, Any]) -> Result:
    return Result(name, float(epsilon), _error(measured["error"]), measured.get("cpu_seconds"))


def _error(by_order: dict[str, float]) -> dict[int, float]:
    return {int(order): error for order, error in by_order.items()}

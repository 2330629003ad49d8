"""The coverage of all strata and of the controls, widths and costs, in words and as plots, for `benchmarks.coverage`."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage_questions import KINDS, NORMAL, TABLES, Asked, Record
from benchmarks.plots_axes import Axis, Chart

SIZES = (0, 50, 500, 5000, float("inf"))
WANTED = 0.95
MEAN_OF_NORMAL = 0.798  # the mean absolute value of a standard normal number


def summary(asked: Sequence[Asked]) -> dict[str, Any]:
    """Return the coverage of every stratum and of the controls, widths, and costs."""
    records = [record for each in asked for record in each.records]
    counts = [record for record in records if record.kind == "count"]
    return {
        "releases": [each.name | each.costs for each in asked],
        "counts": _covered(counts),
        "strata": {
            f"{key} {value}": _covered(some) | {"half_width_of_direct": _ratio(some)}
            for key, value, some in _strata(counts)
        },
        "other_numbers": {
            kind: _covered([each for each in records if each.kind == kind]) for kind in (*KINDS[1:], *TABLES)
        }
        | {
            f"{kind} of groups at full resolution": _covered([each for each in some if each.kind == kind])
            for some in [[each for each in records if each.within]]
            for kind in sorted({each.kind for each in some}, key=KINDS.index)
        },
        "half_width": float(np.mean([each.half for each in counts])),
        "half_width_of_direct": _ratio(counts),
        "error_of_direct": _ratio(counts, of=lambda each: NORMAL / MEAN_OF_NORMAL * abs(each.value - each.truth)),
        "controls": {name: _covered(counts, control=name) for name in _controls(counts)},
        "answer_cpu_ms_p95": {
            kind: float(np.quantile([ms for each in asked for ms in each.milliseconds[kind]] or [0.0], 0.95))
            for kind in KINDS
        },
    }


def _ratio(counts: Sequence[Record], *, of: Callable[[Record], float] = lambda each: each.half) -> float | None:
    """Return the mean half width of counts that measurements cover, as a share of that of their noisy sums."""
    both = [each for each in counts if each.direct is not None]
    return sum(map(of, both)) / sum(each.direct or 0.0 for each in both) if both else None


def _controls(counts: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(name for each in counts for name in each.controls))


def _strata(counts: Sequence[Record]) -> Iterator[tuple[str, object, list[Record]]]:
    keys: dict[str, Callable[[Record], Any]] = {
        "columns": lambda each: each.columns,
        "basis": lambda each: each.basis,
        "size": lambda each: next(high for high in SIZES[1:] if each.truth < high),
        "epsilon": lambda each: each.name["epsilon"],
        "strategy": lambda each: each.name["strategy"],
        "data": lambda each: each.name["data"],
    }
    for key, of in keys.items():
        for value in sorted({of(each) for each in counts}, key=lambda each: (isinstance(each, str), each)):
            yield key, value, [each for each in counts if of(each) == value]


def _covered(records: Sequence[Record], *, control: str | None = None) -> dict[str, float | int]:
    """Return the share of intervals that contain the truth, and how many there are."""
    if control is None:
        held = [each.covered for each in records]
    else:
        held = [each.controls[control] for each in records if control in each.controls]
    return {"coverage": float(np.mean(held)) if held else float("nan"), "numbers": len(held)}


def in_words(result: dict[str, Any]) -> str:
    """Return the summary as lines of text."""
    lines = [f"{len(result['releases'])} releases"]
    rows = {"all counts": result["counts"]} | result["strata"] | result["other_numbers"]
    rows |= {f"control: {name}": each for name, each in result["controls"].items()}
    for name, each in rows.items():
        ratio = each.get("half_width_of_direct")
        width = "" if ratio is None else f", half width {ratio:.2f} of the direct one"
        lines.append(f"{name:34} {each['coverage']:.3f} of {each['numbers']:,}{width}")
    ratio = result["half_width_of_direct"]
    if ratio is not None:
        lines.append(
            f"mean half width {result['half_width']:.1f} rows, {ratio:.2f} of the direct one where both exist; "
            f"no less than {result['error_of_direct']:.2f} would cover 95 % of the errors, if they were normal"
        )
    lines += [f"answer, {kind}: {ms:.0f} CPU ms (95 % quantile)" for kind, ms in result["answer_cpu_ms_p95"].items()]
    return "\n".join(lines)


def draw(asked: Sequence[Asked], folder: Path) -> None:
    """Plot the coverage of intervals and of the controls, by epsilon and by the size of counts."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = [record for each in asked for record in each.records if record.kind == "count"]
    epsilons = sorted({each.name["epsilon"] for each in counts})
    around = [epsilons[0] / 2, epsilons[-1]]  # leaves room for the name of the line at 95 %
    across = Axis.logarithmic(around, ticks=epsilons, label="epsilon")
    by_epsilon = {each: [one for one in counts if one.name["epsilon"] == each] for each in epsilons}
    _plot(by_epsilon, across, folder / "coverage-by-epsilon.svg", title="Coverage of 95 % intervals by epsilon")
    middles = {10.0 ** (power + 0.5): (10.0**power, 10.0 ** (power + 1)) for power in range(5)}
    by_size = {at: [each for each in counts if low <= each.truth < high] for at, (low, high) in middles.items()}
    by_size = {at: some for at, some in by_size.items() if some}
    ticks = [10.0**power for power in range(len(by_size) + 1)]
    across = Axis.logarithmic(ticks, ticks=ticks, label="true count")
    _plot(by_size, across, folder / "coverage-by-size.svg", title="Coverage of 95 % intervals by the true count")


def _plot(groups: dict[float, list[Record]], across: Axis, path: Path, *, title: str) -> None:
    chart = Chart(across, Axis.from_zero([1.0], label="share of intervals that contain the true count"))
    chart.reference("95 %", WANTED)
    words = []
    for number, control in enumerate([None, *_controls([each for some in groups.values() for each in some])]):
        found = {at: _covered(some, control=control)["coverage"] for at, some in groups.items()}
        points = [(at, coverage) for at, coverage in found.items() if not np.isnan(coverage)]
        chart.series(control or "dpflow", points, shape=number - 1 if number else None)
        words.append(f"{control or 'dpflow'}: " + ", ".join(f"{y:.3f} at {x:,.3g}" for x, y in points) + ".")
    path.write_text(chart.draw(title=title, words=" ".join(words)), encoding="utf-8")

"""Format the comparison: a row for each mechanism, the notes, and the ratios of error and CPU time."""

import statistics
from dataclasses import dataclass
from typing import Any

from benchmarks.peers_runs import ORDERS, Outcome

OURS = "dpflow"
HEAD = ("", "settings", "limits", "1-way", "2-way", "3-way", "CPU s", "MB", "wall s", "runs")
LEFT_ALIGNED = 3


@dataclass(frozen=True)
class Row:
    """One line: a mechanism, its settings and limits, its outcome, and how many runs the outcome is the mean of."""

    name: str
    settings: str
    limits: str
    outcome: Outcome
    runs: str = ""
    note: str = ""


def mean_row(name: str, outcomes: list[Outcome], *, settings: str, limits: str, note: str = "") -> Row:
    """Return the mean of the runs that finished. If none did, return the first run's reason."""
    finished = [each for each in outcomes if not each.reason]
    runs = f"{len(finished)}" if len(finished) == len(outcomes) else f"{len(finished)} of {len(outcomes)}"
    if not finished:
        return Row(name, settings, limits, outcomes[0], runs, note)
    whole = Outcome(
        {order: statistics.mean(each.error[order] for each in finished) for order in ORDERS},
        _mean([each.cpu_seconds for each in finished]),
        max((each.peak_memory_mb for each in finished if each.peak_memory_mb is not None), default=None),
        _mean([each.wall_seconds for each in finished]),
    )
    lost = [each.reason for each in outcomes if each.reason]
    return Row(
        name, settings, limits, whole, runs, " ".join([note, *(f"One run {reason}." for reason in lost)]).strip()
    )


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def settings_text(settings: dict[str, Any]) -> str:
    """Return the settings as text.

    >>> settings_text({"mechanism": "aim", "degree": 3})
    'degree=3'
    """
    return ", ".join(f"{key}={value}" for key, value in settings.items() if key != "mechanism") or "defaults"


def table_text(title: str, rows: list[Row]) -> str:
    """Return the table with numbered notes below it."""
    notes: list[str] = []
    lines = [HEAD]
    for row in rows:
        mark = ""
        if row.note:
            notes += [] if row.note in notes else [row.note]
            mark = f" [{notes.index(row.note) + 1}]"
        lines.append((row.name + mark, row.settings, row.limits, *_figures(row.outcome), row.runs))
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    text = [title]
    for line, reason in zip(lines, ("", *(row.outcome.reason for row in rows)), strict=True):
        cells = (
            cell.ljust(width) if place < LEFT_ALIGNED else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        text.append(f"{'  '.join(cells)}  {reason}".rstrip())
    text += [f"[{number}] {note}" for number, note in enumerate(notes, start=1)]
    return "\n".join(text)


def _figures(outcome: Outcome) -> tuple[str, ...]:
    at_least = ">" if outcome.reason else ""  # a run that was ended early had used this much by then
    return (
        *(f"{outcome.error[order]:.4f}" if outcome.error else "" for order in ORDERS),
        "" if outcome.cpu_seconds is None else f"{at_least}{outcome.cpu_seconds:,.1f}",
        "" if outcome.peak_memory_mb is None else f"{at_least}{outcome.peak_memory_mb:,.0f}",
        "" if outcome.wall_seconds is None else f"{at_least}{outcome.wall_seconds:,.1f}",
    )


def ratios(rows: list[Row], *, peers: set[str]) -> dict[str, Any] | None:
    """Return dpflow's 3-way error and CPU time divided by those of the finished peer with the least error; None without both."""
    ours = next((row.outcome for row in rows if row.name == OURS and row.outcome.error), None)
    others = [row for row in rows if row.name in peers and row.outcome.error]
    if ours is None or not others:
        return None
    best = min(others, key=lambda row: row.outcome.error[3])
    cpu = best.outcome.cpu_seconds
    return {
        "best_peer": best.name,
        "error": ours.error[3] / best.outcome.error[3],
        "cpu": ours.cpu_seconds / cpu if ours.cpu_seconds is not None and cpu else None,
    }


def ratios_text(data: str, found: dict[str, Any] | None) -> str:
    """Return the last line for a table."""
    if found is None:
        return f"{data}: no ratio, because no peer finished or {OURS} was not run"
    cpu = "unknown" if found["cpu"] is None else f"{found['cpu']:.3g}"
    return f"{data}: {OURS} over the best peer that finished, {found['best_peer']}: 3-way error {found['error']:.3g}, CPU {cpu}"

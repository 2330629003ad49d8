"""The page of a comparison: first what is off and why, then the details."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np

from dpcore.comparison.comparison import Cells, ColumnComparison, Comparison
from dpcore.comparison.errors import STEPPED_CELLS, STEPS
from dpcore.comparison.html import document
from dpcore.comparison.learning import MOST_TARGETS
from dpcore.comparison.plots import Pair, bars_plot, bars_words, pairs_plot, pairs_words
from dpcore.reporting import html
from dpcore.reporting.formatting import at_most
from dpcore.reporting.plots import Tile, percent, tiles_plot

MOST_UPRIGHT, MOST_LYING = 24, 12

REMEDIES = (
    "raise max_rows_per_unit, which also raises the noise, or accept that people with many rows count less",
    "give the run more epsilon or rounds, list the marginals that matter in the workload, or release fewer columns",
    "give the run more epsilon, or declare fewer and wider cells",
    "read figures with dpflow answer, which does not draw rows, or ask for more rows",
)
"""How to reduce what each of `STEPS` adds."""
SHORT = ("limit", "not measured", "noise", "rows")
BLURRED = 0.05
"""From this Kolmogorov-Smirnov distance on, a column is called blurred by its cells."""
BINNED = "The bins alone, without any noise, blur these columns"
BLURS = {
    Cells.TREE: (
        "At full resolution, values are spread evenly within intervals that a private tree found, and this blurs these columns",
        "give them a larger `share` of the budget, give the run more epsilon, or declare a narrower range from `min` to `max`",
    ),
    Cells.CALENDAR: (
        "Of each period only the first day or moment is released, and this alone, without any noise, blurs these columns",
        "declare a shorter `every`; or full resolution: leave `every` out for a date, and write `step` instead for a datetime",
    ),
    Cells.DISCOVER: (
        BINNED,
        "let `discover` find more `bins`; or full resolution: write `step` instead for a number, and nothing for an integer",
    ),
    Cells.WIDTH: (BINNED, "declare a smaller `width`, or leave it out for full resolution"),
    Cells.EDGES: (BINNED, "declare more `edges`, or write `min`, `max` and `step` instead for full resolution"),
    Cells.BINS: (BINNED, "declare more `bins`, or write `step` instead for full resolution"),
}
"""What the cells of columns do to values within them, by where they come from, and how to reduce it."""
SHADES = ("shade-0", "shade-1", "shade-2", "shade-3", "shade-4")


def page(comparison: Comparison) -> str:
    """Return the page as HTML."""
    title = f"Release {comparison.release} of {comparison.dataset} beside the true table"
    return document(
        title,
        [
            html.paragraph(f"Comparison of {comparison.created}", kind="kind"),
            html.heading(title, level=1),
            *_in_short(comparison),
            *_errors(comparison),
            *_causes(comparison),
            *_columns(comparison),
            *_dependence(comparison),
            *_learning(comparison),
            *_worst(comparison),
            *_about(comparison),
        ],
    )


def _in_short(comparison: Comparison) -> Iterator[str]:
    errors = comparison.errors
    yield html.paragraph(
        "Every figure on this page comes from the true table without noise. Keep the page in the private folder. Do not publish a figure of "
        "it, and do not choose between published releases by it: the choice would reveal something about the people in the table."
    )
    if comparison.changed:
        yield html.paragraph(
            "Warning: the table is not known to be the one that the release was made from. Differences may come from changes of the table, too."
        )
    way = _way(errors.release, errors.independent, errors.bootstrap)
    said = [
        f"The error of the workload is {errors.release:.3f}. {way}",
        f"For comparison: rows with the true columns, but independent of each other, have an error of {errors.independent:.3f}.",
        f"As many rows drawn from the true table have an error of {errors.bootstrap:.3f}, which comes from their number alone.",
    ]
    step, share = _main_cause(comparison)
    if share > 0:
        said.append(
            f"{_followed(comparison)} The largest part of what the steps add to their error, {percent(share)}, comes from this: {STEPS[step]}. To reduce "
            f"it, {REMEDIES[step]}."
        )
    said += _blurred(comparison.columns)
    if dropping := [column for column in comparison.columns if column.dropped >= 0.001]:
        names = _some([f"{column.name} ({percent(column.dropped)})" for column in dropping])
        said.append(f"These columns drop rows whose values lie in no declared cell: {names}.")
    recognition = comparison.recognition
    said.append(
        f"A classifier tells released rows from true ones with an area of {recognition.release:.2f} under its curve: 0.5 is guessing, 1 is "
        f"certain. For rows with independent columns it is {recognition.independent:.2f}."
    )
    yield html.heading("In short")
    yield html.bullets(said)


def _blurred(columns: Sequence[ColumnComparison]) -> Iterator[str]:
    """Yield which columns their cells blur, and the advice that fits the cause."""
    worst_first = sorted(columns, key=lambda column: -(column.binning or 0))
    for cells, (cause, advice) in BLURS.items():
        if names := [
            column.name for column in worst_first if column.cells == cells and (column.binning or 0) >= BLURRED
        ]:
            yield f"{cause}: {_some(names)}. To reduce that, {advice}."


def _some(names: Sequence[str], *, most: int = 5) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def _way(release: float, independent: float, bootstrap: float) -> str:
    if independent <= bootstrap:
        return "The columns hardly depend on each other."
    share = (independent - release) / (independent - bootstrap)
    if share <= 0:
        return "That is no better than independent columns."
    return f"That is {percent(min(share, 1))} of the way from independent columns to rows drawn from the true table."


def _increments(errors: Sequence[float]) -> list[float]:
    return [after - before for before, after in zip((0.0, *errors), errors, strict=False)]


def _main_cause(comparison: Comparison) -> tuple[int, float]:
    """Return the step that adds most to the error, and its share of all that steps add. A step may also undo a part of an earlier one."""
    added = _increments(comparison.steps.errors)
    largest = int(np.argmax(added))
    return largest, added[largest] / max(sum(step for step in added if step > 0), 1e-12)


def _followed(comparison: Comparison) -> str:
    """Say which marginals were followed through the run, and which were not."""
    steps = comparison.steps
    number, mean = f"{steps.marginals:,}", f"a mean error of {steps.errors[-1]:.3f}"
    if steps.of == steps.larger:
        why = f" The marginals of several columns have more than {STEPPED_CELLS:,} cells." if steps.of else ""
        return f"{number} single columns, with {mean}, were followed through the run.{why}"
    larger = f" {steps.larger:,} have more than {STEPPED_CELLS:,} cells; their error may come from other steps."
    return (
        f"{number} of the {steps.of:,} marginals of several columns in the workload and its parts, with {mean}, were followed through the "
        f"run.{larger if steps.larger else ''}"
    )


def _errors(comparison: Comparison) -> Iterator[str]:
    errors = comparison.errors
    which = (
        f"all {errors.of:,}"
        if errors.marginals == errors.of
        else f"a sample of {errors.marginals:,} of the {errors.of:,}"
    )
    yield html.heading("Error of the workload")
    yield html.paragraph(
        f"The error of a marginal is the sum of the absolute differences between true and released shares, from 0 to 2. The figures are means "
        f"over {which} marginals of the workload."
    )
    bars = [
        ("released rows", errors.release),
        ("rows with independent columns", errors.independent),
        ("rows drawn from the true table", errors.bootstrap),
    ]
    yield _bars(bars, title="Error of the workload")
    names = {"1": "single columns", "2": "pairs of columns"}
    rows = [(names[order], *_thousandths(three)) for order, three in errors.by_order.items()]
    heads = ("released", "independent", "drawn from the truth")
    yield html.table("The same for marginals of one and of two columns", ("marginals", *heads), rows, right=heads)
    worst = [(_crossed(columns), *_thousandths(three)) for columns, *three in errors.worst]
    yield html.table("The marginals with the largest errors", ("columns", *heads), worst, right=heads)


def _bars(bars: Sequence[tuple[str, float]], *, title: str) -> str:
    return html.paragraph(html.image(bars_plot(bars, title=title), bars_words(bars)))


def _thousandths(numbers: Iterable[float | None]) -> list[str]:
    return ["-" if number is None else f"{number:.3f}" for number in numbers]


def _causes(comparison: Comparison) -> Iterator[str]:
    steps, shown = comparison.steps, _shown(comparison)
    yield html.heading("Where the error comes from")
    yield html.paragraph(
        f"{_followed(comparison)} Each bar is the error after a step; what it adds to the bar above is "
        f"the cost of the step. The bar after the {STEPS[1]} is that of a model fitted to exact counts of everything that was measured: "
        "only the rest can be wrong in it. A step can also undo a part of an earlier one."
    )
    bars = [(f"after: {STEPS[step]}", steps.errors[step]) for step in shown]
    yield _bars(bars, title="Error after each step")
    added = _increments(steps.errors)
    costs = [(STEPS[step], f"{added[step]:+.3f}", REMEDIES[step]) for step in shown]
    yield html.table(
        "What each step adds, and how to reduce it", ("step", "adds", "to reduce it"), costs, right=("adds",)
    )
    if 0 in shown:
        yield html.paragraph(
            f"The limit of {comparison.rows_per_unit:,} rows per {comparison.unit} keeps {comparison.kept_rows:,.0f} of {comparison.true_rows:,.0f} rows "
            f"({percent(comparison.kept_rows / max(comparison.true_rows, 1))})."
        )
    yield html.paragraph(
        "Binning comes before all these steps. It changes no count of cells, but values within a cell: the next table shows its cost for each "
        "column with an order."
    )
    heads = ("outside", "drops a row", "bins alone", "release", *(SHORT[step] for step in shown))
    rows = [
        (
            column.name,
            percent(column.outside),
            percent(column.dropped),
            *_thousandths([column.binning, column.gap, *(steps.columns[column.name][step] for step in shown)]),
        )
        for column in comparison.columns
    ]
    caption = (
        "Each column: the share of its true values that lie in no declared cell or cannot be read; the share that drops a row; the "
        "Kolmogorov-Smirnov distance (0 to 1) of true values from values put into their bins and drawn again, and from released values; and "
        "the error of its counts after each step"
    )
    yield html.table(caption, ("column", *heads), rows, right=heads)


def _shown(comparison: Comparison) -> list[int]:
    """Return the steps that the run had: without persons there is no limit on their rows."""
    return list(range(1 if comparison.unit == "row" else 0, len(STEPS)))


def _columns(comparison: Comparison) -> Iterator[str]:
    yield html.heading("Columns side by side")
    yield html.paragraph(
        "Shares of rows, true (full bars) and released (outlined bars). The column that differs most comes first. The bars are intervals of the "
        "release, as wide as each other here even if some cover more values."
    )
    yield "<div class=side>"
    for column in sorted(comparison.columns, key=lambda column: -column.distance):
        pairs, upright = _pairs(column)
        svg = pairs_plot(pairs, title=column.name, upright=upright)
        caption = html.joined(column.name, html.Markup(f" <span>error {column.distance:.3f}</span>"))
        yield html.picture(svg, pairs_words(pairs), caption=caption)
    yield "</div>"


def _pairs(column: ColumnComparison) -> tuple[list[Pair], bool]:
    """Return at most as many pairs of shares as can be drawn: neighbours merged, or rare categories."""
    every = list(map(Pair, column.labels, column.true, column.released))
    if column.ordered > MOST_LYING:
        inside = every[: column.ordered]
        aside = [pair for pair in every[column.ordered :] if pair.true or pair.released]
        ends = np.linspace(0, len(inside), min(MOST_UPRIGHT, len(inside)) + 1).round().astype(int).tolist()
        merged = [_merged(inside[low:high], label=f"{inside[low].label} …") for low, high in pairwise(ends)]
        return [*merged, *aside], True
    if len(every) <= MOST_LYING:
        return every, False
    common = sorted(every, key=lambda pair: -max(pair.true, pair.released))
    rest = common[MOST_LYING - 1 :]
    return [*common[: MOST_LYING - 1], _merged(rest, label=f"{len(rest):,} others")], False


def _merged(pairs: Sequence[Pair], *, label: str) -> Pair:
    if len(pairs) == 1:
        return pairs[0]
    return Pair(label, sum(pair.true for pair in pairs), sum(pair.released for pair in pairs))


def _dependence(comparison: Comparison) -> Iterator[str]:
    names = [column.name for column in comparison.columns]
    true, released = np.array(comparison.dependence.true), np.array(comparison.dependence.released)
    if len(names) < 2:
        return
    pairs = list(combinations(range(len(names)), 2))
    mean = float(np.mean([abs(true[pair] - released[pair]) for pair in pairs]))
    yield html.heading("Dependence of columns")
    yield html.paragraph(
        "Cramér's V tells how much two columns depend on each other, from 0 (not at all) to 1 (completely), without the bias of small tables. "
        f"Between true and released rows it differs by {mean:.3f} on average."
    )
    if len(names) <= 30:  # more have no room; the pairs that differ most are listed in any case
        tiles = {pair: _tile(float(released[pair])) for pair in pairs}
        tiles |= {(low, high): _tile(float(true[low, high])) for high, low in pairs}
        texts = {0.05: "below 0.1", 0.2: "0.1 to 0.3", 0.4: "0.3 to 0.5", 0.6: "0.5 to 0.7", 0.9: "0.7 and more"}
        legend = [(_tile(value), text) for value, text in texts.items()]
        words = "The pairs that differ most are in the table below."
        svg = tiles_plot(names, tiles, legend, title="Cramér's V of pairs, in tenths", words=words)
        yield html.paragraph("Below the diagonal: true. Above it: released. The digits are tenths.")
        yield html.scrolling(html.image(svg, words), about="Dependence of pairs")
    farthest = sorted(pairs, key=lambda pair: -abs(true[pair] - released[pair]))[:10]
    rows = [
        (
            _crossed([names[axis] for axis in pair]),
            f"{true[pair]:.2f}",
            f"{released[pair]:.2f}",
            f"{released[pair] - true[pair]:+.2f}",
        )
        for pair in farthest
    ]
    heads = ("true", "released", "difference")
    yield html.table("The pairs whose dependence differs most", ("columns", *heads), rows, right=heads)


def _tile(value: float) -> Tile:
    level = int(np.searchsorted([0.1, 0.3, 0.5, 0.7], value, side="right"))
    return Tile(SHADES[level], f"{min(9, int(value * 10))}" if value >= 0.1 else "")


def _learning(comparison: Comparison) -> Iterator[str]:
    recognition = comparison.recognition
    yield html.heading("Learn on the release, test on the true table")
    if comparison.predictions:
        yield html.paragraph(
            "A logistic regression predicts a column from all others. It learns on true rows or on as many released rows, and is tested on "
            "other true rows. The figure is the area under the ROC curve: 0.5 is guessing, 1 is perfect."
        )
        yield html.paragraph(_predicted(comparison))
        heads = ("share", "learned on true rows", "learned on released rows", "lost")
        rows = [
            (
                prediction.column,
                prediction.target,
                percent(prediction.share),
                *_thousandths([prediction.learned_on_true, prediction.learned_on_release]),
                f"{prediction.learned_on_true - prediction.learned_on_release:+.3f}",
            )
            for prediction in comparison.predictions
        ]
        yield html.table("Predictions of single columns", ("column", "predicted", *heads), rows, right=heads)
    else:
        yield html.paragraph("No column can be predicted: each has one side with almost no rows.")
    yield html.heading("Tell released rows from true ones")
    yield html.paragraph(
        "A logistic regression on single columns and pairs of columns learns to tell released rows from true ones. The less it succeeds, the "
        f"better. Its propensity score is {recognition.pmse:.4f} (mean squared distance from a half, 0 to 0.25)."
    )
    areas = [
        ("released rows", f"{recognition.release:.3f}"),
        ("rows with independent columns", f"{recognition.independent:.3f}"),
        ("other true rows, as a control", f"{recognition.true:.3f}"),
    ]
    yield html.table("Area under the ROC curve", ("rows told from true ones", "area"), areas, right=("area",))


def _predicted(comparison: Comparison) -> str:
    """Say how many columns are predicted, and how they were chosen."""
    if comparison.target is not None:
        return f"The report predicts {comparison.target}, the target of the workload."
    return (
        f"The report predicts {len(comparison.predictions):,} of the {len(comparison.columns):,} columns, at most {MOST_TARGETS}: those that depend most on "
        "another column in the true table, by Cramér's V. Columns with almost no rows on one side are left out."
    )


def _worst(comparison: Comparison) -> Iterator[str]:
    yield html.heading("Worst cells")
    yield html.paragraph(
        "The counts of single cells that are off most, among single columns and the marginals that were followed through the run, and the "
        f"step that did it. Released counts are scaled to the true number of rows.{_not_searched(comparison)}"
    )
    heads = ("true", "released", "difference")
    rows = [
        (
            ", ".join(f"{column} = {value}" for column, value in zip(cell.columns, cell.values, strict=True)),
            f"{cell.true:,.0f}",
            f"{cell.released:,.0f}",
            f"{cell.released - cell.true:+,.0f}",
            cell.cause,
        )
        for cell in comparison.steps.cells
    ]
    yield html.table("The worst cells", ("cell", *heads, "mostly because of"), rows, right=heads)


def _not_searched(comparison: Comparison) -> str:
    every = not comparison.steps.larger and comparison.steps.marginals >= comparison.steps.of
    return "" if every else " Marginals that were not followed may have worse ones."


def _about(comparison: Comparison) -> Iterator[str]:
    yield html.heading("What was compared")
    rows = [
        ("release", f"{comparison.release} of {comparison.dataset}"),
        ("spec", comparison.spec),
        ("epsilon, delta", f"{at_most(comparison.epsilon)}, {at_most(comparison.delta)}"),
        ("unit", comparison.unit),
        ("true rows in the universe", f"{comparison.true_rows:,.0f}"),
        ("of them under the limit on rows per unit", f"{comparison.kept_rows:,.0f}"),
        ("released rows", f"{comparison.released_rows:,}"),
        ("budget charged for this comparison", "nothing"),
    ]
    yield html.table("The tables", ("what", "value"), rows)
    yield html.paragraph(
        "Which rows of a unit the run kept is not stored, so the limit on rows per unit was applied anew. Baselines and samples are drawn by a "
        "fixed seed. Nulls are one cell, whether a value is missing or lies outside the universe, because a release shows both alike."
    )


def _crossed(columns: Sequence[str]) -> str:
    return " × ".join(columns)  # noqa: RUF001  a sign of multiplication

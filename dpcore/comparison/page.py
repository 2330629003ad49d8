"""The page of a comparison: first what is off and why, then the details."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import combinations, pairwise

import numpy as np

from dpcore.comparison import html
from dpcore.comparison.comparison import Cells, ColumnComparison, Comparison
from dpcore.comparison.errors import STEPPED_CELLS, STEPS
from dpcore.comparison.learning import MOST_TARGETS
from dpcore.comparison.plots import Pair, bars_plot, bars_words, pairs_plot, pairs_words
from dpcore.reporting.formatting import at_most
from dpcore.reporting.plots import Tile, percent, tiles_plot

MOST_UPRIGHT, MOST_LYING = 24, 12
MOST_NAMED = 5
MOST_TILED = 30
"""Tables with more columns have no room for a heat map; the pairs that differ most are listed in any case."""

REMEDIES = {
    STEPS[0]: "raise max_rows_per_unit, which also raises the noise, or accept that people with many rows count less",
    STEPS[
        1
    ]: "give the run more epsilon or rounds, list the marginals that matter in the workload, or release fewer columns",
    STEPS[2]: "give the run more epsilon, or declare fewer and wider cells",
    STEPS[3]: "read figures with dpflow answer, which does not draw rows, or ask for more rows",
}
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


def page(found: Comparison) -> str:
    """Return the page as HTML."""
    title = f"Release {found.release} of {found.dataset} beside the true table"
    return html.document(
        title,
        [
            f"<p class=kind>Comparison of {escape(found.created)}</p>",
            f"<h1>{escape(title)}</h1>",
            *_in_short(found),
            *_errors(found),
            *_causes(found),
            *_columns(found),
            *_dependence(found),
            *_learning(found),
            *_worst(found),
            *_about(found),
        ],
    )


def _in_short(found: Comparison) -> Iterator[str]:
    errors = found.errors
    yield html.paragraph(
        "Every figure on this page comes from the true table without noise. Keep the page in the private folder. Do not publish a figure of "
        "it, and do not choose between published releases by it: the choice would reveal something about the people in the table."
    )
    if found.changed:
        yield html.paragraph(
            "Warning: the table is not known to be the one that the release was made from. Differences may come from changes of the table, too."
        )
    way = _way(errors.release, errors.independent, errors.bootstrap)
    said = [
        f"The error of the workload is {errors.release:.3f}. {way}",
        f"For comparison: rows with the true columns, but independent of each other, have an error of {errors.independent:.3f}.",
        f"As many rows drawn from the true table have an error of {errors.bootstrap:.3f}, which comes from their number alone.",
    ]
    step, share = _main_cause(found)
    if share > 0:
        said.append(
            f"{_followed(found)} The largest part of what the steps add to their error, {percent(share)}, comes from this: {step}. To reduce "
            f"it, {REMEDIES[step]}."
        )
    said += _blurred(found.columns)
    if dropped := [each for each in found.columns if each.dropped >= 0.001]:
        names = _some([f"{each.name} ({percent(each.dropped)})" for each in dropped])
        said.append(f"These columns drop rows whose values lie in no declared cell: {names}.")
    told = found.recognition
    said.append(
        f"A classifier tells released rows from true ones with an area of {told.release:.2f} under its curve: 0.5 is guessing, 1 is certain. For "
        f"rows with independent columns it is {told.independent:.2f}."
    )
    yield "<h2>In short</h2>"
    yield html.listing(said)


def _blurred(columns: Sequence[ColumnComparison]) -> Iterator[str]:
    """Yield which columns their cells blur, and the advice that fits the cause."""
    blurred = sorted(
        (each for each in columns if (each.binning or 0) >= BLURRED), key=lambda each: -(each.binning or 0)
    )
    for cells, (cause, advice) in BLURS.items():
        if names := [each.name for each in blurred if each.cells == cells]:
            yield f"{cause}: {_some(names)}. To reduce that, {advice}."


def _some(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _way(release: float, independent: float, bootstrap: float) -> str:
    if independent <= bootstrap:
        return "The columns hardly depend on each other."
    share = (independent - release) / (independent - bootstrap)
    if share <= 0:
        return "That is no better than independent columns."
    return f"That is {percent(min(share, 1))} of the way from independent columns to rows drawn from the true table."


def _increments(errors: Sequence[float]) -> list[float]:
    return [after - before for before, after in zip((0.0, *errors), errors, strict=False)]


def _main_cause(found: Comparison) -> tuple[str, float]:
    """Return the step that adds most to the error, and its share of all that steps add. A step may also undo a part of an earlier one."""
    added = _increments(found.steps.errors)
    largest = int(np.argmax(added))
    return STEPS[largest], added[largest] / max(sum(each for each in added if each > 0), 1e-12)


def _followed(found: Comparison) -> str:
    """Say which marginals were followed through the run, and which were not."""
    steps = found.steps
    number, mean = f"{steps.marginals:,}", f"a mean error of {steps.errors[-1]:.3f}"
    if steps.of == steps.larger:
        why = f" The marginals of several columns have more than {STEPPED_CELLS:,} cells." if steps.of else ""
        return f"{number} single columns, with {mean}, were followed through the run.{why}"
    larger = f" {steps.larger:,} have more than {STEPPED_CELLS:,} cells; their error may come from other steps."
    return (
        f"{number} of the {steps.of:,} marginals of several columns in the workload and its parts, with {mean}, were followed through the "
        f"run.{larger if steps.larger else ''}"
    )


def _errors(found: Comparison) -> Iterator[str]:
    errors = found.errors
    which = (
        f"all {errors.of:,}"
        if errors.marginals == errors.of
        else f"a sample of {errors.marginals:,} of the {errors.of:,}"
    )
    yield "<h2>Error of the workload</h2>"
    yield html.paragraph(
        f"The error of a marginal is the sum of the absolute differences between true and released shares, from 0 to 2. The figures are means "
        f"over {which} marginals of the workload."
    )
    bars = [
        ("released rows", errors.release),
        ("rows with independent columns", errors.independent),
        ("rows drawn from the true table", errors.bootstrap),
    ]
    yield f"<p>{html.image(bars_plot(bars, title='Error of the workload'), bars_words(bars))}</p>"
    names = {"1": "single columns", "2": "pairs of columns"}
    rows = [(names[order], *(f"{each:.3f}" for each in three)) for order, three in errors.by_order.items()]
    heads = ("released", "independent", "drawn from the truth")
    yield html.table("The same for marginals of one and of two columns", ("marginals", *heads), rows, right=heads)
    worst = [(_crossed(columns), *(f"{each:.3f}" for each in three)) for columns, *three in errors.worst]
    yield html.table("The marginals with the largest errors", ("columns", *heads), worst, right=heads)


def _causes(found: Comparison) -> Iterator[str]:
    steps, shown = found.steps, _shown(found)
    yield "<h2>Where the error comes from</h2>"
    yield html.paragraph(
        f"{_followed(found)} Each bar is the error after a step; what it adds to the bar above is "
        f"the cost of the step. The bar after the {STEPS[1]} is that of a model fitted to exact counts of everything that was measured: "
        "only the rest can be wrong in it. A step can also undo a part of an earlier one."
    )
    bars = [(f"after: {STEPS[step]}", steps.errors[step]) for step in shown]
    yield f"<p>{html.image(bars_plot(bars, title='Error after each step'), bars_words(bars))}</p>"
    added = _increments(steps.errors)
    costs = [(STEPS[step], f"{added[step]:+.3f}", REMEDIES[STEPS[step]]) for step in shown]
    yield html.table(
        "What each step adds, and how to reduce it", ("step", "adds", "to reduce it"), costs, right=("adds",)
    )
    if 0 in shown:
        yield html.paragraph(
            f"The limit of {found.rows_per_unit:,} rows per {found.unit} keeps {found.kept_rows:,.0f} of {found.true_rows:,.0f} rows "
            f"({percent(found.kept_rows / max(found.true_rows, 1))})."
        )
    yield html.paragraph(
        "Binning comes before all these steps. It changes no count of cells, but values within a cell: the next table shows its cost for each "
        "column with an order."
    )
    heads = ("outside", "drops a row", "bins alone", "release", *(SHORT[step] for step in shown))
    rows = [
        (
            each.name,
            percent(each.outside),
            percent(each.dropped),
            "-" if each.binning is None else f"{each.binning:.3f}",
            "-" if each.gap is None else f"{each.gap:.3f}",
            *(f"{steps.columns[each.name][step]:.3f}" for step in shown),
        )
        for each in found.columns
    ]
    caption = (
        "Each column: the share of its true values that lie in no declared cell or cannot be read; the share that drops a row; the "
        "Kolmogorov-Smirnov distance (0 to 1) of true values from values put into their bins and drawn again, and from released values; and "
        "the error of its counts after each step"
    )
    yield html.table(caption, ("column", *heads), rows, right=heads)


def _shown(found: Comparison) -> list[int]:
    """Return the steps that the run had: without persons there is no limit on their rows."""
    return list(range(1 if found.unit == "row" else 0, len(STEPS)))


def _columns(found: Comparison) -> Iterator[str]:
    yield "<h2>Columns side by side</h2>"
    yield html.paragraph(
        "Shares of rows, true (full bars) and released (outlined bars). The column that differs most comes first. The bars are intervals of the "
        "release, as wide as each other here even if some cover more values."
    )
    yield "<div class=side>"
    for each in sorted(found.columns, key=lambda column: -column.distance):
        pairs, upright = _pairs(each)
        svg = pairs_plot(pairs, title=each.name, upright=upright)
        yield html.figure(svg, pairs_words(pairs), name=each.name, note=f"error {each.distance:.3f}")
    yield "</div>"


def _pairs(column: ColumnComparison) -> tuple[list[Pair], bool]:
    """Return at most as many pairs of shares as can be drawn: neighbours merged, or rare categories."""
    every = [Pair(*each) for each in zip(column.labels, column.true, column.released, strict=True)]
    if column.ordered > MOST_LYING:
        inside, aside = (
            every[: column.ordered],
            [each for each in every[column.ordered :] if each.true or each.released],
        )
        ends = np.linspace(0, len(inside), min(MOST_UPRIGHT, len(inside)) + 1).round().astype(int).tolist()
        merged = [_merged(inside[low:high]) for low, high in pairwise(ends)]
        return [*merged, *aside], True
    if len(every) <= MOST_LYING:
        return every, False
    common = sorted(every, key=lambda each: -max(each.true, each.released))
    rest = common[MOST_LYING - 1 :]
    others = Pair(f"{len(rest):,} others", sum(each.true for each in rest), sum(each.released for each in rest))
    return [*common[: MOST_LYING - 1], others], False


def _merged(pairs: Sequence[Pair]) -> Pair:
    label = pairs[0].label if len(pairs) == 1 else f"{pairs[0].label} …"
    return Pair(label, sum(each.true for each in pairs), sum(each.released for each in pairs))


def _dependence(found: Comparison) -> Iterator[str]:
    names = [each.name for each in found.columns]
    true, released = np.array(found.dependence.true), np.array(found.dependence.released)
    if len(names) < 2:
        return
    pairs = list(combinations(range(len(names)), 2))
    mean = float(np.mean([abs(true[pair] - released[pair]) for pair in pairs]))
    yield "<h2>Dependence of columns</h2>"
    yield html.paragraph(
        "Cramér's V tells how much two columns depend on each other, from 0 (not at all) to 1 (completely), without the bias of small tables. "
        f"Between true and released rows it differs by {mean:.3f} on average."
    )
    if len(names) <= MOST_TILED:
        tiles = {
            place: _tile(float((true if below else released)[place]))
            for one, other in pairs
            for place, below in (((other, one), True), ((one, other), False))
        }
        legend = [
            (_tile(value), words)
            for value, words in (
                (0.05, "below 0.1"),
                (0.2, "0.1 to 0.3"),
                (0.4, "0.3 to 0.5"),
                (0.6, "0.5 to 0.7"),
                (0.9, "0.7 and more"),
            )
        ]
        words = "The pairs that differ most are in the table below."
        svg = tiles_plot(names, tiles, legend, title="Cramér's V of pairs, in tenths", words=words)
        yield html.paragraph("Below the diagonal: true. Above it: released. The digits are tenths.")
        yield f'<div class=wide tabindex="0" role="group" aria-label="Dependence of pairs">{html.image(svg, words)}</div>'
    farthest = sorted(pairs, key=lambda pair: -abs(true[pair] - released[pair]))[:10]
    rows = [
        (
            _crossed([names[one], names[other]]),
            f"{true[one, other]:.2f}",
            f"{released[one, other]:.2f}",
            f"{released[one, other] - true[one, other]:+.2f}",
        )
        for one, other in farthest
    ]
    heads = ("true", "released", "difference")
    yield html.table("The pairs whose dependence differs most", ("columns", *heads), rows, right=heads)


def _tile(value: float) -> Tile:
    level = int(np.searchsorted([0.1, 0.3, 0.5, 0.7], value, side="right"))
    return Tile(SHADES[level], f"{min(9, int(value * 10))}" if value >= 0.1 else "")


def _learning(found: Comparison) -> Iterator[str]:
    told = found.recognition
    yield "<h2>Learn on the release, test on the true table</h2>"
    if found.predictions:
        yield html.paragraph(
            "A logistic regression predicts a column from all others. It learns on true rows or on as many released rows, and is tested on "
            "other true rows. The figure is the area under the ROC curve: 0.5 is guessing, 1 is perfect."
        )
        yield html.paragraph(_predicted(found))
        heads = ("share", "learned on true rows", "learned on released rows", "lost")
        rows = [
            (
                each.column,
                each.target,
                percent(each.share),
                f"{each.learned_on_true:.3f}",
                f"{each.learned_on_release:.3f}",
                f"{each.learned_on_true - each.learned_on_release:+.3f}",
            )
            for each in found.predictions
        ]
        yield html.table("Predictions of single columns", ("column", "predicted", *heads), rows, right=heads)
    else:
        yield html.paragraph("No column can be predicted: each has one side with almost no rows.")
    yield "<h2>Tell released rows from true ones</h2>"
    yield html.paragraph(
        "A logistic regression on single columns and pairs of columns learns to tell released rows from true ones. The less it succeeds, the "
        f"better. Its propensity score is {told.pmse:.4f} (mean squared distance from a half, 0 to 0.25)."
    )
    areas = [
        ("released rows", f"{told.release:.3f}"),
        ("rows with independent columns", f"{told.independent:.3f}"),
        ("other true rows, as a control", f"{told.true:.3f}"),
    ]
    yield html.table("Area under the ROC curve", ("rows told from true ones", "area"), areas, right=("area",))


def _predicted(found: Comparison) -> str:
    """Say how many columns are predicted, and how they were chosen."""
    if found.target is not None:
        return f"The report predicts {found.target}, the target of the workload."
    return (
        f"The report predicts {len(found.predictions):,} of the {len(found.columns):,} columns, at most {MOST_TARGETS}: those that depend most on "
        "another column in the true table, by Cramér's V. Columns with almost no rows on one side are left out."
    )


def _worst(found: Comparison) -> Iterator[str]:
    yield "<h2>Worst cells</h2>"
    yield html.paragraph(
        "The counts of single cells that are off most, among single columns and the marginals that were followed through the run, and the "
        f"step that did it. Released counts are scaled to the true number of rows.{_not_searched(found)}"
    )
    heads = ("true", "released", "difference")
    rows = [
        (
            ", ".join(f"{column} = {value}" for column, value in zip(each.columns, each.values, strict=True)),
            f"{each.true:,.0f}",
            f"{each.released:,.0f}",
            f"{each.released - each.true:+,.0f}",
            each.cause,
        )
        for each in found.steps.cells
    ]
    yield html.table("The worst cells", ("cell", *heads, "mostly because of"), rows, right=heads)


def _not_searched(found: Comparison) -> str:
    every = not found.steps.larger and found.steps.marginals >= found.steps.of
    return "" if every else " Marginals that were not followed may have worse ones."


def _about(found: Comparison) -> Iterator[str]:
    yield "<h2>What was compared</h2>"
    rows = [
        ("release", f"{found.release} of {found.dataset}"),
        ("spec", found.spec),
        ("epsilon, delta", f"{at_most(found.epsilon)}, {at_most(found.delta)}"),
        ("unit", found.unit),
        ("true rows in the universe", f"{found.true_rows:,.0f}"),
        ("of them under the limit on rows per unit", f"{found.kept_rows:,.0f}"),
        ("released rows", f"{found.released_rows:,}"),
        ("budget charged for this comparison", "nothing"),
    ]
    yield html.table("The tables", ("what", "value"), rows)
    yield html.paragraph(
        "Which rows of a unit the run kept is not stored, so the limit on rows per unit was applied anew. Baselines and samples are drawn by a "
        "fixed seed. Nulls are one cell, whether a value is missing or lies outside the universe, because a release shows both alike."
    )


def _crossed(columns: Sequence[str]) -> str:
    return " × ".join(columns)  # noqa: RUF001  a sign of multiplication

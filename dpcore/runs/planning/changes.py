"""Find the changes of a spec that would reduce the errors most. Each is tried: the run is planned again with it, without data."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest

from dpcore.errors import DpflowError
from dpcore.reporting.formatting import at_most, some_of
from dpcore.reporting.ratings import Rating, percent
from dpcore.runs.planning.rated import FEW_CELLS, MOST, Rated, RatedColumn
from dpcore.spec import Declaration
from dpcore.spec.advice import MOST_EPSILON
from dpcore.spec.categories import CategoricalSpec
from dpcore.spec.release import ReleaseSpec
from dpcore.spec.workload import MarginalSpec, WorkloadSpec
from dpcore.universe import Attribute, Categorical, Universe

MORE = (2, 5, 10)
LINKING = ("columns", "target")
"""The kinds of changes after which rounds link a larger share of the columns."""
WORTH = 0.95
"""A change is named only if it reduces the typical error at least to this share of what it was."""


@dataclass(frozen=True)
class Figures:
    """What a plan expects of the pairs (or columns): their typical error, and how many of them are poor."""

    typical: float
    poor: int
    number: int

    @classmethod
    def of(cls, plan: Rated) -> "Figures":
        """Return the figures of a plan."""
        return cls(plan.typical, plan.poor, plan.number)


@dataclass(frozen=True)
class Change:
    """A change of the spec, with what to expect before and after it. `refused` says why the account would not pay for it.

    `kind` is `epsilon`, `cells`, `columns`, `rows per unit`, `workload` or `target`.
    """

    kind: str
    sentence: str
    before: Figures
    after: Figures
    refused: str | None = None


Replan = Callable[[Declaration], tuple[Rated, str | None]]
"""Plans a run with a changed declaration: its ratings, and why the account would not pay. Raises if it cannot run."""


def helpful_changes(declaration: Declaration, now: Rated, *, plan: Replan) -> tuple[Change, ...]:
    """Return the two changes of different kinds that would help most, the better one first. There may be fewer.

    If there are too few rounds to link all columns, no error is as bad: these are to ask for fewer columns, and to name a target.
    """
    if now.good == now.number and not now.is_wide:
        return ()
    best: dict[str, tuple[float, Change]] = {}
    for kind, what, changed in _changes(declaration, now):
        try:
            later, refused = plan(changed)
        except DpflowError:
            continue  # the changed spec cannot run, for example because of the size of its model
        if later.asked_for != now.asked_for or (kind == "workload" and later.number < now.number):
            continue  # pairs that are not asked for any more are no better
        links = now.is_wide and kind in LINKING
        score = 0.0 if links else later.burden
        helps = links or score <= WORTH * now.burden
        if kind in best and (kind == "epsilon" and not _mostly_poor(best[kind][1].after)):
            continue  # the smallest epsilon that is enough
        if helps and (kind not in best or score < best[kind][0]):
            said = f"{what}: {_effect(now, later)}" + ("; the account cannot pay for that" if refused else "")
            best[kind] = score, Change(kind, said, Figures.of(now), Figures.of(later), refused)
    return tuple(change for _, change in nsmallest(2, best.values(), key=lambda scored: scored[0]))


def _mostly_poor(figures: Figures) -> bool:
    return figures.poor > MOST * figures.number


def _effect(now: Rated, later: Rated) -> str:
    said = f"typical error {percent(now.typical)} -> {percent(later.typical)}"
    if now.poor or later.poor:
        said += f", poor {now.asked_for} {now.poor:,} of {now.number:,} -> {later.poor:,} of {later.number:,}"
    return said


def _changes(declaration: Declaration, now: Rated) -> Iterator[tuple[str, str, Declaration]]:
    """Yield each change to try: its kind, what to do, and the changed declaration."""
    privacy, workload = declaration.spec.privacy, declaration.spec.workload
    # Twice the epsilon, or if most would still be poor, up to ten times.
    for more in (times * privacy.epsilon for times in (MORE if _mostly_poor(Figures.of(now)) else MORE[:1])):
        if more <= MOST_EPSILON:
            yield "epsilon", f"raise epsilon from {at_most(privacy.epsilon)} to {at_most(more)}", at(declaration, more)
    limit = privacy.max_rows_per_unit
    if isinstance(limit, int) and limit > 1:  # not `auto`
        fewer = _with(declaration, privacy=privacy.model_copy(update={"max_rows_per_unit": limit // 2}))
        half = f"{limit // 2} rows" if limit > 3 else "1 row"
        yield (
            "rows per unit",
            f"count at most {half} of each {privacy.unit} instead of {limit}, if few have more",
            fewer,
        )
    if now.is_wide and workload.target is None and isinstance(workload.marginals, int):
        typical = worst_first(now.columns)[len(now.columns) // 2].name  # the plan does not know which one it is
        target = _with(declaration, workload=workload.model_copy(update={"target": typical}))
        few = f"its {len(now.columns) - 1:,} pairs, and not to any of {now.number:,}"
        yield (
            "target",
            f"name the column that matters most as `target`, so that {now.rounds:,} rounds go to {few}",
            target,
        )
    if isinstance(workload.marginals, int) and workload.marginals > 2:
        pairs = _with(declaration, workload=workload.model_copy(update={"marginals": 2}))
        yield "workload", f"ask for pairs: `marginals: 2` instead of {workload.marginals}", pairs
    yield from _coarser(declaration, now)
    yield from _narrower(declaration, now)


def _coarser(declaration: Declaration, now: Rated) -> Iterator[tuple[str, str, Declaration]]:
    """Group the cells of the largest column, or of all large columns."""
    calendar, attributes = declaration.calendar, declaration.universe.attributes
    days = None if calendar is None else calendar.column
    large = [
        column.name
        for column in worst_first(now.columns)
        if attributes[column.name].size > FEW_CELLS and column.name != days
    ]
    for names in {tuple(large[:1]), tuple(large)} - {()}:
        sizes = sorted((attributes[name].size for name in names), reverse=True)
        cells = f"{sizes[0]:,}" if len(names) == 1 else f"up to {sizes[0]:,}"
        what = f"group {some_of(names, joint='and', most=3)} into {FEW_CELLS} cells instead of {cells}"
        yield "cells", what + (" each" if len(names) > 1 else ""), _grouped(declaration, names)


def _narrower(declaration: Declaration, now: Rated) -> Iterator[tuple[str, str, Declaration]]:
    """Leave out what looks like an id, or else as many columns as no round can link, or the worst one if it is not good and too small to be made coarser."""
    needed = {declaration.spec.workload.target, declaration.calendar and declaration.calendar.column}
    worst = worst_first(now.columns)
    names = [column.name for column in now.columns if column.id is not None] or [
        column.name for column in worst[:1] if column.worst is not Rating.GOOD and column.cells <= FEW_CELLS
    ]
    what = f"leave out {some_of(names, joint='and', most=3)}" if names else ""
    if now.is_wide:
        left = now.rounds + 1
        names = [column.name for column in worst if column.name not in needed][: len(worst) - left]
        what = f"ask for the {left:,} columns that matter most instead of {len(worst):,}, since {now.rounds:,} rounds link no more"
    if not names or not needed.isdisjoint(names) or len(names) >= len(now.columns):
        return
    changed = _without(declaration, names)
    if changed.workload.marginals:
        yield "columns", what, changed


def worst_first(columns: Sequence[RatedColumn]) -> list[RatedColumn]:
    """Sort columns by their error, alone or in pairs, the largest first."""
    return sorted(columns, key=lambda column: max(column.error, column.pairs_error or 0.0), reverse=True)


def at(declaration: Declaration, epsilon: float) -> Declaration:
    """Return the declaration with another epsilon, for planning only: its digest is not updated."""
    return _with(declaration, privacy=declaration.spec.privacy.model_copy(update={"epsilon": epsilon}))


def _grouped(declaration: Declaration, names: Collection[str]) -> Declaration:
    values = tuple(f"group {number}" for number in range(FEW_CELLS))
    part, attribute = CategoricalSpec(type="categorical", values=values), Categorical(values)
    spec = declaration.spec
    parts = {name: part if name in names else column for name, column in spec.universe.items()}
    attributes: dict[str, Attribute] = {
        name: attribute if name in names else attribute_now
        for name, attribute_now in declaration.universe.attributes.items()
    }
    return _over(declaration, spec.model_copy(update={"universe": parts}), attributes)


def _without(declaration: Declaration, names: Collection[str]) -> Declaration:
    spec, attributes = declaration.spec, declaration.universe.attributes
    left = {name: attribute for name, attribute in attributes.items() if name not in names}
    changed = {
        "universe": {name: column for name, column in spec.universe.items() if name not in names},
        "workload": _workload_without(spec.workload, names, columns=len(left)),
    }
    return _over(declaration, spec.model_copy(update=changed), left)


def _workload_without(workload: WorkloadSpec, names: Collection[str], *, columns: int) -> WorkloadSpec:
    """Return the workload without some columns. A marginal keeps its others."""
    ranges = tuple(name for name in workload.ranges or () if name not in names) or None
    if isinstance(workload.marginals, int):
        return workload.model_copy(update={"marginals": min(workload.marginals, columns), "ranges": ranges})
    left = []
    for marginal in workload.marginals:
        columns_now = marginal.columns if isinstance(marginal, MarginalSpec) else marginal
        columns_left = tuple(name for name in columns_now if name not in names)
        if columns_left:
            weight = marginal.weight if isinstance(marginal, MarginalSpec) else 1
            left.append(MarginalSpec(columns=columns_left, weight=weight))
    return workload.model_copy(update={"marginals": tuple(left), "ranges": ranges})


def _over(declaration: Declaration, spec: ReleaseSpec, attributes: dict[str, Attribute]) -> Declaration:
    universe = Universe(attributes)
    same = spec.workload is declaration.spec.workload
    workload = declaration.workload if same else spec.workload.over(universe)
    return replace(declaration, spec=spec, universe=universe, workload=workload, provisional=None)


def _with(declaration: Declaration, **parts: object) -> Declaration:
    spec = declaration.spec.model_copy(update=parts)
    # The parts of a large workload are listed once, so the same one is kept if it does not change.
    workload = spec.workload.over(declaration.universe) if "workload" in parts else declaration.workload
    return replace(declaration, spec=spec, workload=workload)

"""The declaration of a run: a checked release spec, with everything that follows from it alone."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import takewhile
from math import prod, sqrt
from pathlib import Path
from statistics import fmean, median

from dpcore.descent import Descent
from dpcore.marginals.sizes import Sizes
from dpcore.marginals.workload import Workload
from dpcore.object_store import AnyPath, ObjectPath, any_path
from dpcore.privacy.protection import Protection
from dpcore.spec.blocks import calendar_of
from dpcore.spec.parts import as_written
from dpcore.spec.release import AUTO, AdaptiveSpec, MwemSpec, ReleaseSpec, StrategySpec
from dpcore.spec.shares import LIMIT_SHARE, LOSSES_SHARE, TOTAL_SHARE, Early, needed_share, usual_share
from dpcore.universe import Attribute, Date, Datetime, Universe
from dpcore.universe.blocks import Calendar, narrowed
from dpcore.universe.dependencies import Depends
from dpcore.universe.leaves import Fine

DENSE_CELLS = 1_000_000
"""Up to this many cells in the universe, a spec without a strategy may get the dense model; above, it gets the factored one."""

PAIR_CELLS = 400
"""So it does if most pairs of columns have more cells than this: noise would swamp them, unless cells are merged (docs/decisions/0006)."""

USUALLY_LOST = 0.2
"""The largest share of the rows that may be dropped, unless the spec says otherwise."""


@dataclass(frozen=True)
class Declaration:
    """A checked release spec with everything that follows from it alone, without data.

    With `discover` in the spec, `universe` has a cell for each value or bin that may be found, until `discovered` replaces them by those
    found. `provisional` is then the universe as it was before. `as_found` says that an earlier run has found them.

    With `max_rows_per_unit: auto`, `rows_per_unit` is the chosen limit, and None until `limited` sets it. `sizes` are then the classes of units
    by which counts of the kept rows become counts of all rows. With `kept_only` they do not.
    """

    path: Path
    spec: ReleaseSpec
    universe: Universe
    workload: Workload
    digest: str
    provisional: Universe | None = None
    rows_per_unit: int | None = None
    sizes: Sizes | None = None
    as_found: bool = False
    kept_only: bool = False

    def descents(self) -> dict[str, Descent]:
        """Return the descents that find undeclared values and bins in the data, by column, each at its start. None if they are as found."""
        return {} if self.as_found else self.undecided()

    def undecided(self) -> dict[str, Descent]:
        """Return these descents, also if a run takes over what an earlier one has found."""
        share = self._usual_share if self._declared_fine else Fraction(0)
        ways = {name: part.descent(self._template(name), share=share) for name, part in self.spec.universe.items()}
        return {name: descent for name, descent in ways.items() if descent is not None}

    @property
    def readable(self) -> Universe:
        """The universe before anything was found, by which all runs of a spec read the same version of the data."""
        return self.provisional if self.as_found and self.provisional is not None else self.universe

    def _template(self, name: str) -> Attribute:
        """Return a column as it was before anything was discovered, but narrowed to the blocks of a run."""
        current = self.universe.attributes[name]
        before = current if self.provisional is None else self.provisional.attributes[name]
        return current.cut_at(None) if isinstance(current, Fine) else before

    @property
    def fine(self) -> tuple[str, ...]:
        """The columns at full resolution, whose distributions are found by trees. None if they are as found."""
        return () if self.as_found else self._declared_fine

    @property
    def _declared_fine(self) -> tuple[str, ...]:
        declared = (self.provisional or self.universe).attributes
        return tuple(name for name, attribute in declared.items() if isinstance(attribute, Fine))

    @cached_property
    def _usual_share(self) -> Fraction:
        """The share of the budget for the tree of a column whose spec gives none."""
        declared, privacy = self.provisional or self.universe, self.spec.privacy
        needed = 0.0
        if self.expected_rows is not None and privacy.max_rows_per_unit != AUTO:
            trees = [
                self.spec.universe[name].descent(declared.attributes[name], share=Fraction(0))
                for name in self._declared_fine
            ]
            needed = needed_share(
                self.expected_rows,
                levels=fmean(tree.levels for tree in trees if tree is not None),
                epsilon=privacy.epsilon,
                delta=privacy.delta,
                protection=privacy.protection,
            )
        return usual_share(
            declared.shape,
            self.spec.workload.over(declared),
            fine=[declared.names.index(name) for name in self._declared_fine],
            pure=privacy.delta == 0,
            needed=needed,
        )

    @property
    def expected_rows(self) -> int | None:
        """The middle of `expect_rows`, about; None without it."""
        expected = self.spec.privacy.expect_rows
        return None if expected is None else max(1, round(sqrt(expected[0] * expected[1])))

    @cached_property
    def early(self) -> dict[Early, tuple[Fraction, ...]]:
        """The share of the budget for each answer that may be bought before the strategy begins, in this order; none if the spec does not ask for it."""
        privacy, persons = self.spec.privacy, self.spec.persons
        chooses = privacy.max_rows_per_unit == AUTO and not self.as_found
        return {
            Early.LIMIT: (LIMIT_SHARE,) * chooses,
            Early.LOSSES: (LOSSES_SHARE,) * (self.tolerated < 1 and not self.as_found),
            Early.TOTAL: (TOTAL_SHARE,) * (privacy.expect_rows is not None),
            Early.PERSONS: () if persons is None else (as_written(persons.share) / 2,) * 2,
            Early.DISCOVERY: tuple(
                descent.share / descent.levels for descent in self.descents().values() for _ in range(descent.levels)
            ),
            Early.DEPENDENCIES: tuple(dependency.share for dependency in self.dependencies),
        }

    def share(self, *early: Early) -> Fraction:
        """Return the share of the budget for these early measurements."""
        return sum((share for measured in early for share in self.early[measured]), Fraction(0))

    def taken_before(self, early: Early) -> Fraction:
        """Return the share of the budget for everything that is measured before this."""
        return self.share(*takewhile(lambda earlier: earlier is not early, Early))

    @property
    def left(self) -> Fraction:
        """The share of the budget that is left for the strategy."""
        return 1 - self.share(*Early)

    @property
    def tolerated(self) -> float:
        """The largest share of the rows that may be dropped."""
        return USUALLY_LOST if self.spec.privacy.lose is None else self.spec.privacy.lose

    @property
    def constant(self) -> tuple[str, ...]:
        """The columns that are declared to have one value for each person."""
        return () if self.spec.persons is None else self.spec.persons.constant

    @property
    def lacks_limit(self) -> bool:
        """Whether the limit on rows per unit is still to be chosen."""
        return self.spec.privacy.max_rows_per_unit == AUTO and self.rows_per_unit is None

    @property
    def dependencies(self) -> tuple[Depends, ...]:
        """The columns that determine others. Their functions are learned before the strategy begins."""
        return tuple(constraint for constraint in self.universe.constraints if isinstance(constraint, Depends))

    def related(self, before: Depends, learned: Depends) -> "Declaration":
        """Return the declaration with the learned function of a dependency. The hash stays the same."""
        constraints = tuple(learned if declared == before else declared for declared in self.universe.constraints)
        return replace(self, universe=Universe(self.universe.attributes, constraints))

    @property
    def corrects(self) -> bool:
        """Whether the release describes all rows, although only some rows of a unit with many are counted (docs/decisions/0077)."""
        privacy = self.spec.privacy
        chooses = privacy.max_rows_per_unit == AUTO and not self.kept_only
        alone = self.spec.persons is None and self.spec.blocks is None
        return chooses and alone and privacy.weight is None and self.strategy.name != "pmw"

    def limited(self, rows_per_unit: int, *, sizes: Sizes | None = None) -> "Declaration":
        """Return the declaration with the chosen limit on the rows of a unit. A declared limit stays as it is."""
        sizes = sizes if self.corrects else None
        return replace(self, rows_per_unit=rows_per_unit, sizes=sizes) if self.early[Early.LIMIT] else self

    def discovered(self, attributes: Mapping[str, Attribute]) -> "Declaration":
        """Return the declaration with the found attributes in its universe. The hash stays the same; the cells do not increase."""
        universe = self.universe.with_attributes(attributes)
        workload, before = self.spec.workload.over(universe), self.provisional or self.universe
        return replace(self, universe=universe, workload=workload, provisional=before)

    def taken_over(
        self, attributes: Mapping[str, Attribute], *, rows_per_unit: int, sizes: Sizes | None
    ) -> "Declaration":
        """Return the declaration with the attributes and the limit that an earlier run has found, so that nothing is spent on finding them."""
        return replace(self.limited(rows_per_unit, sizes=sizes).discovered(attributes), as_found=True)

    def covering(self, blocks: Collection[str] | None) -> "Declaration":
        """Return the declaration for a run that reads these blocks, with the column of their days narrowed to them.

        Raises:
            UsageError: If a block lies outside the column's declared range.
        """
        calendar = self.calendar
        column = None if calendar is None else self.universe.attributes.get(calendar.column)
        if calendar is None or blocks is None or not isinstance(column, Date | Datetime):
            return self
        return self.discovered({calendar.column: narrowed(column, calendar, blocks)})

    @property
    def protection(self) -> Protection:
        """The protected unit and its neighbours. Until a limit is chosen, that of the largest one."""
        declared = self.spec.privacy.protection
        return declared if self.rows_per_unit is None else replace(declared, rows_per_unit=self.rows_per_unit)

    @property
    def calendar(self) -> Calendar | None:
        """The calendar that divides the table into blocks; None if the whole table is one block."""
        declared = self.provisional or self.universe
        return None if self.spec.blocks is None else calendar_of(self.spec.blocks, declared.attributes)

    @property
    def series(self) -> str | None:
        """The series of releases that a run belongs to, which remembers the blocks it has covered; None if it belongs to none."""
        blocks = self.spec.blocks
        if blocks is None:
            return None
        return blocks.series or (self.spec.dataset if blocks.window == "new" else None)

    @property
    def strategy(self) -> StrategySpec:
        """The strategy that the spec names, or else one chosen by the workload and the size of the universe."""
        if self.spec.strategy is not None:
            return self.spec.strategy
        dense = self._most_cells <= DENSE_CELLS and not self.workload.ranges and not self._has_large_pairs
        return MwemSpec(name="mwem") if dense else AdaptiveSpec(name="adaptive")

    @property
    def strategy_reason(self) -> str | None:
        """Why this strategy was chosen; None if the spec names it."""
        if self.spec.strategy is not None:
            return None
        if self.workload.ranges:
            return "the workload has ranges"
        if self._most_cells <= DENSE_CELLS and self._has_large_pairs:
            return f"most pairs of columns have more than {PAIR_CELLS:,} cells"
        return f"the universe has {'at most' if self._most_cells <= DENSE_CELLS else 'more than'} {DENSE_CELLS:,} cells"

    @property
    def _most_cells(self) -> int:
        """The most cells that the universe may have. The strategy is chosen before anything is discovered."""
        return (self.provisional or self.universe).size

    @property
    def _has_large_pairs(self) -> bool:
        """Whether most pairs of columns in the workload have many cells. A single pair is best measured as it is."""
        shape = (self.provisional or self.universe).shape
        cells = [prod(shape[axis] for axis in axes) for axes in self.workload.parts() if len(axes) == 2]
        return len(cells) > 1 and median(cells) > PAIR_CELLS

    @property
    def output_folder(self) -> AnyPath:
        """The folder for this dataset's releases."""
        return self.outputs / self.spec.dataset

    @property
    def outputs(self) -> AnyPath:
        """The folder that `output.path` names, which holds the releases of several datasets."""
        named = any_path(self.spec.output.path)
        return named if isinstance(named, ObjectPath) else self.path.parent / named


def declare(spec: ReleaseSpec, *, universe: Universe, path: Path) -> Declaration:
    """Return the declaration of a checked spec and its universe."""
    workload, digest = spec.workload.over(universe), _digest(spec, universe)
    return Declaration(path=path, spec=spec, universe=universe, workload=workload, digest=digest)


def _digest(spec: ReleaseSpec, universe: Universe) -> str:
    """Hash the meaning of a spec: its keys, the values in separate files, and the order of columns in constraints, of which `repair` changes the last."""
    meaning = {
        "spec": spec.model_dump(mode="json"),
        "values": {
            name: universe.attributes[name].labels
            for name, column in spec.universe.items()
            if getattr(column, "values_from", None) is not None
        },
        "columns": [constraint.columns for constraint in universe.constraints],
    }
    return hashlib.sha256(json.dumps(meaning, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

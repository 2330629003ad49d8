"""The release spec as one pydantic model."""

import re
from collections.abc import Iterator
from fractions import Fraction
from math import comb
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from dpcore.object_store import output_address
from dpcore.privacy.accounting.amounts import LARGEST
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.scalars import is_number, is_whole
from dpcore.spec.about import AboutSpec
from dpcore.spec.blocks import BlocksSpec
from dpcore.spec.categories import BooleanSpec, CategoricalSpec
from dpcore.spec.constraints import ConstraintList
from dpcore.spec.days import DateSpec, DatetimeSpec
from dpcore.spec.document import Place
from dpcore.spec.engine import EngineSpec
from dpcore.spec.numbers import IntegerSpec, NumberSpec
from dpcore.spec.parts import Finite, Name, SpecPart
from dpcore.spec.persons import PersonsSpec
from dpcore.spec.prior import Prior
from dpcore.spec.source import SourceSpec
from dpcore.spec.workload import MOST_PARTS, USUAL_ORDER, WorkloadSpec

MOST_ROWS = 10**9
"""The most rows of a release."""

AUTO = "auto"
AUTO_LIMITS = (1, 2, 4, 8, 16, 32, 64)
"""The limits that `max_rows_per_unit: auto` chooses from."""

MOST_PER_UNIT = 1_000_000

AttributeSpec = Annotated[
    CategoricalSpec | BooleanSpec | IntegerSpec | NumberSpec | DateSpec | DatetimeSpec,
    Field(discriminator="type"),
]
RowCount = Annotated[int, Field(ge=1, le=10**12)]


class WeightSpec(SpecPart):
    """A column of whole numbers: how many times each row counts."""

    column: Annotated[str, Field(min_length=1)] = Field(description="the column with the weight, which is not released")
    max: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        description="the largest weight, to which larger ones are clipped; all noise grows with it; fractions are rounded down, negative and non-numeric weights count 0"
    )


def _share(value: Any) -> Any:
    """Read a share that is written in percent, or as a number from 0 to 1."""
    written = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?%", value) if isinstance(value, str) else None
    share = float(Fraction(written[1]) / 100) if written else value
    if not is_number(share) or not 0 <= share <= 1:
        raise ValueError("must be a share such as 20 %, from 0 % to 100 %")
    return share


class PrivacySpec(SpecPart):
    """The protected unit, and the budget of the release."""

    unit: Annotated[str, Field(min_length=1)] = Field(description="`row`, or the column that identifies a person")
    max_rows_per_unit: int | Literal["auto"] = Field(
        1,
        description="how many rows of a person are kept, chosen uniformly at random; all noise grows with it; `auto`: a number from 1 to 64, "
        "chosen by a noisy histogram of the rows per person, for a twenty-fifth of the budget; the release then describes all rows, if that budget tells sizes apart",
    )
    weight: WeightSpec | None = Field(
        None, description="a column that gives how many times each row counts; default: once"
    )
    neighbours: Annotated[Neighbours, Field(strict=False)] = Field(
        description="add-remove: add or remove one unit; replace-one: replace one unit by another"
    )
    epsilon: Annotated[Finite, Field(gt=0)] = Field(description="the budget of this release")
    delta: Annotated[Finite, Field(ge=0, lt=1)] = Field(
        description="0 for pure differential privacy; otherwise far below one over the number of people"
    )
    expect_rows: Annotated[tuple[RowCount, RowCount], Field(strict=False)] | None = Field(
        None,
        description="the minimum and maximum number of rows expected to count, after a declared `max_rows_per_unit`, such as [20000, 200000]: the run first measures the total, for a fiftieth of the budget, "
        "and stops if the noisy total lies outside",
    )
    lose: Annotated[Finite, BeforeValidator(_share)] | None = Field(
        None,
        description="the largest share of the rows that may be dropped; default: 20 %; the run first measures which columns drop rows, for a hundredth "
        "of the budget, and stops if more is lost; 100 %: nothing is measured",
    )

    @field_validator("epsilon")
    @classmethod
    def _can_be_budgeted(cls, value: float) -> float:
        if value > LARGEST:
            raise ValueError(f"must be at most {LARGEST:,}; 1 is usual")
        return value

    @field_validator("expect_rows")
    @classmethod
    def _rising(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and value[0] > value[1]:
            raise ValueError("has its larger number first; swap them")
        return value

    @field_validator("max_rows_per_unit", mode="before")
    @classmethod
    def _a_limit(cls, value: Any) -> Any:
        whole = is_whole(value)
        if value != AUTO and not (whole and 1 <= value <= MOST_PER_UNIT):
            raise ValueError(f"must be a whole number from 1 to {MOST_PER_UNIT:,}, or auto")
        return value

    @field_validator("max_rows_per_unit")
    @classmethod
    def _one_row_is_one_row(cls, value: int | str, info: ValidationInfo) -> int | str:
        if info.data.get("unit") == "row" and value == AUTO:
            raise ValueError("cannot be auto when the unit is `row`; name the person's column as `unit`, or remove it")
        if info.data.get("unit") == "row" and value != 1:
            raise ValueError("must be 1 when the unit is `row`; name the person's column as `unit` to keep more")
        return value

    @property
    def protection(self) -> Protection:
        """The protected unit and its neighbours, for the layers that compute. With `auto`, the limit is the largest that can be chosen."""
        limit = self.max_rows_per_unit
        return Protection(
            unit=self.unit,
            rows_per_unit=AUTO_LIMITS[-1] if limit == "auto" else limit,
            neighbours=self.neighbours,
            weight=None if self.weight is None else self.weight.column,
            row_weight=1 if self.weight is None else self.weight.max,
        )


class AnyStrategySpec(SpecPart):
    """How the model learns.

    Attributes:
        single_counts: Whether a round measures a single count, wherever it lies, instead of a marginal; it starts from equal weights.
        has_ranges: Whether range counts can be measured.
        merges_cells: Whether a marginal with too many cells is measured with merged ones.
    """

    single_counts: ClassVar[bool] = False
    has_ranges: ClassVar[bool] = False
    merges_cells: ClassVar[bool] = False


class MwemSpec(AnyStrategySpec):
    """Multiplicative weights with the exponential mechanism, on whole marginals."""

    name: Literal["mwem"]
    rounds: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="the number of marginals to select; default: chosen automatically"
    )


class PmwSpec(AnyStrategySpec):
    """Private multiplicative weights on single counting queries, with a threshold."""

    single_counts: ClassVar[bool] = True
    name: Literal["pmw"]
    rounds: Annotated[int, Field(ge=1, le=1000)] = Field(50, description="the maximum number of queries to select")
    alpha: Annotated[Finite, Field(gt=0, lt=1)] = Field(
        0.01,
        description="the target error, as a share of the rows; the run ends once no query seems to have an error above 2 alpha",
    )


class AdaptiveSpec(AnyStrategySpec):
    """Multiplicative weights on a factored model: for universes of any size."""

    has_ranges: ClassVar[bool] = True
    merges_cells: ClassVar[bool] = True
    name: Literal["adaptive"]
    rounds: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="the number of marginals to select; default: chosen automatically"
    )
    max_model_mb: Annotated[Finite, Field(gt=0, le=10_000)] = Field(
        8.0, description="the largest size of the model; a larger one is slower and, with a large budget, more accurate"
    )


StrategySpec = MwemSpec | PmwSpec | AdaptiveSpec
STRATEGIES: dict[str, type[StrategySpec]] = {"adaptive": AdaptiveSpec, "mwem": MwemSpec, "pmw": PmwSpec}


def contradictions(
    workload: WorkloadSpec, *, strategy: str | None, prior: bool, columns: int
) -> Iterator[tuple[Place, str]]:
    """Yield the contradictions within a workload, or between the named strategy and its workload and prior.

    Each is the place, and what must change there.
    """
    listed = not isinstance(workload.marginals, int)
    if isinstance(workload.marginals, int):
        order, targeted = workload.marginals, workload.target is not None
        number = comb(columns - targeted, max(order - targeted, 0))
        if number * (2**order - 1) > MOST_PARTS:
            yield (
                ("workload", "marginals"),
                f"must be smaller: {columns} columns have {number:,} such marginals, which is too many; otherwise name a `target`, or list the marginals",
            )
    if workload.target is not None and workload.marginals == 1:
        yield (
            ("workload", "marginals"),
            "must be at least 2 if the workload has a `target`, because a target is about its pairs with other columns",
        )
    named = STRATEGIES.get(str(strategy))
    if named is None:
        return
    if workload.ranges and not named.has_ranges:
        yield ("strategy", "name"), "must be adaptive if the workload has `ranges`; change it, or remove `ranges`"
    elif named.single_counts and workload.weighted:
        yield (
            ("strategy", "name"),
            f"must be adaptive or mwem if marginals have weights: {strategy} treats all counts alike",
        )
    elif named.single_counts and workload.target is not None and listed:
        yield (
            ("strategy", "name"),
            f"must be adaptive or mwem if listed marginals have a `target`: {strategy} cannot learn some marginals first",
        )
    if named.single_counts and prior:
        yield (
            ("prior",),
            f"cannot be used by strategy {strategy}, which starts from equal weights; use mwem or adaptive",
        )


class OutputSpec(SpecPart):
    """The folder of the release, and its number of rows."""

    path: Annotated[str, Field(min_length=1), AfterValidator(output_address)] = Field(
        "releases", description="a folder, relative to the spec, or an object store, such as s3://bucket/releases"
    )
    rows: Literal["noisy"] | Annotated[int, Field(ge=1, le=MOST_ROWS)] = Field(
        "noisy", description="`noisy`: as many rows as the noisy total; or a number of your choice"
    )
    keep: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None,
        description="how many releases keep their data: after a publication, the data of older ones is removed; default: all",
    )


class ReleaseSpec(SpecPart):
    """A release: one private table in, one synthetic table out."""

    dataset: Name = Field(description="the ledger account that pays")
    source: SourceSpec = Field(
        default_factory=SourceSpec.none,
        description="where the raw table is; leave it out only if a Python program passes the table",
    )
    privacy: PrivacySpec
    blocks: BlocksSpec | None = Field(
        None, description="a separate budget for each period of time; default: one for the whole table"
    )
    persons: PersonsSpec | None = Field(
        None,
        description="keep the rows of one synthetic person together, by a synthetic id; default: every row stands alone",
    )
    universe: Annotated[dict[str, AttributeSpec], Field(min_length=1)] = Field(
        description="the columns to release, with all the values that each may have"
    )
    constraints: ConstraintList | None = Field(
        None, description="facts about columns that every released row satisfies; they cost no budget; default: none"
    )
    workload: WorkloadSpec = WorkloadSpec(marginals=USUAL_ORDER)
    strategy: Annotated[StrategySpec, Field(discriminator="name")] | None = Field(
        None,
        description="how the model learns; default: mwem for small universes without `ranges`, adaptive for all others",
    )
    prior: Prior | None = Field(
        None,
        description="what the weights start from: a public table, or `latest`, the dataset's newest release; default: equal weights",
    )
    output: OutputSpec = OutputSpec()
    about: AboutSpec | None = Field(
        None,
        description="who publishes the dataset, and what for; with it, a release has an entry for the OpenDP deployments registry",
    )
    engine: EngineSpec | None = Field(None, description="where the table is read and counted; default: in this process")
    analyst: Name | None = Field(
        None, description="who asks for the release; required if the account has allowances for analysts"
    )
    purpose: Name | None = Field(
        None, description="what the release is for; required if the account has allowances for purposes"
    )

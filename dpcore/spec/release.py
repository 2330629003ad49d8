"""The release spec: what a steward declares, as one pydantic model."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from dpcore.privacy.protection import Neighbours, Protection
from dpcore.spec.attributes import AttributeSpec, Finite, SpecPart
from dpcore.spec.blocks import BlocksSpec
from dpcore.spec.engine import EngineSpec
from dpcore.spec.source import SourceSpec
from dpcore.spec.workload import USUAL_ORDER, WorkloadSpec

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
MOST_ROWS = 10**9
"""Of a release."""


RowCount = Annotated[int, Field(ge=1, le=10**12)]


class WeightSpec(SpecPart):
    """A column of whole numbers: a row counts as often as it says."""

    column: Annotated[str, Field(min_length=1)] = Field(description="the column with the weight, which is not released")
    max: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        description="the most that a row may count, all noise grows with it; fractions are rounded down, what is below 0 or no number counts 0"
    )


class PrivacySpec(SpecPart):
    """Whom the release protects, and what it may spend."""

    unit: Annotated[str, Field(min_length=1)] = Field(description="`row`, or the column that identifies a person")
    max_rows_per_unit: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        1, description="how many rows of a person are kept, chosen uniformly; all noise grows with it"
    )
    weight: WeightSpec | None = Field(None, description="a column that says how often each row counts; left out, once")
    neighbours: Annotated[Neighbours, Field(strict=False)] = Field(
        description="add-remove: one unit more or less; replace-one: one unit exchanged"
    )
    epsilon: Annotated[Finite, Field(gt=0)] = Field(description="what this release may spend")
    delta: Annotated[Finite, Field(ge=0, lt=1)] = Field(
        description="0 for pure differential privacy; else below 1 / people"
    )
    expect_rows: Annotated[tuple[RowCount, RowCount], Field(strict=False)] | None = Field(
        None,
        description="the least and the most rows that should count, such as [20000, 200000]: a fiftieth of the budget buys the noisy total first, "
        "and the run stops if that lies outside",
    )

    @field_validator("expect_rows")
    @classmethod
    def _rising(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and value[0] > value[1]:
            raise ValueError("has its larger number first; swap them")
        return value

    @field_validator("max_rows_per_unit")
    @classmethod
    def _one_row_is_one_row(cls, value: int, info: ValidationInfo) -> int:
        if info.data.get("unit") == "row" and value != 1:
            raise ValueError("is 1 when the unit is `row`; name the person's column as `unit` to keep more")
        return value

    @property
    def protection(self) -> Protection:
        """Whom the release protects, for the layers that compute."""
        return Protection(
            unit=self.unit,
            rows_per_unit=self.max_rows_per_unit,
            neighbours=self.neighbours,
            weight=None if self.weight is None else self.weight.column,
            row_weight=1 if self.weight is None else self.weight.max,
        )


class MwemSpec(SpecPart):
    """Multiplicative weights with the exponential mechanism, on whole marginals."""

    name: Literal["mwem"]
    rounds: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="how many marginals to select; chosen for you if left out"
    )


class PmwSpec(SpecPart):
    """Private multiplicative weights on single counting queries, with a threshold."""

    name: Literal["pmw"]
    rounds: Annotated[int, Field(ge=1, le=1000)] = Field(50, description="how many queries to select at most")
    alpha: Annotated[Finite, Field(gt=0, lt=1)] = Field(
        0.01,
        description="the accuracy aimed at, as a share of the rows; the run ends once no query seems worse than 2 alpha",
    )


class AdaptiveSpec(SpecPart):
    """Multiplicative weights on a factored model: for universes of any size."""

    name: Literal["adaptive"]
    rounds: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="how many marginals to select; chosen for you if left out"
    )
    max_model_mb: Annotated[Finite, Field(gt=0, le=10_000)] = Field(
        8.0, description="how large the model may grow; a larger one is slower and, with a large budget, more exact"
    )


StrategySpec = MwemSpec | PmwSpec | AdaptiveSpec
STRATEGIES: dict[str, type[StrategySpec]] = {"adaptive": AdaptiveSpec, "mwem": MwemSpec, "pmw": PmwSpec}


class OutputSpec(SpecPart):
    """Where the release goes, and how many rows it has."""

    path: Annotated[str, Field(min_length=1)] = Field("releases", description="a folder, relative to the spec")
    rows: Literal["noisy"] | Annotated[int, Field(ge=1, le=MOST_ROWS)] = Field(
        "noisy", description="`noisy`: as many as the noisy total says; or a number of your own"
    )


class ReleaseSpec(SpecPart):
    """A release: one private table in, one synthetic table out."""

    dataset: Annotated[str, Field(pattern=NAME, max_length=100)] = Field(description="the ledger account that pays")
    source: SourceSpec = Field(
        default_factory=SourceSpec.none,
        description="where the raw table is; left out only where a Python program hands it over",
    )
    privacy: PrivacySpec
    blocks: BlocksSpec | None = Field(
        None, description="a budget for each period of time; left out, one for the whole table"
    )
    universe: Annotated[dict[str, AttributeSpec], Field(min_length=1)] = Field(
        description="the columns to release, and everything that may be in them"
    )
    workload: WorkloadSpec = WorkloadSpec(marginals=USUAL_ORDER)
    strategy: Annotated[StrategySpec, Field(discriminator="name")] | None = Field(
        None,
        description="how the model learns; left out, mwem for small universes without `ranges` and adaptive for all others",
    )
    output: OutputSpec = OutputSpec()
    engine: EngineSpec | None = Field(None, description="where the table is read and counted; left out, here")
    analyst: Annotated[str, Field(pattern=NAME, max_length=100)] | None = Field(
        None, description="in whose name; needed if the account has an allowance for each analyst"
    )
    purpose: Annotated[str, Field(pattern=NAME, max_length=100)] | None = Field(
        None, description="what for; needed if the account has an allowance for each purpose"
    )

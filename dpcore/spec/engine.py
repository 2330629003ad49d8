"""The spec's `engine`: where the table is read and counted."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from dpcore.spec.parts import SpecPart


class EngineSpec(SpecPart):
    """A Dask cluster that reads, bounds and counts a table too large for one machine. Only counts come back."""

    name: Literal["dask"]
    scheduler: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description="the address of a scheduler, such as tcp://10.0.0.5:8786; default: a local cluster of processes",
    )
    workers: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="the number of processes of a local cluster; default: one per core"
    )

    @model_validator(mode="after")
    def _one_way(self) -> "EngineSpec":
        if self.scheduler is not None and self.workers is not None:
            raise ValueError("has both `scheduler` and `workers`; a scheduler has its own workers, so remove `workers`")
        return self

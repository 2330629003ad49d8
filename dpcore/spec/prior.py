"""The spec's `prior`: what is known before the release, from which its weights start."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from dpcore.spec.document import Document
from dpcore.spec.parts import SpecPart

LATEST_RELEASE = "latest"


def _local(path: str) -> str:
    if "://" in path or any(mark in path for mark in "*?["):
        raise ValueError("must be one file on this machine")
    return path


class PriorSpec(SpecPart):
    """A public table, or the newest release of the dataset. `prior: latest` is short for `prior: {release: latest}`.

    Whoever writes the path of a table here declares that everybody may read it.
    """

    path: Annotated[str, Field(min_length=1), AfterValidator(_local)] | None = Field(
        None,
        description="a CSV, Parquet or Arrow file with the columns of the universe, relative to the spec; its rows are not protected",
    )
    release: Literal["latest"] | None = Field(
        None, description="`latest`: the dataset's newest release that is not withdrawn; equal weights if there is none"
    )
    unchanged: bool = Field(
        default=False,
        description="true: you declare that the table is the same as for that release; its cells are taken over, and its measurements count",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.path is None) == (self.release is None):
            raise ValueError("must be either a table or a release")
        return self


def _whole(value: Any) -> Any:
    return {"release": value} if value == LATEST_RELEASE else value


Prior = Annotated[PriorSpec, BeforeValidator(_whole, json_schema_input_type=Literal["latest"] | PriorSpec)]


def check_prior(document: Document) -> None:
    """Report what contradicts a table that has not changed, or what a run would learn anew, on the raw document."""
    prior = document.section("prior")
    if prior.get("unchanged") is not True:
        return
    if prior.get("release") != LATEST_RELEASE:
        document.mistake(
            ("prior", "unchanged"),
            "`prior.unchanged` is about an earlier release of the same table; write `prior: {release: latest, unchanged: true}`",
        )
    if document.data.get("blocks") is not None:
        document.mistake(
            ("prior", "unchanged"),
            "`prior.unchanged` is about the whole table, but the spec has `blocks`; remove one of the two",
        )
    constraints = document.data.get("constraints")
    if isinstance(constraints, list) and any(isinstance(part, dict) and "depends" in part for part in constraints):
        document.mistake(
            ("prior", "unchanged"),
            "`prior.unchanged` cannot be used with `depends`, which each run learns anew; list the pairs with `possible`, or remove `unchanged`",
        )

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

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.path is None) == (self.release is None):
            raise ValueError("must be either a table or a release")
        return self


def _whole(value: Any) -> Any:
    return {"release": value} if value == LATEST_RELEASE else value


Prior = Annotated[PriorSpec, BeforeValidator(_whole, json_schema_input_type=Literal["latest"] | PriorSpec)]


def check_prior(document: Document) -> None:
    """Report a prior that the named strategy cannot use, or that is the private table itself, on the raw document."""
    prior, strategy, source = (document.data.get(key) for key in ("prior", "strategy", "source"))
    if prior is None:
        return
    if isinstance(strategy, dict) and strategy.get("name") == "pmw":
        document.mistake(
            ("prior",), "`prior` cannot be used by strategy pmw, which starts from equal weights; use mwem or adaptive"
        )
    paths = [part.get("path") if isinstance(part, dict) else None for part in (prior, source)]
    if all(isinstance(path, str) for path in paths):
        one, other = (document.path.parent.joinpath(str(path)).resolve() for path in paths)
        if one == other:
            document.mistake(
                ("prior", "path"), "`prior.path` names the private table of `source`; name a table that is public"
            )

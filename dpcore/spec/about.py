"""The spec's `about`: who publishes the dataset, and what for. It is public, and changes nothing in the rows."""

from typing import Annotated, Literal

from pydantic import Field

from dpcore.spec.parts import Prose, SpecPart

Sector = Literal["Technology", "Healthcare", "Education", "Government", "Energy"]
"""The sectors that the OpenDP deployments registry knows."""

Texts = Annotated[tuple[Prose, ...], Field(strict=False, min_length=1)]


class AboutSpec(SpecPart):
    """Who publishes the dataset, and what for: everything that the OpenDP deployments registry asks and that only people know."""

    title: Prose = Field(description="the name of the dataset for people")
    description: Prose = Field(description="what the dataset is about")
    curators: Texts = Field(description="the organisations that publish it")
    intended_use: Prose = Field(description="what it is meant to be used for")
    region: Prose = Field(description="which region it is about, or whose law applies")
    authors: Texts = Field(description="who wrote this block; the registry names them as the authors of its entry")
    sector: Sector | None = Field(None, description="the sector that it is about")
    justification: Prose | None = Field(None, description="why epsilon, unit and the other choices are as they are")
    sources: Texts | None = Field(None, description="addresses of pages about the dataset")

"""The contract of `manifest.json`: what each key means, as a pydantic model and as a JSON Schema.

Readers should ignore keys that they do not know: later versions of dpflow add some. A key that is documented here keeps its meaning within a
format.
"""

import inspect
import re
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dpcore.descent import Finding
from dpcore.release.statement import StatedPart, Statement
from dpcore.release.versions import Version
from dpcore.reporting.outcome import Round
from dpcore.universe.dependencies import LearnedFunction

FORMAT = 2
"""The format of manifests that this version writes. Since format 2 a release has `SHA256SUMS` and descriptors for other programs."""

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, kw_only=True)
class StatedPrivacy(Statement):
    """The privacy statement, with the guarantee as a sentence.

    Attributes:
        guarantee: What the release promises, and to whom.
    """

    guarantee: str


@dataclass(frozen=True)
class SignedBy:
    """The key that signed `SHA256SUMS`. Anyone can put a key of their own here, so compare it with the publisher's."""

    public_key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    algorithm: Literal["ed25519"] = "ed25519"

    def to_json(self) -> dict[str, str]:
        """Return plain JSON values."""
        return asdict(self)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class File(_Part):
    """A file of the release."""

    path: str = Field(description="the path in the folder of the release, with slashes")
    rows: int | None = Field(description="the number of rows of a Parquet file, else null")
    bytes: int = Field(ge=0, description="the size")
    sha256: Sha256 = Field(description="the SHA-256 of the content")


class ListedErrors(_Part):
    """What `errors.parquet` lists."""

    level: float = Field(description="the confidence level of its intervals, such as 0.95")
    marginals: int = Field(description="the number of marginals of the workload whose counts it lists")
    left_out: int = Field(description="the number of marginals that are too large to be listed")
    left_out_marginals: tuple[tuple[str, ...], ...] = Field(description="the columns of the first of those")


class Added(_Part):
    """A release that a merged release is the sum of."""

    release: str = Field(description="its name")
    manifest_sha256: Sha256 = Field(description="the SHA-256 of its manifest")
    run: str = Field(description="the run that made it")
    blocks: tuple[str, ...] = Field(description="the blocks that it covers")
    epsilon: float = Field(description="its own epsilon")
    delta: float = Field(description="its own delta")


class Manifest(_Part):
    """`manifest.json` of a release that dpflow has published."""

    format: Literal[2] = Field(description="the version of this contract")
    dataset: str = Field(description="the dataset, which is also the account in the ledger that paid")
    release: str = Field(description="the name of the release and of its folder")
    created: str = Field(description="the minute in which it was written, in ISO 8601 and UTC")
    rows: int = Field(ge=0, description="the number of synthetic rows")
    warnings: tuple[str, ...] = Field(description="what a reader should know before using the rows")
    privacy: StatedPrivacy = Field(
        description="the privacy statement, which is also in the footer of each Parquet file"
    )
    columns: dict[str, str] = Field(description="the Arrow type of each column of the rows, in their order")
    spec: dict[str, Any] = Field(
        description="the spec without `source` and `engine`; `dpflow schema` prints the schema of specs"
    )
    discovered: tuple[Finding, ...] = Field(description="the values and bins that were found in the data, with noise")
    universe: dict[str, dict[str, Any]] = Field(description="the columns whose cells do not follow from the spec alone")
    dependencies: tuple[LearnedFunction, ...] | None = Field(
        None, description="the functions that were learned for columns that determine others; absent without any"
    )
    persons: dict[str, Any] | None = Field(
        None, description="how rows were divided into synthetic persons; absent if they have no ids"
    )
    strategy: str = Field(description="how the model learned: mwem, pmw or adaptive")
    prior: dict[str, Any] | None = Field(
        None,
        description="the public table or the earlier release that the spec names as its prior, and whether it was used; absent without one",
    )
    parts: tuple[Added, ...] | None = Field(
        None,
        description="the releases that were added to make this one, by `dpflow merge`; absent in a release of a run",
    )
    rounds: tuple[Round, ...] = Field(description="what each round measured")
    errors: ListedErrors | None = Field(None, description="absent if the release has no `errors.parquet`")
    files: tuple[File, ...] = Field(description="every file but this one, `SHA256SUMS` and its signature")
    signed_by: SignedBy | None = Field(description="null if the release is not signed")
    version: Version = Field(description="the version of the spec within the dataset's series of releases")


_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)


def manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema of a manifest. Dataclasses describe their fields in the docstring, and here each field has its own part of it."""
    schema = Manifest.model_json_schema(mode="serialization")
    for name, part in schema["$defs"].items():
        about, _, attributes = part.get("description", "").partition("\n\nAttributes:\n")
        for narrower in (StatedPrivacy, StatedPart):
            if name == narrower.__name__:
                attributes += "\n" + inspect.getdoc(narrower.__base__).partition("Attributes:\n")[2]  # type: ignore[union-attr]
        part["description"] = about
        for key, text in _ATTRIBUTE.findall(attributes):
            part["properties"][key]["description"] = " ".join(text.split())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}

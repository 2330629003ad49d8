"""The contract of `manifest.json`: what each key means, as a pydantic model and as a JSON Schema, and its reader.

Readers should ignore keys that they do not know: later versions of dpflow add some. A key that is documented here keeps its meaning within a
format. All of dpflow reads the manifest of a release here, so that no other code meets one that is damaged.
"""

import inspect
import json
import math
import re
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dpcore.descent import Finding
from dpcore.object_store import AnyPath
from dpcore.privacy.accounting import Currency
from dpcore.release.integrity import (
    MANIFEST,
    MOST_PARTS,
    damaged,
    is_folder,
    one_line,
    parts_of,
    unknown,
)
from dpcore.release.problems import Contents, listed_files
from dpcore.release.statement import ACCOUNTING, StatedPart, Statement
from dpcore.release.versions import Version
from dpcore.reporting.outcome import Round
from dpcore.spec.release import ReleaseSpec
from dpcore.universe.dependencies import LearnedFunction

FORMAT = 2
"""The format of manifests. It changes if a documented key changes its meaning."""

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
    marginals: int = Field(
        description="the number of marginals whose counts it lists: columns, pairs, and what was measured"
    )
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
    strategy: Literal["mwem", "pmw", "adaptive"] = Field(description="how the model learned")
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

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        """Raise unless the statement has the amount of its accounting, and names blocks if the spec divides rows into them."""
        privacy = self.privacy
        stated = {Currency.PURE: privacy.epsilon, Currency.ZCDP: privacy.rho, Currency.GDP: privacy.mu}
        amount = next((stated[currency] for currency, words in ACCOUNTING.items() if words == privacy.accounting), None)
        if amount is None or not math.isfinite(amount):
            raise ValueError("the statement has no amount")
        if (privacy.blocks is None) != (self.spec.get("blocks") is None):
            raise ValueError("the statement and the spec differ in their blocks")
        return self


def manifest_in(release: AnyPath, *, written: bytes | None = None) -> tuple[dict[str, Any], str]:
    """Return the manifest in the folder of a release, and its SHA-256.

    It is as `SHA256SUMS` has it, with a valid signature if it is signed, and by its contract. `written` is the manifest if the caller has read it.

    Raises:
        ReleaseDamaged: If it is missing, or anything else.
        OutputError: If the store of the release fails.
    """
    with unknown():
        contents = Contents.read(release, written=written)
        there = contents.written is not None or is_folder(release)
        for problem in contents.problems_of_lists():
            raise damaged(release, problem.sentence if there else "it is missing")
    return parsed_manifest(contents.written or b"", release), str(contents.digest)


def parsed_manifest(written: bytes, release: AnyPath) -> dict[str, Any]:
    """Return the content of a manifest that follows its contract.

    Raises:
        ReleaseDamaged: If a key is missing, or has a value of another type.
    """
    if parts_of(written) > MOST_PARTS:
        raise damaged(release, f"{MANIFEST} has more parts than dpflow writes")
    try:
        content: dict[str, Any] = json.loads(written)
        read = Manifest.model_validate_json(written, strict=True).model_dump(mode="json", exclude_unset=True)
        spec = ReleaseSpec.model_validate(content["spec"]).model_dump(mode="json", exclude={"source", "engine"})
        listed_files(content)
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise damaged(release, f"{one_line(place or 'the text')} in {MANIFEST} is not what dpflow writes") from None
    except (ValueError, TypeError, RecursionError):
        raise damaged(release, f"{MANIFEST} is not what dpflow writes") from None
    return {**content, **read, "spec": spec, "privacy": content["privacy"] | read["privacy"]}


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

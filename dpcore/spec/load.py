"""From a YAML file to a checked declaration; all mistakes at once, each with its place and what to write instead."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dpcore.errors import SpecError
from dpcore.privacy import Protection
from dpcore.queries import Workload
from dpcore.spec.attributes import AttributeSpec, CategoricalSpec
from dpcore.spec.document import Document, read_document
from dpcore.spec.release import AdaptiveSpec, MwemSpec, ReleaseSpec, StrategySpec
from dpcore.spec.sentences import KINDS, place_of, sentence
from dpcore.universe import Attribute, Universe

DENSE_CELLS = 1_000_000
"""Up to so many cells in the universe, a spec without a strategy gets the model that holds every cell; above, the factored one."""


@dataclass(frozen=True)
class Declaration:
    """A checked release spec with everything that follows from it alone; no data was touched."""

    path: Path
    spec: ReleaseSpec
    universe: Universe
    workload: Workload
    digest: str

    @property
    def protection(self) -> Protection:
        """Whom the release protects."""
        return self.spec.privacy.protection

    @property
    def strategy(self) -> StrategySpec:
        """The strategy that the spec names, or else the one that suits the size of the universe."""
        if self.spec.strategy is not None:
            return self.spec.strategy
        return MwemSpec(name="mwem") if self.universe.size <= DENSE_CELLS else AdaptiveSpec(name="adaptive")

    @property
    def output_folder(self) -> Path:
        """Where the releases of this dataset go."""
        return self.path.parent / self.spec.output.path / self.spec.dataset


def load_spec(path: str | Path) -> Declaration:
    """Read and check a release spec; raise one SpecError that lists all its mistakes."""
    document = read_document(Path(path))
    if not isinstance(document.data, dict):
        document.mistake((), "the file holds no keys; start from `dpflow init DATASET`")
        document.raise_mistakes()
    spec: ReleaseSpec | None = None
    try:
        spec = ReleaseSpec.model_validate(document.data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            place = place_of(detail["loc"])
            document.mistake(place, sentence(place, detail))
    _check_across(document)
    attributes = _attributes(document, spec)
    document.raise_mistakes()
    if spec is None:
        raise SpecError(f"{path}: the spec is not valid; compare it with `dpflow init DATASET`")
    return declare(spec, universe=Universe(attributes), path=Path(path))


def declare(spec: ReleaseSpec, *, universe: Universe, path: Path) -> Declaration:
    """Return what follows from a checked spec and its universe."""
    names = {name: axis for axis, name in enumerate(universe.names)}
    marginals = spec.workload.marginals
    workload = (
        Workload.all_of(attributes=len(names), order=marginals)
        if isinstance(marginals, int)
        else Workload.of([names[column] for column in marginal] for marginal in marginals)
    )
    return Declaration(path=path, spec=spec, universe=universe, workload=workload, digest=_digest(spec, universe))


def _digest(spec: ReleaseSpec, universe: Universe) -> str:
    """Hash what the spec means: its keys, and the values that stand in files of their own."""
    from_files = {
        name: universe.attributes[name].labels for name, part in spec.universe.items() if _has_values_file(part)
    }
    # What a spec leaves out leaves no trace: a key that comes with a later version changes no older spec's hash.
    named = {key: part for key, part in spec.model_dump(mode="json").items() if part is not None}
    meaning = {"spec": named, "values": from_files}
    return hashlib.sha256(json.dumps(meaning, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _has_values_file(part: AttributeSpec) -> bool:
    return isinstance(part, CategoricalSpec) and part.values_from is not None


def _check_across(document: Document) -> None:
    """Check what involves several parts, on the raw document, so that it is reported beside all other mistakes."""
    data = document.data
    universe = data.get("universe")
    declared = set(universe) if isinstance(universe, dict) else set()
    privacy = data.get("privacy")
    unit = privacy.get("unit") if isinstance(privacy, dict) else None
    if isinstance(unit, str) and unit != "row":
        if unit in declared:
            document.mistake(
                ("universe", unit), f"`{unit}` identifies the unit and can't be released; remove it from the universe"
            )
        if isinstance(privacy, dict) and "max_rows_per_unit" not in privacy:
            document.mistake(
                ("privacy",), "`max_rows_per_unit` is missing; write how many rows of a person to keep, such as 2"
            )
    workload = data.get("workload")
    marginals = workload.get("marginals") if isinstance(workload, dict) else None
    if isinstance(marginals, int) and declared and marginals > len(declared):
        document.mistake(
            ("workload", "marginals"), f"`marginals` is {marginals}, but the universe has {len(declared)} columns"
        )
    if isinstance(marginals, list):
        for row, columns in enumerate(marginals):
            for index, column in enumerate(columns if isinstance(columns, list) else []):
                if column in columns[:index]:
                    document.mistake(
                        ("workload", "marginals", row, index), f"`{column}` stands twice in this marginal; keep one"
                    )
                if column not in declared:
                    document.mistake(
                        ("workload", "marginals", row, index),
                        f"`{column}` is not a column of the universe; declare it or remove it",
                    )


def _attributes(document: Document, spec: ReleaseSpec | None) -> dict[str, Attribute]:
    """Build each attribute; what only shows then (a values file, too many cells) is a mistake at its place."""
    built: dict[str, Attribute] = {}
    raw: Any = document.data.get("universe")
    for name, part in raw.items() if isinstance(raw, dict) else ():
        model = KINDS.get(str(part.get("type"))) if isinstance(part, dict) else None
        if model is None:
            continue
        try:
            declared = spec.universe[name] if spec else model.model_validate(part)
            built[name] = declared.attribute(document.path.parent)  # type: ignore[attr-defined]
        except ValidationError:
            continue  # reported already
        except SpecError as error:
            document.mistake(("universe", name), f"`{name}`: {error}")
    return built

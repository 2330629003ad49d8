"""Load a spec from a YAML file and check it. All mistakes are reported at once, each with its position and what to write instead."""

from pathlib import Path

from pydantic import ValidationError

from dpcore.errors import SpecError
from dpcore.spec.blocks import check_blocks
from dpcore.spec.constraints import check_constraints, constraints_of
from dpcore.spec.declaration import Declaration, declare
from dpcore.spec.discover import check_shares
from dpcore.spec.document import Document, read_document
from dpcore.spec.local_files import check_public_files
from dpcore.spec.marks import MARK, is_reported, report_marks
from dpcore.spec.parts import MOST_SHARE
from dpcore.spec.persons import check_persons
from dpcore.spec.prior import check_prior
from dpcore.spec.release import ReleaseSpec, contradictions
from dpcore.spec.sentences import KINDS, place_of, sentence
from dpcore.spec.shares import Early
from dpcore.spec.workload import USUAL_ORDER, WorkloadSpec, check_workload
from dpcore.universe import Attribute, Universe


def load_spec(path: str | Path, *, with_table: bool = False) -> Declaration:
    """Read and check a release spec. Raise one SpecError that lists all its mistakes.

    Args:
        path: The spec's file.
        with_table: Whether a Python program passes the raw table, so that the spec may leave `source` out.
    """
    document = read_document(Path(path))
    if not isinstance(document.data, dict):
        document.mistake((), "the file has no keys; start from `dpflow init DATASET`")
        document.raise_mistakes()
    marks = report_marks(document)
    spec: ReleaseSpec | None = None
    try:
        spec = ReleaseSpec.model_validate(document.data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            place = place_of(detail["loc"])
            if not is_reported(place, marks):
                document.mistake(place, sentence(place, detail))
    if "source" not in document.data and not with_table:
        document.mistake((), "`source` is missing; write `source: {path: visits.csv}`")
    _check_unit(document)
    _check_weight(document)
    check_public_files(document)
    attributes = _attributes(document, spec)
    check_workload(document, attributes)
    check_blocks(document, attributes)
    check_constraints(document, attributes)
    check_persons(document, attributes)
    if document.data.get("persons") and document.data.get("constraints"):
        document.mistake(
            ("constraints",), "`constraints` cannot be declared together with `persons`; remove one of the two"
        )
    _check_strategy(document)
    check_prior(document)
    if spec is not None:
        bought = {name: getattr(column, "discover", None) or column for name, column in spec.universe.items()}
        shares = {name: getattr(part, "share", None) for name, part in bought.items()}
        check_shares(document, {name: share for name, share in shares.items() if share is not None})
    document.raise_mistakes()
    if spec is None:
        raise SpecError(f"{path}: the spec is not valid; compare it with `dpflow init DATASET`")
    universe = Universe(attributes, constraints_of(spec.constraints))
    declaration = declare(spec, universe=universe, path=Path(path))
    _check_early_shares(document, declaration)
    document.raise_mistakes()
    return declaration


def _check_early_shares(document: Document, declaration: Declaration) -> None:
    """Report that what is learned before the strategy begins leaves too little for the release."""
    finding = declaration.share(Early.PERSONS, Early.DISCOVERY)
    if finding > MOST_SHARE and declaration.early[Early.PERSONS]:
        document.mistake(
            ("persons",),
            f"`persons` and the columns found in the data together take {float(finding):.3g} of the "
            f"budget; write a smaller `share`, so that it is at most {MOST_SHARE:g}, because the release needs the rest",
        )
    if declaration.left < 1 - MOST_SHARE and declaration.dependencies:
        document.mistake(
            ("constraints",),
            f"all that is learned before the release takes {float(1 - declaration.left):.3g} of the budget; write a smaller `share` at `depends`, so "
            f"that it is at most {MOST_SHARE:g}, because the release needs the rest",
        )


def _check_unit(document: Document) -> None:
    """Check the unit against the columns, on the raw document, so that its mistakes are reported together with all others."""
    privacy = document.section("privacy")
    unit = privacy.get("unit")
    if isinstance(unit, str) and unit not in {"row", MARK}:
        if unit in document.section("universe"):
            document.mistake(
                ("universe", unit), f"`{unit}` identifies the unit and cannot be released; remove it from the universe"
            )
        if "max_rows_per_unit" not in privacy:
            document.mistake(
                ("privacy",),
                "`max_rows_per_unit` is missing; write how many rows of a person to keep, such as 2, or auto",
            )


def _check_weight(document: Document) -> None:
    """Check the weight column against the other columns, likewise on the raw document."""
    privacy = document.section("privacy")
    declared = privacy.get("weight")
    weight = declared.get("column") if isinstance(declared, dict) else None
    if not isinstance(weight, str):
        return
    if weight in document.section("universe"):
        document.mistake(
            ("universe", weight),
            f"`{weight}` is the weight of a row and cannot be released too; remove it from the universe",
        )
    if weight == privacy.get("unit"):
        document.mistake(
            ("privacy", "weight", "column"),
            f"`{weight}` identifies the unit and cannot be the weight of its rows; name another column",
        )


def _check_strategy(document: Document) -> None:
    """Report contradictions within the workload, and parts of the spec that the named strategy does not support."""
    try:
        workload = WorkloadSpec.model_validate(document.data.get("workload", {"marginals": USUAL_ORDER}))
    except ValidationError:
        return  # reported already
    mistakes = contradictions(
        workload,
        strategy=document.section("strategy").get("name"),
        prior=document.data.get("prior") is not None,
        columns=len(document.section("universe")),
    )
    for place, correction in mistakes:
        document.mistake(place, f"`{place[-1]}` {correction}")


def _attributes(document: Document, spec: ReleaseSpec | None) -> dict[str, Attribute]:
    """Build each attribute. Errors that only show then (a values file, too many cells) are reported at the column."""
    built: dict[str, Attribute] = {}
    for name, part in document.section("universe").items():
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

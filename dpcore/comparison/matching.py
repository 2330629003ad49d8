"""Check that a release was made from a spec, and return what its run declared: blocks, limit on rows per unit, found cells."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.answers.release import Release
from dpcore.errors import UsageError
from dpcore.ledger import Ledger, Run
from dpcore.object_store import ObjectPath
from dpcore.release.integrity import MANIFEST, one_line
from dpcore.reporting.lineage import published_by
from dpcore.spec import Declaration, load_spec
from dpcore.spec.declaration import declare
from dpcore.spec.release import MOST_PER_UNIT, ReleaseSpec
from dpcore.universe.blocks import Calendar

LOCAL = {"source", "engine"}
"""Parts of a spec that a manifest leaves out: they say where the table is, not what it means."""

FORM = {"privacy": ("epsilon", "delta"), "output": ("path", "rows"), "workload": ("marginals",)}
"""Parts that the form of a run may override, or that only say where the release went."""


@dataclass(frozen=True, eq=False)
class Origin:
    """How a release was made.

    Attributes:
        release: The release.
        granted: The declaration of its run before discovery, with its blocks and its limit on rows per unit.
        run: The run, as the ledger knows it.
        reader: The run that has read the table: `run`, or for a release of a session the run of its first release.
        blocks: The blocks that the reader has read; None if the whole table is one block.
        output: The folder where the spec publishes releases; None if that is an object store.
        delta: The delta of the steward's spec, at which figures are bought. The form of the run may have named another.
    """

    release: Release
    granted: Declaration
    run: Run
    reader: Run
    blocks: tuple[str, ...] | None
    output: Path | None
    delta: float

    @property
    def declaration(self) -> Declaration:
        """The declaration with the cells of the release."""
        return self.granted.discovered(self.release.universe.attributes)

    @property
    def calendar(self) -> Calendar | None:
        """The calendar of the blocks."""
        return self.granted.calendar


def made_from(release: Release, spec: Path, *, ledger: Ledger, with_table: bool) -> Origin:
    """Return how a release was made, if it was made from this spec and is in this ledger.

    Others may write to the folder of a release. So its manifest counts only if the ledger has recorded these very bytes for its run.

    Raises:
        UsageError: If the release is of another spec or another ledger, or if its manifest is not as it was published.
    """
    declared = load_spec(spec, with_table=with_table)
    run = _recorded_run(release, ledger)
    granted = _as_run(release, declared)
    published = published_by(run.claim)
    reader = ledger.run(published[0]) if published else run
    blocks = None if granted.calendar is None else ledger.blocks_of(reader.id)
    return Origin(
        release,
        granted.covering(blocks),
        run,
        reader,
        blocks,
        output=_published(declared),
        delta=declared.spec.privacy.delta,
    )


def _published(declared: Declaration) -> Path | None:
    """Return the folder that others can read: that of all outputs, or of the dataset's if the spec itself lies in the former."""
    if isinstance(declared.output_folder, ObjectPath):
        return None
    folder = declared.output_folder.resolve()
    return folder if declared.path.resolve().is_relative_to(folder.parent) else folder.parent


def _recorded_run(release: Release, ledger: Ledger) -> Run:
    """Return the run of a release. Raise unless the ledger has recorded the release's manifest for it."""
    run_id = str(release.manifest["privacy"]["run"])
    try:
        run = ledger.run(run_id)
    except UsageError:
        raise UsageError(
            f"{one_line(release.folder)} was made with another ledger than {ledger.place}; name its ledger in DPFLOW_LEDGER_URL"
        ) from None
    if release.manifest_sha256 not in ledger.manifests_of(run_id):
        raise UsageError(
            f"{MANIFEST} of {one_line(release.folder)} is not the one that the ledger has recorded: it was changed, or the run is still "
            "open; copy the release again, or see: dpflow ledger verify"
        )
    return run


def _as_run(release: Release, declared: Declaration) -> Declaration:
    """Return the declaration with what the run was started with. Raise if anything else differs from the manifest."""
    before, universe = ReleaseSpec.model_validate(release.manifest["spec"]), declared.universe
    differ = [part for part in before.model_dump() if part not in LOCAL and _differs(part, before, declared.spec)]
    free = {*declared.descents(), declared.calendar.column if declared.calendar else ""}
    differ += [
        f"universe.{name}"
        for name, attribute in universe.attributes.items()
        if "universe" not in differ and name not in free and attribute != release.universe.attributes.get(name)
    ]
    if differ:
        raise UsageError(
            f"{one_line(release.folder)} was not made from {one_line(declared.path)}: `{'`, `'.join(differ)}` "
            f"{'differs' if len(differ) == 1 else 'differ'}; name the spec that it was made from"
        )
    spec = before.model_copy(update={part: getattr(declared.spec, part) for part in LOCAL})
    as_run = declare(spec, universe=universe, path=declared.path)
    counted = int(release.manifest["privacy"]["max_rows_per_unit"])
    return as_run.limited(MOST_PER_UNIT if release.describes_all else counted)


def _differs(part: str, before: ReleaseSpec, now: ReleaseSpec) -> bool:
    if part == "strategy":
        return False  # the form may name another
    dumps = [_dumped(getattr(spec, part)) for spec in (before, now)]
    if all(isinstance(dump, dict) for dump in dumps):
        free = FORM.get(part, ())
        # as lists: the order of columns decides their numbers
        dumps = [[item for item in dump.items() if item[0] not in free] for dump in dumps]
    return bool(dumps[0] != dumps[1])


def _dumped(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _dumped(value) for name, value in part.items()}
    return part.model_dump(mode="json") if hasattr(part, "model_dump") else part

"""Start from the dataset's newest release: its published rows are a prior, and the promise counts the runs behind them (docs/decisions/0064).

Which release that is follows from the ledger and the folder of releases alone. A run is bound to it by its claim. When it is resumed, it starts
from the same release, even if newer ones have been published since.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.answers.release import Release, open_release_with
from dpcore.errors import ReleaseDamaged, SourceError, UsageError
from dpcore.ledger import Account, Ledger, Run, RunState, claim_in
from dpcore.ledger.checks import LONGEST
from dpcore.object_store import AnyPath
from dpcore.release.integrity import listed_files, one_line, open_regular, refuse_store_error
from dpcore.release.listing import readable
from dpcore.release.manifest import parsed_manifest
from dpcore.release.withdrawal import is_recorded, notice_of, recorded_manifest
from dpcore.reporting.lineage import bound_claim, bound_to
from dpcore.runs.paying import claim_of
from dpcore.runs.prior import Prior, PriorTable, PublicTable, check_columns, compared, unusable
from dpcore.spec import Declaration
from dpcore.tables.sources.source import Source

KIND = "earlier release"
NO_RELEASE = {"kind": KIND, "name": None, "used": False}
"""What the manifest says if there was no release to start from."""


def find_prior(declaration: Declaration, *, ledger: Ledger, account: Account, run_id: str) -> Prior | None:
    """Find the prior of a run, and check that it has the spec's columns. Read no row. Return None if there is none.

    Raises:
        UsageError: If it cannot be read, has another schema, or is not what the run was started with. Nothing was spent.
    """
    named = declaration.spec.prior
    if named is None:
        return None
    before = next((run for run in ledger.runs(account.name) if run.id == run_id), None)
    if named.path is not None:
        return PublicTable.of(named.path, declaration, before=before)
    return earlier_release(declaration, ledger=ledger, account=account, before=before)


def earlier_release(
    declaration: Declaration, *, ledger: Ledger, account: Account, before: Run | None
) -> "EarlierRelease | UnneededStart | None":
    """Return the release that a run starts from: the one that it is bound to or, for a new run, the newest. None if there was none.

    Raises:
        UsageError: If it is not as published, was withdrawn since, or has other columns. Nothing was spent.
    """
    folder = declaration.output_folder
    if before is None:
        made = _newest(ledger, account)
        release = None if made is None else _recorded(ledger, made, folder / str(made.release))
        if release is not None:
            release.require_short(declaration)
    else:
        bound = bound_to(before.claim)
        if bound is not None and _is_over(ledger, before, folder):
            return UnneededStart(*bound)
        release = None if bound is None else _bound(ledger, before, bound, folder)
    if release is not None:
        release.check(declaration)
    return release


@dataclass(frozen=True, eq=False)
class EarlierRelease(Prior):
    """A release of the dataset that a run starts from, not yet read.

    Attributes:
        run: The run that made it.
        name: Its name.
        sha256: The hash of its manifest, to which the run is bound.
        folder: Its folder.
        files: The files of its rows, with their hashes.
        manifest: Its manifest, as the ledger has recorded it.
    """

    run: str
    name: str
    sha256: str
    folder: AnyPath
    files: tuple[tuple[str, str], ...]
    manifest: bytes

    @property
    def made_from(self) -> Sequence[Mapping[str, Any]]:
        """The runs that it is made from, as its manifest states them."""
        return json.loads(self.manifest)["privacy"]["made_from"]  # type: ignore[no-any-return]

    def opened(self) -> Release:
        """Return the release with its measurements.

        Raises:
            UsageError: If its files are not as published. Nothing was spent.
        """
        return open_release_with(self.manifest, self.folder)

    def check(self, declaration: Declaration) -> None:
        """Raise unless the rows have all columns that are compared. Read no row."""
        for file, _ in self.files:
            try:
                with open_regular(self.folder / file) as opened:
                    empty = pq.read_schema(opened).empty_table()
                check_columns(Source.of(empty), declaration, name=f"release {one_line(self.name)}")
            except (OSError, pa.ArrowException) as error:
                refuse_store_error(self.folder, error)
                raise self._changed(file) from None
            except SourceError as error:
                raise unusable(f"release {one_line(self.name)}: {error}") from None

    def require_short(self, declaration: Declaration) -> None:
        """Raise if the id of the earlier run is too long for the claim of a run, which ends with it."""
        room = LONGEST - len(claim_in(declaration.series, self.bound(claim_of(declaration)))) + len(self.run)
        if len(self.run) > room:
            raise unusable(
                f"the id of the run that made release {one_line(self.name)} has {len(self.run)} characters, and a run can only be bound to an id "
                f"of at most {room}"
            )

    def bound(self, claim: str) -> str:
        """Return the claim of a run, bound to this release."""
        return bound_claim(claim, run=self.run, manifest_sha256=self.sha256)

    def read(self, declaration: Declaration) -> PriorTable:
        """Read the columns that can be compared with the spec's, from the very files that the ledger has recorded."""
        columns = compared(declaration)
        tables = [self._table(file, digest, columns) for file, digest in self.files]
        return PriorTable(self, tuple(batch for table in tables for batch in table.to_batches()), columns)

    def _table(self, file: str, digest: str, columns: tuple[str, ...]) -> pa.Table:
        try:
            with open_regular(self.folder / file) as opened:
                if hashlib.file_digest(opened, "sha256").hexdigest() != digest:
                    raise self._changed(file)
                opened.seek(0)
                return pq.read_table(opened, columns=list(columns))
        except (OSError, pa.ArrowException) as error:
            refuse_store_error(self.folder, error)
            raise self._changed(file) from None

    def _changed(self, file: str) -> UsageError:
        return unusable(
            f"{one_line(file)} of release {one_line(self.name)} is not what was published; restore it from a backup, see: dpflow ledger verify"
        )

    @property
    def words(self) -> str:
        """What it is, as text."""
        return f"release {one_line(self.name)}"

    def described(self) -> dict[str, Any]:
        """Return what the manifest says about where the rows are from."""
        return {"kind": KIND, "name": self.name, "run": self.run, "sha256": self.sha256}


@dataclass(frozen=True, eq=False)
class UnneededStart(Prior):
    """The start of a settled run that needs it no longer, because its own release is in its place or it has none. The start may be gone.

    Attributes:
        run: The run that made the release from which the settled run has started.
        sha256: The hash of the manifest to which the settled run is bound.
    """

    run: str
    sha256: str

    def bound(self, claim: str) -> str:
        """Return the claim of the settled run."""
        return bound_claim(claim, run=self.run, manifest_sha256=self.sha256)

    def read(self, declaration: Declaration) -> PriorTable:
        """Raise: a run that is to be replayed needs its start as an `EarlierRelease`."""
        raise UsageError(f"{self.words} is not needed for {declaration.spec.dataset} any more; settle the run")

    @property
    def words(self) -> str:
        """What it is, as text."""
        return f"the release of run {self.run}"

    def described(self) -> dict[str, Any]:
        """Return where the rows are from."""
        return {"kind": KIND, "run": self.run, "sha256": self.sha256}


def _is_over(ledger: Ledger, run: Run, folder: AnyPath) -> bool:
    """Return whether a run is settled and will not be replayed: its release is in its place, by the manifest, or it has none."""
    if run.state is not RunState.SETTLED:
        return False
    with readable(folder):
        return run.release is None or is_recorded(ledger, run.id, folder / run.release)


def _newest(ledger: Ledger, account: Account) -> Run | None:
    """Return the run of the account's newest release that is not withdrawn, by the order in which runs were reserved."""
    withdrawn = ledger.withdrawals(account.name)
    made = (run for run in ledger.runs(account.name) if run.state is RunState.SETTLED and run.release is not None)
    return max((run for run in made if run.id not in withdrawn), key=lambda run: run.first, default=None)


def _bound(ledger: Ledger, run: Run, bound: tuple[str, str], folder: AnyPath) -> EarlierRelease:
    """Return the release that a run is bound to. If it was written again since, its rows are the same: they follow from its transcript."""
    made, digest = ledger.run(bound[0]), bound[1]
    why = f"run {run.id} has started from it and cannot go on without it"
    otherwise = f"start a new run; if run {run.id} is still open, end it with `dpflow ledger settle {run.id}`"
    if run.state is RunState.SETTLED:
        why = f"run {run.id} has started from it and is settled, and cannot write its own release again without it"
        otherwise = f"restore the release of run {run.id} from a backup to {one_line(folder / str(run.release))}"
    if event := ledger.withdrawals(run.account).get(made.id):
        raise UsageError(f"{notice_of(event, ledger=ledger.identity()).sentence}; {why}, so {otherwise}")
    try:
        return replace(_recorded(ledger, made, folder / str(made.release)), sha256=digest)
    except ReleaseDamaged as error:
        raise ReleaseDamaged(f"{error}; {why}, or {otherwise}") from None


def _recorded(ledger: Ledger, run: Run, release: AnyPath) -> EarlierRelease:
    """Return a release that is in its place, by its manifest as the ledger has recorded it."""
    written = recorded_manifest(ledger, run, release)
    listed = listed_files(parsed_manifest(written, release))  # the ledger has its hash
    rows = tuple((name, each.sha256) for name, each in listed.items() if name.startswith("data/"))
    return EarlierRelease(run.id, release.name, hashlib.sha256(written).hexdigest(), release, rows, manifest=written)

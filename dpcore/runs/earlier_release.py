"""Start from the dataset's newest release: its published rows are a prior, and the promise counts the runs behind them (docs/decisions/0057).

Which release that is follows from the ledger and the folder of releases alone. A run is bound to it by its claim. When it is resumed, it starts
from the same release, even if newer ones have been published since.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedRandom, BufferedReader

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.answers.release import open_release_with
from dpcore.errors import ReleaseDamaged, SourceError, UsageError
from dpcore.ledger import Account, Ledger, Run, RunState, claim_in
from dpcore.ledger.checks import LONGEST
from dpcore.object_store import AnyPath
from dpcore.release.integrity import one_line, open_regular, readable, refuse_store_error
from dpcore.release.manifest import parsed_manifest
from dpcore.release.problems import listed_files
from dpcore.release.withdrawal import is_recorded, live_runs, notice_of, recorded_manifest
from dpcore.reporting.lineage import bound_claim, bound_to
from dpcore.runs.paying import claim_of
from dpcore.runs.prior import Prior, check_columns, public_table, unusable
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
        return public_table(named.path, declaration, before=before)
    return earlier_release(declaration, ledger=ledger, account=account, before=before)


def earlier_release(declaration: Declaration, *, ledger: Ledger, account: Account, before: Run | None) -> Prior | None:
    """Return the release that a run starts from: the one that it is bound to or, for a new run, the newest. None if there was none.

    Raises:
        UsageError: If it is not as published, was withdrawn since, or has other columns. Nothing was spent.
    """
    if before is None:
        live = live_runs(ledger, account.name)
        if not live:
            return None
        newest = live[-1]
        prior = _recorded(ledger, newest, declaration, sha256=None)
        room = LONGEST - len(claim_in(declaration.series, claim_of(declaration) + prior.binding)) + len(newest.id)
        if len(newest.id) > room:
            raise unusable(
                f"the id of the run that made {prior.words} has {len(newest.id)} characters, and a run can only be bound to an id of at most {room}"
            )
        return prior
    bound = bound_to(before.claim)
    if bound is None:
        return None
    if _is_over(ledger, before, declaration.output_folder):
        run, sha256 = bound
        stated = {"kind": KIND, "run": run, "sha256": sha256}
        return Prior(f"the release of run {run}", stated, bound_claim("", run=run, manifest_sha256=sha256), read=None)
    return _bound(ledger, before, bound, declaration)


def _is_over(ledger: Ledger, run: Run, folder: AnyPath) -> bool:
    """Return whether a run is settled and will not be replayed: its release is in its place, by the manifest, or it has none."""
    if run.state is not RunState.SETTLED:
        return False
    with readable():
        return run.release is None or is_recorded(ledger, run.id, folder / run.release)


def _bound(ledger: Ledger, run: Run, bound: tuple[str, str], declaration: Declaration) -> Prior:
    """Return the release that a run is bound to. If it was written again since, its rows are the same: they follow from its transcript."""
    maker, folder = ledger.run(bound[0]), declaration.output_folder
    why = f"run {run.id} has started from it and cannot go on without it"
    otherwise = f"start a new run; if run {run.id} is still open, end it with `dpflow ledger settle {run.id}`"
    if run.state is RunState.SETTLED:
        why = f"run {run.id} has started from it and is settled, and cannot write its own release again without it"
        otherwise = f"restore the release of run {run.id} from a backup to {one_line(folder / str(run.release))}"
    if event := ledger.withdrawals(run.account).get(maker.id):
        raise UsageError(f"{notice_of(event, ledger=ledger.identity()).sentence}; {why}, so {otherwise}")
    try:
        return _recorded(ledger, maker, declaration, sha256=bound[1])
    except ReleaseDamaged as error:
        raise ReleaseDamaged(f"{error}; {why}, or {otherwise}") from None


def _recorded(ledger: Ledger, run: Run, declaration: Declaration, *, sha256: str | None) -> Prior:
    """Return a release that is in its place, by its manifest as the ledger has recorded it, if it has all columns that are compared.

    Args:
        ledger: The ledger.
        run: The run that made it.
        declaration: The declaration of the run that starts from it.
        sha256: The hash of the manifest to which that run is bound; None for that of the recorded one.
    """
    folder = declaration.output_folder / str(run.release)
    written = recorded_manifest(ledger, run, folder)
    manifest = parsed_manifest(written, folder)  # the ledger has its hash
    files = {name: file.sha256 for name, file in listed_files(manifest).items() if name.startswith("data/")}
    sha256, words = sha256 or hashlib.sha256(written).hexdigest(), f"release {one_line(folder.name)}"

    @contextmanager
    def opened(file: str) -> Iterator[BufferedReader | BufferedRandom]:
        try:
            with open_regular(folder / file) as stream:
                yield stream
        except (OSError, pa.ArrowException) as error:
            refuse_store_error(folder, error)
            raise changed(file) from None

    def changed(file: str) -> UsageError:
        return unusable(
            f"{one_line(file)} of {words} is not what was published; restore it from a backup, see: dpflow ledger verify"
        )

    def read(columns: Sequence[str]) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        for file, digest in files.items():
            with opened(file) as stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
                    raise changed(file)
                stream.seek(0)
                batches += pq.read_table(stream, columns=list(columns)).to_batches()
        return batches

    for file in files:
        try:
            with opened(file) as stream:
                check_columns(Source.of(pq.read_schema(stream).empty_table()), declaration, name=words)
        except SourceError as error:
            raise unusable(f"{words}: {error}") from None
    return Prior(
        words,
        {"kind": KIND, "name": folder.name, "run": run.id, "sha256": sha256},
        bound_claim("", run=run.id, manifest_sha256=sha256),
        read=read,
        release=lambda: open_release_with(written, folder),
        made_from=manifest["privacy"]["made_from"],
    )

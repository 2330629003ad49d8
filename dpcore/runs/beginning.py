"""What a run begins with beside its own measurements: a public table, an earlier release, or nothing."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.answers.release import Release
from dpcore.descent import Finding
from dpcore.errors import TableChanged, UsageError
from dpcore.ledger import Account, Ledger
from dpcore.models.start import PublicRows
from dpcore.release import ChosenLimit
from dpcore.release.integrity import one_line
from dpcore.release.withdrawal import live_runs
from dpcore.runs.earlier_release import NO_RELEASE, find_prior
from dpcore.runs.paying import claim_of
from dpcore.runs.prior import compared
from dpcore.runs.same_table import chosen_limit_of, evidence_of, findings_of, taken_over
from dpcore.spec import Declaration
from dpcore.strategies import Strategy
from dpcore.tables.reading.encoding import encode_rows
from dpcore.universe import Universe

progress = logging.getLogger("dpcore.progress")


class Beginning:
    """What the `prior` of a spec means for one run. Creating one reads no row and spends nothing.

    Attributes:
        declaration: The spec's declaration, with the cells of the earlier release if the table is declared unchanged.
        findings: What an earlier run has found in the same table; empty if this run finds it itself.
        chosen_limit: How an earlier run has chosen the limit on rows per unit; None if this run chooses it itself, or the spec declares it.

    Raises:
        UsageError: If the prior cannot be read, does not fit the spec, or is not what the run was started with.
    """

    def __init__(self, declaration: Declaration, *, ledger: Ledger, account: Account, run_id: str) -> None:
        self._ledger, self._account, self._run_id = ledger, account, run_id
        self._prior = find_prior(declaration, ledger=ledger, account=account, run_id=run_id)
        self._same: Release | None = None
        self._batches: Sequence[pa.RecordBatch] | None = None
        self.findings: tuple[Finding, ...] = ()
        self.chosen_limit: ChosenLimit | None = None
        named = declaration.spec.prior
        if named is not None and named.unchanged:
            if self._prior is None:
                self._refuse_lost_releases(declaration)
            elif self._prior.release is not None:
                self._same = self._prior.release()
                declaration = taken_over(declaration, self._same)
                self.findings, self.chosen_limit = findings_of(self._same), chosen_limit_of(self._same)
        self.declaration = declaration

    def _refuse_lost_releases(self, declaration: Declaration) -> None:
        """Raise if the account has made releases, but all were withdrawn. The first run of an account has nothing to go on from."""
        runs = self._ledger.runs(self._account.name)
        if any(run.release is not None for run in runs) and all(run.id != self._run_id for run in runs):
            raise UsageError(
                f"the table was declared `unchanged`, but no release of account {self._account.name} is in {one_line(declaration.output_folder)}: they were "
                "withdrawn; remove `unchanged`"
            )

    @property
    def is_over(self) -> bool:
        """Whether the run is settled and needs no start any more, which may be gone."""
        return self._prior is not None and self._prior.read is None

    def read(self) -> None:
        """Read the rows of the prior, if there are any to read. Whatever is wrong with them shows before anything is spent."""
        if self.declaration.spec.prior is None:
            self._hint_at_earlier()
        elif self._prior is None:
            progress.info("the weights start from equal ones: the dataset has no release yet")
        elif self._same is not None:
            progress.info("the measurements of %s count, unless new noisy counts contradict them", self._prior.words)
        elif self._prior.read is not None:
            self._batches = self._prior.read(compared(self.declaration))
            progress.info("the weights start from %s if noisy counts are near it", self._prior.words)

    def _hint_at_earlier(self) -> None:
        """Say that a new run pays for a further release of this spec, and how the last one could count."""
        runs = self._ledger.runs(self._account.name)
        if self.declaration.spec.blocks is not None or any(run.id == self._run_id for run in runs):
            return
        claim = claim_of(self.declaration)
        if released := [run for run in live_runs(self._ledger, self._account.name) if run.claim == claim]:
            progress.info(
                "release %s was made from this spec before, and this run pays for another one; if the table is still the same, "
                "`prior: {release: latest, unchanged: true}` in the spec lets both count",
                released[-1].release,
            )

    def bound(self, claim: str) -> str:
        """Return the claim of the run, bound to what it begins with."""
        return claim if self._prior is None else claim + self._prior.binding

    @property
    def earlier_parts(self) -> Sequence[Mapping[str, Any]]:
        """The runs that an earlier release is made from, as its manifest states them; none without one."""
        return () if self._prior is None else self._prior.made_from

    def require_still_there(self) -> None:
        """Raise if an earlier release was removed since it was found. From the reservation on, retention keeps it for this run."""
        if self._prior is not None and self._prior.release is not None:
            find_prior(self.declaration, ledger=self._ledger, account=self._account, run_id=self._run_id)

    def give_to(self, strategy: Strategy, universe: Universe) -> None:
        """Give a strategy what it begins with."""
        if self._same is not None:
            strategy.earlier = evidence_of(self._same)
        elif self._prior is not None:
            if self._batches is None:
                raise UsageError(f"run {self._run_id} is settled and not replayed; settle it after reserving")
            strategy.prior = coded_rows(self._batches, universe, columns=compared(self.declaration))

    def contradicted(self) -> TableChanged:
        """Return the error of a run whose noisy counts contradict the declaration of its spec."""
        earlier = "an earlier release" if self._prior is None else self._prior.words
        return TableChanged(
            f"the table was declared unchanged since {earlier}, but noisy counts of its columns contradict that; run {self._run_id} was "
            "ended, and what it has not spent was refunded: remove `unchanged`, and run again"
        )

    def described(self, strategy: Strategy) -> dict[str, Any] | None:
        """Return what the manifest says about the prior, and whether a strategy has used it; None if the spec has none."""
        if self._prior is None:
            return None if self.declaration.spec.prior is None else dict(NO_RELEASE)
        if self._same is not None:
            transcript = self._same.transcript
            count = len(transcript.first) + len(transcript.later)
            return {**self._prior.stated, "unchanged": True, "used": True, "measurements": count}
        if strategy.prior is None or strategy.gate is None:
            return None
        numbers = asdict(strategy.gate)
        return {**self._prior.stated, "rows": strategy.prior.rows, "used": numbers.pop("taken"), **numbers}

    def warnings(self, strategy: Strategy) -> Iterator[str]:
        """Warn of intervals whose replicates all start from the same rows, and so do not show their errors (docs/decisions/0057)."""
        gate, prior = strategy.gate, self._prior
        if prior is not None and prior.release is not None and gate is not None and gate.taken:
            yield (
                f"the weights have started from {prior.words}, and intervals do not count the errors of that start, so they may be "
                "too narrow where this run has measured little"
            )


def coded_rows(batches: Sequence[pa.RecordBatch], universe: Universe, *, columns: Sequence[str]) -> PublicRows:
    """Code public rows by a universe, as the private rows are coded. Rows that a column drops are left out."""
    compared_universe = Universe({name: universe.attributes[name] for name in columns})
    coded = [encode_rows(compared_universe, batch)[0] for batch in batches]
    codes = {
        universe.names.index(name): np.concatenate(
            [np.zeros(0, dtype=np.int64), *(columns_of_batch[place] for columns_of_batch in coded)]
        )
        for place, name in enumerate(columns)
    }
    return PublicRows(codes, rows=len(next(iter(codes.values()))))

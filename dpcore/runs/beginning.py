"""What a run begins with beside its own measurements: a public table, an earlier release, or nothing."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpcore.descent import Finding
from dpcore.errors import TableChanged, UsageError
from dpcore.ledger import Account, Ledger
from dpcore.release import ChosenLimit
from dpcore.release.integrity import one_line
from dpcore.runs.earlier_release import NO_RELEASE, EarlierRelease, UnneededStart, find_prior
from dpcore.runs.paying import claim_of
from dpcore.runs.prior import PriorTable
from dpcore.runs.same_table import SameTable
from dpcore.spec import Declaration
from dpcore.strategies import Strategy
from dpcore.universe import Universe

progress = logging.getLogger("dpcore.progress")


class Beginning:
    """What the `prior` of a spec means for one run. Creating one reads no row and spends nothing.

    Attributes:
        declaration: The spec's declaration, with the cells of the earlier release if the table is declared unchanged.

    Raises:
        UsageError: If the prior cannot be read, does not fit the spec, or is not what the run was started with.
    """

    def __init__(self, declaration: Declaration, *, ledger: Ledger, account: Account, run_id: str) -> None:
        self._ledger, self._account, self._run_id = ledger, account, run_id
        self._prior = find_prior(declaration, ledger=ledger, account=account, run_id=run_id)
        self._same: SameTable | None = None
        named = declaration.spec.prior
        if named is not None and named.unchanged and isinstance(self._prior, EarlierRelease):
            self._same = SameTable.of(self._prior.opened(), declaration)
            declaration = self._same.taken_over(declaration)
        elif named is not None and named.unchanged and self._prior is None:
            self._refuse_lost_releases(declaration)
        self.declaration = declaration
        self._rows: PriorTable | None = None

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
        return isinstance(self._prior, UnneededStart)

    def read(self) -> None:
        """Read the rows of the prior, if there are any to read. Whatever is wrong with them shows before anything is spent."""
        if self.declaration.spec.prior is None:
            self._hint_at_earlier()
        elif self._prior is None:
            progress.info("the weights start from equal ones: the dataset has no release yet")
        elif self._same is not None:
            progress.info("the measurements of %s count, unless new noisy counts contradict them", self._prior.words)
        elif not self.is_over:
            self._rows = self._prior.read(self.declaration)
            progress.info("the weights start from %s if noisy counts are near it", self._prior.words)

    def _hint_at_earlier(self) -> None:
        """Say that a new run pays for a further release of this spec, and how the last one could count."""
        runs = self._ledger.runs(self._account.name)
        if self.declaration.spec.blocks is not None or any(run.id == self._run_id for run in runs):
            return
        withdrawn, claim = self._ledger.withdrawals(self._account.name), claim_of(self.declaration)
        made = [run for run in runs if run.claim == claim and run.release is not None and run.id not in withdrawn]
        if made:
            progress.info(
                "release %s was made from this spec before, and this run pays for another one; if the table is still the same, "
                "`prior: {release: latest, unchanged: true}` in the spec lets both count",
                made[-1].release,
            )

    def bound(self, claim: str) -> str:
        """Return the claim of the run, bound to what it begins with."""
        return claim if self._prior is None else self._prior.bound(claim)

    @property
    def earlier_parts(self) -> Sequence[Mapping[str, Any]]:
        """The runs that an earlier release is made from, as its manifest states them; none without one."""
        return self._prior.made_from if isinstance(self._prior, EarlierRelease) else ()

    def require_still_there(self) -> None:
        """Raise if an earlier release was removed since it was found. From the reservation on, retention keeps it for this run."""
        if isinstance(self._prior, EarlierRelease):
            find_prior(self.declaration, ledger=self._ledger, account=self._account, run_id=self._run_id)

    def give_to(self, strategy: Strategy, universe: Universe) -> None:
        """Give a strategy what it begins with."""
        if self._same is not None:
            strategy.earlier = self._same.earlier
        elif self._prior is not None:
            if self._rows is None:
                raise UsageError(f"run {self._run_id} is settled and not replayed; settle it after reserving")
            strategy.prior = self._rows.coded(universe)

    def contradicted(self) -> TableChanged:
        """Return the error of a run whose noisy counts contradict the declaration of its spec."""
        earlier = "an earlier release" if self._prior is None else self._prior.words
        return TableChanged(
            f"the table was declared unchanged since {earlier}, but noisy counts of its columns contradict that; run {self._run_id} was "
            "ended, and what it has not spent was refunded: remove `unchanged`, and run again"
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What an earlier run has found in the same table; empty if this run finds it itself."""
        return () if self._same is None else self._same.findings

    @property
    def chosen_limit(self) -> ChosenLimit | None:
        """How an earlier run has chosen the limit on rows per unit; None if this run chooses it itself, or the spec declares it."""
        return None if self._same is None else self._same.chosen_limit

    def described(self, strategy: Strategy) -> dict[str, Any] | None:
        """Return what the manifest says about the prior, and whether a strategy has used it; None if the spec has none."""
        named = self.declaration.spec.prior
        if self._same is not None and self._prior is not None:
            known = self._same.earlier.transcript
            count = len(known.first) + len(known.later)
            return {**self._prior.described(), "unchanged": True, "used": True, "measurements": count}
        if self._rows is None and named is not None and named.release is not None:
            return dict(NO_RELEASE)
        if self._rows is None or strategy.prior is None or strategy.gate is None:
            return None
        return self._rows.described(strategy.prior, strategy.gate)

    def warnings(self, strategy: Strategy) -> Iterator[str]:
        """Warn of intervals whose replicates all start from the same rows, and so do not show their errors (docs/decisions/0064)."""
        if isinstance(self._prior, EarlierRelease) and strategy.gate is not None and strategy.gate.taken:
            yield (
                f"the weights have started from {self._prior.words}, and intervals do not count the errors of that start, so they may be "
                "too narrow where this run has measured little"
            )

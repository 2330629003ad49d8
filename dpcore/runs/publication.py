"""The publication of a release: settle its run, and report the outcome, from what was written and the ledger."""

import logging
from dataclasses import dataclass
from pathlib import Path

from dpcore.ledger import Account, Balance, Lease, Ledger
from dpcore.object_store import AnyPath, ObjectPath, without_links
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.release import Published, settle
from dpcore.reporting.formatting import new_block_epsilon, next_epsilon
from dpcore.reporting.outcome import Outcome, Report, rounds_in

progress = logging.getLogger("dpcore.progress")


@dataclass(frozen=True, kw_only=True)
class Payer:
    """The account that pays for a run, the run's blocks if the account is kept by block, and the balance before the run."""

    ledger: Ledger
    account: Account
    run_id: str
    blocks: tuple[str, ...] | None
    before: Balance

    def balance(self) -> Balance:
        """Return the account's balance; if it is kept by block, the balance of the run's most used block."""
        return self.ledger.balance(self.account.name, blocks=self.blocks)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """A published release, and the run that made it.

    Attributes:
        published: The release as it was written.
        payer: The account that paid for the run.
        lease: The lease on the run; None if the run is settled and only replayed.
    """

    published: Published
    payer: Payer
    lease: Lease | None

    def settle(self) -> Outcome:
        """Refund the unspent budget, and return the outcome of the run."""
        settle(self.published, ledger=self.payer.ledger, lease=self.lease)
        for warning in self._warnings:
            progress.warning("warning: %s", warning)
        return self.outcome()

    def outcome(self) -> Outcome:
        """Return the outcome of the run, from the current state of the ledger."""
        payer = self.payer
        account, run = payer.ledger.account(payer.account.name), payer.ledger.run(payer.run_id)
        balance = payer.balance()
        manifest = self.published.manifest
        privacy = manifest["privacy"]
        return Outcome(
            run=payer.run_id,
            release=_shown(self.published.folder),
            rows=manifest["rows"],
            account=account.name,
            currency=account.currency.value,
            epsilon=privacy["epsilon"],
            delta=privacy["delta"],
            sampler_delta=privacy["sampler_delta"],
            reserved=run.reserved / AMOUNT_OF_ONE,
            spent=run.spent / AMOUNT_OF_ONE,
            remaining=balance.remaining / AMOUNT_OF_ONE,
            remaining_epsilon=next_epsilon(account, balance.remaining),
            blocks=payer.blocks,
            new_block_epsilon=new_block_epsilon(account),
            warnings=self._warnings,
        )

    @property
    def _warnings(self) -> tuple[str, ...]:
        """The warnings as they were published. Some are known only once the rows are written."""
        return tuple(self.published.manifest["warnings"])

    def report(self) -> Report:
        """Return the report of the settled run, from its ledger and the manifest as it was written."""
        manifest = self.published.manifest
        return Report(
            outcome=self.outcome(),
            account=self.payer.account,
            before=self.payer.before,
            after=self.payer.balance(),
            overall=self.payer.ledger.balance(self.payer.account.name),
            rounds=rounds_in(manifest),
            privacy=manifest["privacy"],
            columns=manifest["columns"],
            files=manifest["files"],
            portrait=self.published.portrait,
        )


def _shown(path: AnyPath) -> str:
    """Return the path relative to the working folder if it lies below it, else the absolute path or the address."""
    here, whole = Path.cwd().resolve(), without_links(path)
    if isinstance(whole, ObjectPath) or not whole.is_relative_to(here):
        return str(whole)
    return str(whole.relative_to(here))

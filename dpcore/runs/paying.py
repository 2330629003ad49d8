"""Find the account that pays for a run, and the amount to reserve. Reject an amount that is too small for the planned measurements."""

import hashlib
import json
import math
import shlex
from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction
from itertools import count

from dpcore.curator.curator import LEAST_AMOUNT
from dpcore.errors import BudgetRefused, DpflowError, UsageError
from dpcore.ledger import Account, Ledger, RunState, budget_refused, claim_in, open_ledger
from dpcore.ledger.refusals import across_refused
from dpcore.mechanisms.pricing import cell_noise, least_amount
from dpcore.places import places_of_spec
from dpcore.privacy.accounting import Currency, budget_of, epsilon_of
from dpcore.privacy.protection import Neighbours
from dpcore.release import adopt_folder
from dpcore.reporting import formatting as wording
from dpcore.spec import Declaration
from dpcore.spec.shares import Early
from dpcore.strategies import Strategy, strategy_for
from dpcore.universe import Categorical, Universe
from dpcore.universe.blocks import Calendar

PLAN_VERSION = 8  # part of every claim: a run can only be resumed under the rules it was reserved for

CRASH_MARGIN = 2
"""Reserve enough to pay for the smallest measurement this many times: a crash may make a run pay for one twice."""


def ledger_of(declaration: Declaration) -> Ledger:
    """Open the ledger of a spec. If there is none, the error names the command that opens the spec's account."""
    return open_ledger(places=places_of_spec(declaration.path), opening=opening_command(declaration))


def opening_command(declaration: Declaration, *, name: str | None = None) -> str:
    """Return the command that opens the account of a spec, or one with another name, with a budget for one run."""
    spec, calendar = declaration.spec, declaration.calendar
    privacy, blocks = spec.privacy, "" if calendar is None else f" --blocks {shlex.quote(calendar.words)}"
    # Replacing a unit may touch two blocks, which both pay.
    double = calendar is not None and privacy.neighbours is Neighbours.REPLACE_ONE
    return (
        f"dpflow ledger open {name or spec.dataset} --epsilon {privacy.epsilon * (2 if double else 1)!r} "
        f"--delta {privacy.delta!r} --unit {shlex.quote(privacy.unit)} --neighbours {privacy.neighbours.value}{blocks}"
    )


def no_account(declaration: Declaration) -> str:
    """Say that the ledger of a spec lacks its account, and how to open it."""
    return f"there is no account '{declaration.spec.dataset}'; open it first, with a budget for one run or for more: {opening_command(declaration)}"


def paying_account(ledger: Ledger, declaration: Declaration) -> Account:
    """Return the account of a spec. Raise if unit, neighbours, delta or blocks of the spec differ from the account's."""
    spec, names = declaration.spec, {account.name for account in ledger.accounts()}
    if spec.dataset not in names:
        opened = f"; known accounts: {', '.join(sorted(names))}" if names else ""
        raise UsageError(f"{no_account(declaration)}{opened}; the ledger is {ledger.place}")
    account = ledger.account(spec.dataset)
    for what, declared, fixed in (
        ("unit", spec.privacy.unit, account.unit),
        ("neighbours", spec.privacy.neighbours.value, account.neighbours.value),
    ):
        if declared != fixed:
            difference = f"the spec says `{what}: {declared}`, but account {account.name} was opened with {fixed}"
            raise _other_terms(difference, declaration, names=names)
    pure = account.currency is Currency.PURE
    if pure != (spec.privacy.delta == 0):
        kind = "pure epsilon, with delta 0" if pure else f"{account.currency}, with a delta above 0"
        difference = f"the spec says `delta: {wording.at_most(spec.privacy.delta)}`, but account {account.name} is kept in {kind}"
        raise _other_terms(difference, declaration, names=names)
    if blocks := _other_blocks(account, declaration.calendar):
        raise _other_terms(blocks, declaration, names=names)
    return account


def _other_blocks(account: Account, calendar: Calendar | None) -> str | None:
    """Say how the blocks of a spec differ from its account's, if they do: a row must be in the same block for all runs."""
    if calendar is None and account.blocks_by is not None:
        return f"account {account.name} is kept by block ({account.blocks_by}), but the spec has no `blocks`"
    if calendar is not None and account.blocks_by != calendar.words:
        by = "without blocks" if account.blocks_by is None else f"by {account.blocks_by}"
        return f"the spec divides the table by {calendar.words}, but account {account.name} is kept {by}"
    return None


def _other_terms(difference: str, declaration: Declaration, *, names: Collection[str]) -> UsageError:
    """Return the error for a spec whose terms are not its account's, with the command that opens an account for it under a free name."""
    dataset = declaration.spec.dataset
    free = next(name for number in count(2) if (name := f"{dataset}-{number}") not in names)
    return UsageError(
        f"{difference}; an account's terms are fixed, so correct the spec, or write `dataset: {free}` into it and open that account: "
        f"{opening_command(declaration, name=free)}; what both accounts spend on one table adds up, so close the one you do not need"
    )


def claim_of(declaration: Declaration) -> str:
    """Return the hash of everything a run is reserved for. A run can only be resumed with the same claim."""
    # The order of columns does not change the meaning of a spec, but measurements identify columns by position.
    order = json.dumps(declaration.universe.names)
    return hashlib.sha256(f"{PLAN_VERSION}:{declaration.digest}:{order}".encode()).hexdigest()


def unfinished_run(declaration: Declaration) -> str | None:
    """Return the id of the newest open run of a spec, which can be resumed within its reservation; None if there is none.

    Nothing but the ledger is read. If that cannot be read either, the checks of a new run say so.
    """
    claim = claim_in(declaration.series, claim_of(declaration))
    try:
        with ledger_of(declaration) as ledger:
            runs = ledger.runs(declaration.spec.dataset)
    except DpflowError:
        return None
    # A claim may go on with what the run begins with.
    unfinished = [run.id for run in runs if run.state is RunState.OPEN and run.claim.partition(" ")[0] == claim]
    return unfinished[-1] if unfinished else None


def amount_to_reserve(
    declaration: Declaration, strategy: Strategy, *, currency: Currency, smallest: Fraction | None = None
) -> int:
    """Return the amount a run may spend. Raise if it is too small for the strategy's measurements.

    A caller that asks for many amounts can pass the `smallest_share`, which is the same for all.
    """
    privacy = declaration.spec.privacy
    epsilon = f"epsilon {wording.at_most(privacy.epsilon)}"
    answers = strategy.answers + sum(map(len, declaration.early.values()))
    shared = LEAST_AMOUNT * answers
    to_share = wording.at_most(epsilon_of(shared, currency=currency, delta=privacy.delta))
    try:
        _, amount = budget_of(privacy.epsilon, delta=privacy.delta, currency=currency)
    except UsageError:
        if privacy.epsilon > 1:
            raise
        raise UsageError(f"{epsilon} is too small for any run; ask for epsilon {to_share}") from None
    if amount < shared:
        raise UsageError(
            f"{epsilon} is too small to be shared by up to {answers} answers; ask for epsilon {to_share}, or for fewer `rounds`"
        )
    smallest = smallest_share(declaration, strategy) if smallest is None else smallest
    # Larger limits are chosen only if they can be paid.
    fewest = declaration.limited(1) if declaration.lacks_limit else declaration
    least = least_amount(currency=currency, protection=fewest.protection)
    if not smallest:
        raise UsageError(
            "a column is so small compared with the others that it would get no budget; declare coarser columns"
        )
    if amount * smallest < CRASH_MARGIN * least:
        enough_amount = math.ceil(CRASH_MARGIN * least / smallest)
        enough = wording.at_most(epsilon_of(enough_amount, currency=currency, delta=privacy.delta))
        zcdp = ", or use an account in zcdp" if currency is Currency.GDP else ""
        share = ", a larger `share` to discover by" if declaration.descents() else ""
        raise UsageError(
            f"{epsilon} is too small for the smallest of {answers} answers: in {currency} its noise would be wider than "
            f"the sampler can draw; ask for epsilon {enough}{share}, fewer `rounds`, or fewer rows per unit{zcdp}"
        )
    return amount


def smallest_share(declaration: Declaration, strategy: Strategy) -> Fraction:
    """Return the smallest share of the whole budget that any planned measurement gets, whatever is discovered in the data.

    A strategy gives a column less, the fewer cells it has and the more cells the others have. The minimum is therefore reached with the
    most cells in all columns, or with a single cell in one column and the most cells in all others.
    """
    descents = declaration.descents()
    free = replace(declaration, universe=Universe(declaration.universe.attributes))  # constraints change no share
    fewest = (free.discovered({name: Categorical(("any",))}) for name in descents)
    strategies = [strategy, *map(strategy_for, fewest)]
    # Losses are not measured if their share is too small.
    early = (share for kind, shares in declaration.early.items() if kind is not Early.LOSSES for share in shares)
    return min((*(declaration.left * candidate.smallest_share for candidate in strategies), *early))


def checks_losses(declaration: Declaration, *, currency: Currency, amount: int) -> bool:
    """Return whether a run measures its losses: not if the spec does not ask for it, or their share of a tiny budget pays for no noise."""
    least = least_amount(currency=currency, protection=declaration.protection.of_one_answer)
    return any(amount * share >= CRASH_MARGIN * max(least, LEAST_AMOUNT) for share in declaration.early[Early.LOSSES])


def total_noise(declaration: Declaration, *, currency: Currency, amount: int) -> float:
    """Return the standard deviation of the noise of the first total, for a run that may spend `amount`."""
    bought = int(amount * declaration.share(Early.TOTAL))
    return cell_noise(bought, currency=currency, protection=declaration.protection).standard_deviation


def check_remaining(
    account: Account, declaration: Declaration, *, amount: int, remaining: int, block: str | None = None
) -> None:
    """Raise if the run would reserve more than remains in its account, in a block of it, or across its blocks."""
    if account.weight * amount > remaining:
        payer, currency = f"account '{account.name}'", account.currency
        payer = payer if block is None else f"block '{block}' of {payer}"
        refused = budget_refused(payer, currency=currency, requested=account.weight * amount, remaining=remaining)
        refused = in_epsilon(refused, declaration, currency=currency, amount=amount)
        raise refused if block is None else _elsewhere(refused, account)
    across = account.across_remaining
    if across is not None and amount > across:
        refused = across_refused(account, requested=amount, remaining=across)
        raise in_epsilon(refused, declaration, currency=account.currency, amount=amount)


def _elsewhere(refused: BudgetRefused, account: Account) -> BudgetRefused:
    """Add to a block's refusal what is still possible: a run that reads only new blocks."""
    most = wording.new_block_epsilon(account)
    if not most:
        return refused
    at = f" at delta {wording.at_most(account.delta)}" if account.delta else ""
    advice = f"; new blocks have their whole budget: a run that reads only those can ask for epsilon {wording.down(most)}{at}"
    return BudgetRefused(f"{refused}{advice}", requested=refused.requested, remaining=refused.remaining)


def in_epsilon(refused: BudgetRefused, declaration: Declaration, *, currency: Currency, amount: int) -> BudgetRefused:
    """Add the requested and the remaining epsilon to a refusal, if the account counts in another currency or blocks pay double."""
    privacy, times = declaration.spec.privacy, refused.requested // amount
    double = "; each block pays double, since replacing one unit may touch two blocks" if times > 1 else ""
    if currency is Currency.PURE and not double:
        return refused
    most = epsilon_of(refused.remaining // times, currency=currency, delta=privacy.delta)
    asked = (
        f"epsilon {wording.at_most(privacy.epsilon)} was requested, at most {wording.down(most)} remains "
        f"at delta {wording.at_most(privacy.delta)}{double}"
    )
    return BudgetRefused(f"{refused} ({asked})", requested=refused.requested, remaining=refused.remaining)


def adopt_output(declaration: Declaration, *, reason: str) -> bool:
    """Transfer an output folder from another ledger to the spec's ledger, on record. Return whether this was needed.

    Only the steward may do this.
    """
    with ledger_of(declaration) as ledger:
        paying_account(ledger, declaration)
        return adopt_folder(ledger, declaration.output_folder, reason=reason)

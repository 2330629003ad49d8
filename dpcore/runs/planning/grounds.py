"""The basis of a plan: the account and its blocks, the currency, and the approximate number of rows. All of it is public."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from dpcore.errors import DpflowError, UsageError
from dpcore.ledger import Account, Balance
from dpcore.ledger.refusals import refuse_if_closed
from dpcore.mechanisms.pricing import currency_for
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.release.dataset_folder import LATEST, named_by, stated_manifest
from dpcore.release.integrity import LARGEST_NOTE, MALFORMED, read_regular
from dpcore.reporting.formatting import new_block_epsilon, next_epsilon
from dpcore.runs.earlier_release import earlier_release
from dpcore.runs.expected_rows import FAINT_WORDS
from dpcore.runs.paying import check_remaining, ledger_of, no_account, paying_account
from dpcore.runs.planning.kept import ASSUMED_SHARE, EARLIER, KeptRows, kept_of, rows_that_count
from dpcore.runs.planning.limits import chosen_limit, expected_errors
from dpcore.runs.prior import Prior, public_table
from dpcore.runs.reservation import blocks_to_read, day_to_read, scarcest
from dpcore.runs.same_table import taken_over
from dpcore.spec import Declaration
from dpcore.spec.release import AUTO_LIMITS
from dpcore.universe.blocks import choose

USUAL_ROWS, GUESS = 100_000, "a guess"
MOST_ROWS = 10**12


@dataclass(frozen=True)
class PlannedAccount:
    """The account, and its remaining budget after the run. `missing` says why there is no account to charge.

    `refused` says why the account would not pay for the run; `remaining` is then what remains without the run. If the account is kept by
    block, the remaining budget is that of `block`, the run's most used block. A run that reads only new blocks can ask for
    `new_block_epsilon`.
    """

    name: str
    currency: str
    remaining: float | None
    remaining_epsilon: float | None
    missing: str | None
    block: str | None = None
    new_block_epsilon: float | None = None
    refused: str | None = None


@dataclass(frozen=True)
class Grounds:
    """The basis of a plan.

    Attributes:
        account: The account, the run's scarcest block and its balance; or the reason why there is no account.
        blocks: The blocks that the run reads; None if the whole table is one block.
        currency: The account's currency, or the default one if there is no account.
        rows: About how many rows the table has; if the number comes from an earlier release, how many counted in it.
        rows_from: Where this number comes from.
        units: About how many units the table has; None if nobody has said.
        limit: The limit on rows per unit that the plan's figures are for, if the run chooses one: that of the earlier release, or what
            the run's rule would choose if rows per unit were geometrically distributed.
        prior: What the weights start from, as text; None if the spec has no prior.
        declaration: The declaration of the run, with what it takes over from an earlier release.
    """

    account: tuple[Account, str | None, Balance] | str
    blocks: tuple[str, ...] | None
    currency: Currency
    rows: int
    rows_from: str
    units: int | None
    limit: int
    prior: str | None
    declaration: Declaration

    def limited(self, declaration: Declaration) -> Declaration:
        """Return a declaration with the limit that the plan's figures are for. A declared limit stays as it is."""
        return declaration.limited(self.limit)

    def kept(self, declaration: Declaration) -> KeptRows:
        """Return about how many rows count under the limit of a declaration."""
        return rows_that_count(declaration, rows=self.rows, rows_from=self.rows_from, units=self.units)

    def refusal(self, declaration: Declaration, *, amount: int) -> DpflowError | None:
        """Return the error with which the account would refuse the run; None if it would pay, or if there is no account."""
        if isinstance(self.account, str):
            return None
        account, block, balance = self.account
        try:
            refuse_if_closed(account)
            check_remaining(account, declaration, amount=amount, remaining=balance.remaining, block=block)
        except DpflowError as error:
            return error
        return None

    def payer(self, declaration: Declaration, *, amount: int, refused: DpflowError | None) -> PlannedAccount:
        """Return the account with what remains after the run, or without it if it is refused."""
        if isinstance(self.account, str):
            name = declaration.spec.dataset
            return PlannedAccount(
                name, self.currency.value, remaining=None, remaining_epsilon=None, missing=self.account, refused=None
            )
        account, block, balance = self.account
        spent = 0 if refused else amount
        left = balance.remaining - account.weight * spent
        after = replace(account, across_used=account.across_used + spent)
        return PlannedAccount(
            account.name,
            self.currency.value,
            remaining=left / AMOUNT_OF_ONE,
            remaining_epsilon=next_epsilon(after, left),
            missing=None,
            block=block,
            new_block_epsilon=new_block_epsilon(after),
            refused=None if refused is None else str(refused),
        )


def grounds_of(declaration: Declaration, *, rows: int | None, units: int | None, as_of: date | None) -> Grounds:
    """Return the basis of a plan. Raise if the account does not match the spec, or if there is no block to read."""
    account, blocks = _account(declaration, as_of=day_to_read(declaration, as_of))
    guessed, source = approximate_rows(declaration, rows)
    if units is not None and declaration.spec.privacy.unit == "row":
        raise UsageError("the unit is `row`, so there are as many units as rows; give --rows instead of --units")
    if units is not None and rows is not None and units > rows:
        raise UsageError(
            f"--units is {units:,}, but --rows only {rows:,}: every unit has a row; give both numbers of the same table"
        )
    if units is not None and source in {"output.rows", GUESS}:
        guessed = max(guessed, units)  # every unit has a row
    # Without an account: the default currency of a new one with this budget.
    privacy = declaration.spec.privacy
    unopened = currency_for(
        privacy.epsilon, delta=privacy.delta, unit=privacy.unit, neighbours=declaration.protection.neighbours
    )
    currency = unopened if isinstance(account, str) else account[0].currency
    prior, taken = _prior(declaration, account)
    limit = AUTO_LIMITS[0]
    if taken.lacks_limit:
        count = ASSUMED_SHARE * guessed if units is None else units
        payable = expected_errors(taken, lambda most: kept_of(guessed, units=count, limit=most), currency=currency)
        earlier = _earlier(declaration) if source == EARLIER else None
        same = [error for error in payable if earlier and error.rows_per_unit == earlier[1]]
        limit = chosen_limit(same or payable)
    return Grounds(
        account,
        blocks,
        currency,
        rows=guessed,
        rows_from=source,
        units=units,
        limit=limit,
        prior=prior,
        declaration=taken,
    )


def _prior(
    declaration: Declaration, account: tuple[Account, str | None, Balance] | str
) -> tuple[str | None, Declaration]:
    """Say what a new run starts from, and return its declaration with what it takes over. Raise the errors that the run would raise."""
    named = declaration.spec.prior
    if named is None:
        return None, declaration
    prior: Prior | None = None
    if named.path is not None:
        prior = public_table(named.path, declaration, before=None)
    elif not isinstance(account, str):
        with ledger_of(declaration) as ledger:
            prior = earlier_release(declaration, ledger=ledger, account=account[0], before=None)
    if prior is None:
        return "equal weights: the dataset has no release yet", declaration
    if named.unchanged and prior.release is not None:
        words = (
            f"{prior.words}: its measurements count beside those planned here, so errors will be smaller than planned; the release will promise "
            f"what {len(prior.made_from) + 1:,} runs reserve together"
        )
        return words, taken_over(declaration, prior.release())
    counted = f"; the promise counts {len(prior.made_from) + 1:,} runs" if prior.release is not None else ""
    return f"{prior.words}, if noisy counts are near it{counted}", declaration


def _account(
    declaration: Declaration, *, as_of: date
) -> tuple[tuple[Account, str | None, Balance] | str, tuple[str, ...] | None]:
    """Return the account with the run's scarcest block, or the reason why there is none; and the blocks that the run reads."""
    name = declaration.spec.dataset
    try:
        ledger = ledger_of(declaration)
    except UsageError as error:
        return str(error), _all_new(declaration, as_of=as_of)
    with ledger:
        if name not in {account.name for account in ledger.accounts()}:
            return no_account(declaration), _all_new(declaration, as_of=as_of)
        account = paying_account(ledger, declaration)
        names = blocks_to_read(ledger, declaration, as_of=as_of)
        return (account, *scarcest(ledger, account, names=names)), names


def _all_new(declaration: Declaration, *, as_of: date) -> tuple[str, ...] | None:
    """Return the blocks that the first run of a new account reads."""
    calendar, blocks = declaration.calendar, declaration.spec.blocks
    if calendar is None or blocks is None:
        return None
    return tuple(block.name for block in choose(calendar, window=blocks.window, as_of=as_of, covered=()))


def approximate_rows(declaration: Declaration, stated: int | None) -> tuple[int, str]:
    """Return the approximate number of rows, and where it comes from: the user, an earlier release, the spec, or a guess."""
    if stated is not None:
        return stated, "given"
    spec = declaration.spec
    if (earlier := _earlier(declaration)) is not None:
        return earlier[0], EARLIER
    if spec.output.rows != "noisy":
        return spec.output.rows, "output.rows"
    if declaration.expected_rows is not None:
        return declaration.expected_rows, "expect_rows"
    return USUAL_ROWS, GUESS


_KEEPING = ("type", "values", "values_from", "discover", "match", "format", "min", "max", "missing", "outside")
"""The keys of a column that decide which rows are kept. All others only decide how finely their values are told apart."""


def _kept_by(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what decides which rows of a table are kept: after a mistake in it, a release with few rows says nothing about the table."""
    columns = {name: {key: column.get(key) for key in _KEEPING} for name, column in spec["universe"].items()}
    return columns, spec.get("constraints")


def _earlier(declaration: Declaration) -> tuple[int, int] | None:
    """Return the noisy number of rows of the dataset's newest release and its limit on rows per unit, if a run of this spec would count the same rows."""
    folder, spec = declaration.output_folder, declaration.spec
    try:
        name = named_by(read_regular(folder / LATEST, limit=LARGEST_NOTE))
        manifest = name and stated_manifest(folder, name)
        if not manifest:
            return None
        rows, limit, before = manifest["rows"], manifest["privacy"]["max_rows_per_unit"], manifest["spec"]
        now = spec.model_dump(mode="json")
        same = before["output"]["rows"] == "noisy" and before.get("blocks") == now["blocks"]
        counted = ("unit", "max_rows_per_unit", "weight")
        same = same and all(before["privacy"].get(key) == now["privacy"][key] for key in counted)
        faint = any(FAINT_WORDS in warning for warning in manifest["warnings"])  # then its rows are mostly noise
        same = same and _kept_by(before) == _kept_by(now) and not faint
    except (OSError, *MALFORMED):
        return None  # there is no release, or nothing that can be read as one
    usable = same and isinstance(rows, int) and 1 <= rows <= MOST_ROWS
    return (rows, limit) if usable else None

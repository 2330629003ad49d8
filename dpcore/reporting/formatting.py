"""Format amounts and guarantees for people, rounded so that no printed number promises more than the exact one."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from dpcore.ledger import Account, AccountState
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Cap, Currency, Promise, promise_of
from dpcore.privacy.accounting.rounding import float_down
from dpcore.privacy.protection import Neighbours
from dpcore.reporting.promises import AccountPromise

LISTED_CELLS = 10**9
BOOKED_PLACES = 6
"""Decimal places of bookkeeping amounts in tables, in every currency."""
SMALL = 1e-4
"""In sentences, amounts below this, such as the price of one step, are written with 6 significant digits instead."""


def at_most(number: float) -> str:
    """Format a number that must not look smaller than it is, such as an epsilon or a delta: rounded up to 6 digits.

    >>> at_most(0.99999999999), at_most(1.2345612), at_most(0.1), at_most(1.2345601e-9)
    ('1', '1.23457', '0.1', '1.23457e-09')
    """
    # Round the shortest decimal form: the exact binary value of 0.1 would be shown as 0.100001.
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(repr(number))):.6g}"


def cells(number: int) -> str:
    """Format a number of cells: in full up to a billion, then with two significant digits, since it may have hundreds.

    >>> cells(12_000), cells(12 * 10**16), cells(996 * 10**400)
    ('12,000', '1.2e17', '1.0e403')
    """
    return f"{number:,}" if number <= LISTED_CELLS else f"{Decimal(number):.1e}".replace("+", "")


def up(number: float, *, places: int = 4) -> str:
    """Format a number for a table, rounded up to `places` decimal places.

    >>> up(1.23451), up(0.480000000001), up(0.1), up(0.00001)
    ('1.2346', '0.4801', '0.1000', '0.0001')
    """
    return _column(Decimal(repr(number)), places=places, rounding=ROUND_CEILING)


def down(number: float, *, places: int = 4) -> str:
    """Format a number for a table, rounded down to `places` decimal places. Floating-point errors below 1e-9 do not show.

    >>> down(0.99996), down(0.99999999999), down(0.1), down(1e30)[-5:]
    ('0.9999', '1.0000', '0.1000', '.0000')
    """
    return _column(Decimal(repr(round(number, 9))), places=places, rounding=ROUND_FLOOR)


def _column(number: Decimal, *, places: int, rounding: str) -> str:
    digits = Context(prec=max(number.adjusted(), 0) + places + 2)
    return f"{number.quantize(Decimal(1).scaleb(-places), rounding=rounding, context=digits):f}"


def askable(account: Account, amount: int) -> float:
    """Return the largest epsilon, at the account's delta, that a run can request if it may reserve this amount."""
    if amount <= 0:
        return 0.0
    if account.currency is Currency.PURE:
        return float_down(Fraction(amount, AMOUNT_OF_ONE))
    return promise_of(Cap(account.currency, amount), delta=account.delta).epsilon


def next_epsilon(account: Account, remaining: int) -> float:
    """Return the largest epsilon a new run can request, given what remains of its blocks. The cap across blocks applies too."""
    if account.state is AccountState.CLOSED:
        return 0.0
    amount = remaining // account.weight
    if account.across_remaining is not None:
        amount = min(amount, account.across_remaining)
    return askable(account, amount)


def new_block_epsilon(account: Account) -> float | None:
    """Return the largest epsilon that a run on new blocks only can request, or None if the account has no blocks.

    A block that no run has read yet still has its whole cap, however little remains of the others.
    """
    return None if account.blocks_by is None else next_epsilon(account, account.cap)


def next_run(epsilon: float, *, new_blocks: float | None, block: str = "it") -> str:
    """Describe what the next run can request from an account or, with `new_blocks`, from its most used block and from new ones.

    >>> next_run(0.5, new_blocks=None)
    'the next run can ask for epsilon 0.5000'
    >>> next_run(0.5, new_blocks=2.0)
    'a run that reads it can ask for epsilon 0.5000; one on new blocks, epsilon 2.0000'
    >>> next_run(0.0, new_blocks=2.0)
    'no run can read it again; one on new blocks can ask for epsilon 2.0000'
    """
    if not new_blocks:  # no blocks, or nothing left for any: the account is closed, or its cap across blocks is used up
        return f"the next run can ask for epsilon {down(epsilon)}"
    if not epsilon:
        return f"no run can read {block} again; one on new blocks can ask for epsilon {down(new_blocks)}"
    return (
        f"a run that reads {block} can ask for epsilon {down(epsilon)}; one on new blocks, epsilon {down(new_blocks)}"
    )


def booked(amount: int) -> str:
    """Format a cap, or the amount spent or reserved of it, for a table. It is bookkeeping, not a promise.

    All three are rounded up, so that the amount spent never looks larger than the cap.

    >>> booked(120_582_400_000), booked(AMOUNT_OF_ONE // 2)
    ('0.120583', '0.500000')
    """
    return up(amount / AMOUNT_OF_ONE, places=BOOKED_PLACES)


def left(amount: int) -> str:
    """Format what remains of a cap for a table, rounded down so that nobody counts on more.

    >>> left(120_582_900_000)
    '0.120582'
    """
    return down(amount / AMOUNT_OF_ONE, places=BOOKED_PLACES)


def figure(number: float) -> str:
    """Format a cap, or the amount spent or reserved of it, for a sentence: like `booked`, without trailing zeros.

    >>> figure(0.1205824), figure(0.5), figure(0.0), figure(0.0000026543211)
    ('0.120583', '0.5', '0', '2.65433e-06')
    """
    if 0 < number < SMALL:
        return at_most(number)
    return up(number, places=BOOKED_PLACES).rstrip("0").rstrip(".")


def price(amount: int, currency: Currency) -> str:
    """Format a charged amount with its currency, rounded up.

    >>> price(AMOUNT_OF_ONE // 3, Currency.ZCDP)
    'rho 0.333334'
    """
    return f"{currency.symbol} {figure(amount / AMOUNT_OF_ONE)}"


def pair(epsilon: float, delta: float) -> str:
    """Format the parameters that precede "-differentially private".

    >>> pair(0.5, 1e-9), pair(0.5, 0)
    ('(0.5, 1e-09)', '0.5')
    """
    return f"({at_most(epsilon)}, {at_most(delta)})" if delta else at_most(epsilon)


def stated(epsilon: float, delta: float) -> str:
    """Format an epsilon with its delta, unless that is 0.

    >>> stated(0.5, 1e-9), stated(0.5, 0)
    ('epsilon 0.5 at delta 1e-09', 'epsilon 0.5')
    """
    return f"epsilon {at_most(epsilon)}" + (f" at delta {at_most(delta)}" if delta else "")


def promise_sentence(subject: str, promise: Promise, *, difference: str, runs: int = 1) -> str:
    """Return a promise as a sentence, and how many runs it counts if there are several.

    >>> promise_sentence("This release is", Promise(0.5, 0.0), difference="adding or removing one row", runs=2)
    'This release is 0.5-differentially private with respect to adding or removing one row. The promise counts the reservations of all 2 runs that were used.'
    """
    said = f"{subject} {pair(promise.epsilon, promise.delta)}-differentially private with respect to {difference}."
    return said if runs == 1 else f"{said} {counted_runs(runs)}"


def counted_runs(runs: int) -> str:
    """Return the sentence that says how many runs a promise counts."""
    return f"The promise counts the reservations of all {runs:,} runs that were used."


def account_sentence(account: Account, promise: AccountPromise) -> str:
    """Return the promise of an account as a sentence."""
    subject = "Everything that this account pays for, taken together, is"
    said = promise_sentence(subject, promise.one, difference=step_of(account))
    return " ".join(filter(None, (said, several_blocks(account.unit, promise))))


def several_blocks(unit: str, promise: AccountPromise) -> str:
    """Return the promise to a unit with rows in several blocks as a sentence, or nothing if there cannot be such a unit."""
    if not promise.in_several:
        return ""
    if promise.across is None:
        return f"For one {unit} with rows in several blocks, the losses of these blocks add up; no cap limits that."
    what = pair(promise.across.epsilon, promise.across.delta)
    return f"For one {unit} with rows in any number of blocks it is {what}-differentially private."


def step_of(account: Account) -> str:
    """Describe the difference between two neighbours of an account: whom its guarantee protects, and from what change.

    In an account with blocks, a person's rows may lie in several blocks. The guarantee per block then covers persons whose rows lie in
    one block, because a person in several blocks is affected by the runs of all of them. Under replace-one it covers two blocks: the
    person who leaves may be in one block, and the person who replaces them in another.
    """
    row, by_block = account.unit == "row", account.blocks_by is not None
    if account.neighbours is Neighbours.REPLACE_ONE:
        elsewhere = ", in the same block or in another" if by_block else ""
        whom = "one row by another" if row else f"one {account.unit} with all its rows by another"
        if by_block and not row:
            whom = f"one {account.unit}, all of whose rows are in one block, by another such"
        return f"replacing {whom}{elsewhere}"
    if row:
        return "adding or removing one row"
    if by_block:
        return f"adding or removing one {account.unit}, all of whose rows are in one block"
    return f"adding or removing one {account.unit} with all its rows"


def run_step_of(account: Account) -> str:
    """Describe the difference between two neighbours of a single run. A run bounds a unit's rows over all its blocks together."""
    return step_of(replace(account, blocks_by=None))


def column_type(kind: str) -> str:
    """Format the type of a released column, as stated in its manifest, for people.

    >>> column_type("dictionary<values=string, indices=int32, ordered=0>"), column_type("int64")
    ('string, dictionary-encoded', 'int64')
    """
    values = kind.removeprefix("dictionary<values=")
    return kind if values == kind else f"{values.partition(',')[0]}, dictionary-encoded"


def some_of(names: Sequence[str], *, joint: str, most: int) -> str:
    """Return names as a list in words, with the number of those beyond the first few.

    >>> some_of(["age", "sex"], joint="or", most=3), some_of(["age", "sex", "city"], joint="and", most=1)
    ('age or sex', 'age and 2 others')
    """
    more = len(names) - most
    words = [*names[:most], f"{more} other{'s' if more > 1 else ''}"] if more > 0 else names
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {joint} {words[-1]}"

"""Amounts and guarantees in words, rounded so that no printed figure promises more than the exact one."""

from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from dpcore.ledger import Account, AccountState
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Cap, Currency, promise_of
from dpcore.privacy.accounting.rounding import float_down
from dpcore.privacy.protection import Neighbours
from dpcore.reporting.promises import AccountPromise

LISTED_CELLS = 10**9
BOOKED_PLACES = 6
"""Decimal places of every amount in the books, whatever it is counted in."""
SMALL = 1e-4
"""An amount below this, such as the price of one step, is written in words with 6 digits instead."""


def at_most(number: float) -> str:
    """Write a number that must not look smaller than it is, such as an epsilon or a delta, rounded up to 6 digits.

    >>> at_most(0.99999999999), at_most(1.2345612), at_most(0.1), at_most(1.2345601e-9)
    ('1', '1.23457', '0.1', '1.23457e-09')
    """
    # By its shortest digits: at its exact binary value, 0.1 would be shown as 0.100001.
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(repr(number))):.6g}"


def cells(number: int) -> str:
    """Write how many cells there are: as a whole up to a billion, then with two digits, as it may have hundreds.

    >>> cells(12_000), cells(12 * 10**16), cells(996 * 10**400)
    ('12,000', '1.2e17', '1.0e403')
    """
    return f"{number:,}" if number <= LISTED_CELLS else f"{Decimal(number):.1e}".replace("+", "")


def up(number: float, *, places: int = 4) -> str:
    """Write a number for a column, rounded up to so many decimal places.

    >>> up(1.23451), up(0.480000000001), up(0.1), up(0.00001)
    ('1.2346', '0.4801', '0.1000', '0.0001')
    """
    return _column(Decimal(repr(number)), places=places, rounding=ROUND_CEILING)


def down(number: float, *, places: int = 4) -> str:
    """Write a number for a column, rounded down to so many decimal places; the dust of earlier roundings does not show.

    >>> down(0.99996), down(0.99999999999), down(0.1)
    ('0.9999', '1.0000', '0.1000')
    """
    return _column(Decimal(repr(round(number, 9))), places=places, rounding=ROUND_FLOOR)


def _column(number: Decimal, *, places: int, rounding: str) -> str:
    return f"{number.quantize(Decimal(1).scaleb(-places), rounding=rounding):f}"


def askable(account: Account, amount: int) -> float:
    """Return the largest epsilon, at the account's delta, that a run can ask for which may reserve this amount."""
    if amount <= 0:
        return 0.0
    if account.currency is Currency.PURE:
        return float_down(Fraction(amount, AMOUNT_OF_ONE))
    return promise_of(Cap(account.currency, amount), delta=account.delta).epsilon


def next_epsilon(account: Account, remaining: int) -> float:
    """Return the largest epsilon that a new run can ask for where so much remains of its blocks, and of the cap across them."""
    if account.state is AccountState.CLOSED:
        return 0.0
    amount = remaining // account.weight
    if account.across_remaining is not None:
        amount = min(amount, account.across_remaining)
    return askable(account, amount)


def new_block_epsilon(account: Account) -> float | None:
    """Return the largest epsilon that a run can ask for which reads new blocks only; None if the account has no blocks.

    A block that no run has read yet has the whole cap, however little remains of the others.
    """
    return None if account.blocks_by is None else next_epsilon(account, account.cap)


def next_run(epsilon: float, *, new_blocks: float | None, block: str = "it") -> str:
    """Say what the next run can ask for: of an account, or, where `new_blocks` is told, of its most used block and of new ones.

    >>> next_run(0.5, new_blocks=None)
    'the next run can ask for epsilon 0.5000'
    >>> next_run(0.5, new_blocks=2.0)
    'a run that reads it can ask for epsilon 0.5000; one on new blocks, epsilon 2.0000'
    >>> next_run(0.0, new_blocks=2.0)
    'no run can read it again; one on new blocks can ask for epsilon 2.0000'
    """
    if (
        not new_blocks
    ):  # no blocks, or nothing left for any of them: the account is closed, or its cap across blocks is used up
        return f"the next run can ask for epsilon {down(epsilon)}"
    if not epsilon:
        return f"no run can read {block} again; one on new blocks can ask for epsilon {down(new_blocks)}"
    return (
        f"a run that reads {block} can ask for epsilon {down(epsilon)}; one on new blocks, epsilon {down(new_blocks)}"
    )


def booked(amount: int) -> str:
    """Write a cap, or what was spent or reserved of it, for a column: bookkeeping, and no promise.

    All three are rounded up, so that what was spent never looks like more than the cap.

    >>> booked(120_582_400_000), booked(AMOUNT_OF_ONE // 2)
    ('0.120583', '0.500000')
    """
    return up(amount / AMOUNT_OF_ONE, places=BOOKED_PLACES)


def left(amount: int) -> str:
    """Write what remains of a cap for a column, rounded down, so that nobody counts on more.

    >>> left(120_582_900_000)
    '0.120582'
    """
    return down(amount / AMOUNT_OF_ONE, places=BOOKED_PLACES)


def figure(number: float) -> str:
    """Write a cap, or what was spent or reserved of it, in words: the digits of `booked` without the zeros at their end.

    >>> figure(0.1205824), figure(0.5), figure(0.0), figure(0.0000026543211)
    ('0.120583', '0.5', '0', '2.65433e-06')
    """
    if 0 < number < SMALL:
        return at_most(number)
    return up(number, places=BOOKED_PLACES).rstrip("0").rstrip(".")


def price(amount: int, currency: Currency) -> str:
    """Write an amount that was taken, in its currency, rounded up.

    >>> price(AMOUNT_OF_ONE // 3, Currency.ZCDP)
    'rho 0.333334'
    """
    return f"{currency.symbol} {figure(amount / AMOUNT_OF_ONE)}"


def pair(epsilon: float, delta: float) -> str:
    """Write what precedes "-differentially private".

    >>> pair(0.5, 1e-9), pair(0.5, 0)
    ('(0.5, 1e-09)', '0.5')
    """
    return f"({at_most(epsilon)}, {at_most(delta)})" if delta else at_most(epsilon)


def stated(epsilon: float, delta: float) -> str:
    """Write an epsilon with its delta, if there is one.

    >>> stated(0.5, 1e-9), stated(0.5, 0)
    ('epsilon 0.5 at delta 1e-09', 'epsilon 0.5')
    """
    return f"epsilon {at_most(epsilon)}" + (f" at delta {at_most(delta)}" if delta else "")


def account_sentence(account: Account, promise: AccountPromise) -> str:
    """Say what an account promises to whom."""
    said = (
        f"Everything that this account pays for, taken together, is {pair(promise.one.epsilon, promise.one.delta)}-differentially private "
        f"with respect to {step_of(account)}."
    )
    return " ".join(filter(None, (said, several_blocks(account.unit, promise))))


def several_blocks(unit: str, promise: AccountPromise) -> str:
    """Say what an account by blocks promises to a unit with rows in several blocks; nothing if there is no such unit."""
    if not promise.in_several:
        return ""
    if promise.across is None:
        return f"One {unit} with rows in several blocks loses what these lose together; no cap limits that."
    what = pair(promise.across.epsilon, promise.across.delta)
    return f"For one {unit} with rows in any number of blocks it is {what}-differentially private."


def step_of(account: Account) -> str:
    """Say what one neighbour step of an account is: whom its guarantee protects, and from what.

    With blocks a person's rows may lie in several of them. What an account guarantees for its blocks is then about persons whose rows
    lie in one of them: those of others meet the runs of several. It is about two blocks where a person is replaced, since that one
    leaves here and the other may come there.
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
    """Say what one neighbour step of a single run is: a run keeps a unit's rows over all its blocks together, as if it had none."""
    return step_of(replace(account, blocks_by=None))


def column_type(kind: str) -> str:
    """Write the type of a released column, as its manifest has it, for a person.

    >>> column_type("dictionary<values=string, indices=int32, ordered=0>"), column_type("int64")
    ('string, dictionary-encoded', 'int64')
    """
    values = kind.removeprefix("dictionary<values=")
    return kind if values == kind else f"{values.partition(',')[0]}, dictionary-encoded"

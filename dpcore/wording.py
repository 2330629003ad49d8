"""Amounts and guarantees in words, rounded so that no printed figure promises more than the exact one."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache

from dpcore.accounting import UNIT, Currency, epsilon_of
from dpcore.ledger import Account
from dpcore.privacy import Neighbours

LISTED_CELLS = 10**9


def at_most(number: float) -> str:
    """Write a number that must not look smaller than it is, such as what was spent.

    >>> at_most(0.99999999999), at_most(1.2345612), at_most(0.1)
    ('1', '1.23457', '0.1')
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
    """Write a number for a column, rounded up to so many decimal places; the dust of earlier roundings does not show.

    >>> up(1.23451), up(0.480000000001), up(0.00001)
    ('1.2346', '0.4800', '0.0001')
    """
    return _column(number, places=places, rounding=ROUND_CEILING)


def down(number: float, *, places: int = 4) -> str:
    """Write a number for a column, rounded down to so many decimal places; the dust of earlier roundings does not show.

    >>> down(0.99996), down(0.99999999999), down(0.1)
    ('0.9999', '1.0000', '0.1000')
    """
    return _column(number, places=places, rounding=ROUND_FLOOR)


def _column(number: float, *, places: int, rounding: str) -> str:
    return f"{Decimal(repr(round(number, 9))).quantize(Decimal(1).scaleb(-places), rounding=rounding):f}"


@lru_cache(maxsize=100_000)
def epsilon_at(units: int, *, currency: Currency, delta: float) -> float:
    """Return the epsilon of an amount; many runs and blocks have the same, and in some currencies it takes a while."""
    return epsilon_of(units, currency=currency, delta=delta)


def epsilon_in(account: Account, units: int) -> float:
    """Return the epsilon that an amount stands for at an account's delta."""
    return epsilon_at(units, currency=account.currency, delta=account.delta)


def price(units: int, currency: Currency) -> str:
    """Write an amount that was taken, in its currency.

    >>> price(UNIT // 3, Currency.ZCDP)
    'rho 0.333333'
    """
    return f"{currency.symbol} {units / UNIT:.6g}"


def pair(epsilon: float, delta: float) -> str:
    """Write what precedes "-differentially private".

    >>> pair(0.5, 1e-9), pair(0.5, 0)
    ('(0.5, 1e-09)', '0.5')
    """
    return f"({at_most(epsilon)}, {delta:g})" if delta else at_most(epsilon)


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


def column_type(kind: str) -> str:
    """Write the type of a released column, as its manifest has it, for a person.

    >>> column_type("dictionary<values=string, indices=int32, ordered=0>"), column_type("int64")
    ('string, dictionary-encoded', 'int64')
    """
    values = kind.removeprefix("dictionary<values=")
    return kind if values == kind else f"{values.partition(',')[0]}, dictionary-encoded"

"""`Budget`: an account that pays for any function before it runs."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from dpcore.budget import spending, steps
from dpcore.budget.connection import with_ledger
from dpcore.budget.identity import scoped, step_named, step_of_call
from dpcore.budget.spending import Spending, Terms
from dpcore.budget.steps import Order
from dpcore.errors import DpflowError, UsageError
from dpcore.ledger import Ledger
from dpcore.mechanisms.declared import Declared, StatedEpsilon, StatedMu, StatedRho
from dpcore.mechanisms.noise import Noise
from dpcore.privacy.accounting import budget_of
from dpcore.reporting.overview import RESERVE

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Stated = Fraction | float | str

LEASE_SECONDS = 3600
"""How long a step belongs to its worker if nobody can tell whether that is alive."""


@dataclass(frozen=True)
class Budget:
    """An account that pays for functions, Prefect tasks and blocks of code before they run.

    The ledger is found as by every verb. A step is charged durably before its body runs, and refused if the account cannot pay. What it returns
    is kept in the ledger and returned to a retry, or to a resumed flow run, without running or paying again. A body that raises or dies stays
    paid, and the next attempt pays again.

    A step is a flow run, a function and its arguments, or a `name`, which stands for all three and for all time. Outside a flow run, a call
    without a name is a step of its own. Arguments and results must be public. The ledger stores a hash of the arguments and the whole result.

    Attributes:
        account: The account's name.
    """

    account: str

    def spends(  # noqa: PLR0913  each is a term of its own
        self,
        *,
        unit: str,
        epsilon: Stated | None = None,
        delta: Stated | None = None,
        rho: Stated | None = None,
        mu: Stated | None = None,
        mechanism: Declared | Noise | None = None,
        name: str | None = None,
        blocks: Sequence[str] | None = None,
        analyst: str | None = None,
        purpose: str | None = None,
        approved: bool = False,
        lease_seconds: int = LEASE_SECONDS,
    ) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
        """Return a decorator that charges for each call of a function. It stands below `@task`.

        Args:
            unit: Whom the function protects. It must be the account's unit, and the neighbours are the account's.
            epsilon: The epsilon of the function. State exactly one of epsilon, rho, mu and mechanism.
            delta: The delta to this epsilon. Only 0 has a price.
            rho: The rho of zero-concentrated differential privacy.
            mu: The mu of Gaussian differential privacy.
            mechanism: What the function adds: `Laplace`, `Gaussian` or `DpSgd`, or noise of `dpcore.mechanisms`.
            name: What identifies the step instead of flow run, function and arguments. It may name arguments, as in "mean-{month}".
            blocks: The blocks that the function may touch, if the account is kept by block.
            analyst: The analyst whose allowance pays, if the account has allowances for analysts.
            purpose: The purpose whose allowance pays, likewise.
            approved: Whether the steward approves what is above the account's threshold.
            lease_seconds: How long another worker waits if it cannot tell whether this one is alive: longer than the body takes.
        """
        guarantee = _guarantee(epsilon, delta, rho, mu, mechanism)
        terms = _terms(unit, guarantee, blocks, analyst, purpose, approved=approved, lease_seconds=lease_seconds)

        def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
            if (
                not inspect.isfunction(function)
                or inspect.isgeneratorfunction(function)
                or inspect.isasyncgenfunction(function)
            ):
                raise UsageError("spends belongs directly above a function that returns its result, below @task")

            def begin(*args: Any, **kwargs: Any) -> Future[Spending]:
                step = step_of_call(self.account, function, name=name, arguments=(args, kwargs))
                return spending.begin(self.account, step, terms)

            @wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                begun = begin(*args, **kwargs)
                try:
                    paid = await asyncio.wrap_future(begun)
                except BaseException:
                    spending.abandon(begun)
                    raise
                try:
                    if not paid.kept:
                        await asyncio.wrap_future(paid.store(await cast("Any", function)(*args, **kwargs)))
                finally:
                    paid.leave()
                return paid.value

            @wraps(function)
            def called(*args: Any, **kwargs: Any) -> Any:
                with _charged(begin(*args, **kwargs)) as paid:
                    if not paid.kept:
                        paid.keep(cast("Any", function)(*args, **kwargs))
                return paid.value

            return cast("Callable[Parameters, Result]", awaited if inspect.iscoroutinefunction(function) else called)

        return decorate

    @contextmanager
    def spend(  # noqa: PLR0913  likewise
        self,
        step: str,
        *,
        unit: str,
        epsilon: Stated | None = None,
        delta: Stated | None = None,
        rho: Stated | None = None,
        mu: Stated | None = None,
        mechanism: Declared | Noise | None = None,
        name: str | None = None,
        blocks: Sequence[str] | None = None,
        analyst: str | None = None,
        purpose: str | None = None,
        approved: bool = False,
        lease_seconds: int = LEASE_SECONDS,
    ) -> Iterator[Spending]:
        """Charge for a block of code. It calls `keep` with its result, unless `kept` says that there is one.

        Args:
            step: What the step is called in its flow run.
            unit: As in `spends`, and so is all that follows.
            epsilon: The epsilon of the block.
            delta: The delta to this epsilon.
            rho: The rho of zero-concentrated differential privacy.
            mu: The mu of Gaussian differential privacy.
            mechanism: What the block adds.
            name: What identifies the step instead of the flow run.
            blocks: The blocks that it may touch.
            analyst: The analyst whose allowance pays.
            purpose: The purpose whose allowance pays.
            approved: Whether the steward approves.
            lease_seconds: How long another worker waits.
        """
        guarantee = _guarantee(epsilon, delta, rho, mu, mechanism)
        terms = _terms(unit, guarantee, blocks, analyst, purpose, approved=approved, lease_seconds=lease_seconds)
        named = step_named(self.account, step, name=name)
        with _charged(spending.begin(self.account, named, terms)) as paid:
            yield paid

    @contextmanager
    def reserve(  # noqa: PLR0913  likewise
        self,
        *,
        epsilon: Stated | None = None,
        delta: Stated | None = None,
        rho: Stated | None = None,
        mu: Stated | None = None,
        blocks: Sequence[str] | None = None,
        analyst: str | None = None,
        purpose: str | None = None,
        approved: bool = False,
    ) -> Iterator[None]:
        """Reserve for all steps of this flow run, which draw from it in any process. It is refused at once if the account cannot pay.

        What is left goes back to the account at the end of the block. Wait in the block for the tasks that were submitted in it: a step that
        begins later is paid by the account. A flow run has one reserve in each account; a retried run reserves what it had left.

        Args:
            epsilon: An epsilon that covers the sum of the steps' epsilons. State exactly one of epsilon, rho and mu.
            delta: With a delta above 0, the amount that promises this epsilon and delta in the currency of the account, as in a spec.
            rho: The sum of rho.
            mu: The root of the sum of mu^2.
            blocks: Every block that the steps may touch, if the account is kept by block.
            analyst: The analyst whose allowance pays, if the account has allowances for analysts.
            purpose: The purpose whose allowance pays, likewise.
            approved: Whether the steward approves what is above the account's threshold.
        """
        stated = _guarantee(epsilon, delta, rho, mu, None)
        with scoped() as scope:
            name = spending.reserve_of(self.account, scope)

            def open_reserve(ledger: Ledger) -> None:
                payer = ledger.account(self.account)
                if isinstance(stated, StatedEpsilon) and stated.delta:
                    _, amount = budget_of(float(stated.epsilon), delta=float(stated.delta), currency=payer.currency)
                else:
                    amount = stated.price(payer.currency)
                order = Order(
                    account=payer.name, amount=amount, blocks=_names(blocks), analyst=analyst, purpose=purpose
                )
                if not approved:
                    spending.require_approval(payer, amount)
                steps.open_reserve(ledger, name, order, claim=f"{RESERVE}{amount} in flow run {scope}")

            def close() -> None:
                with_ledger(lambda ledger: steps.close_reserve(ledger, name)).result()

            with_ledger(open_reserve).result()
            try:
                yield
            except BaseException:
                with suppress(DpflowError):  # what the flow raised matters more
                    close()
                raise
            close()


@contextmanager
def _charged(begun: Future[Spending]) -> Iterator[Spending]:
    """Wait until a step is charged, and end it with the block."""
    try:
        paid = begun.result()
    except BaseException:
        spending.abandon(begun)
        raise
    try:
        yield paid
    finally:
        paid.leave()


def _guarantee(
    epsilon: Stated | None,
    delta: Stated | None,
    rho: Stated | None,
    mu: Stated | None,
    mechanism: Declared | Noise | None,
) -> Declared | Noise:
    """Return the one guarantee that is stated."""
    if [epsilon, rho, mu, mechanism].count(None) != 3 or (delta is not None and epsilon is None):
        raise UsageError("state exactly one of epsilon, rho, mu and mechanism, and a delta with an epsilon only")
    if epsilon is not None:
        return StatedEpsilon(epsilon=epsilon, delta=delta)
    if rho is not None:
        return StatedRho(rho=rho)
    if mu is not None:
        return StatedMu(mu=mu)
    if not isinstance(mechanism, Declared | Noise):
        raise UsageError("a mechanism is Laplace, Gaussian or DpSgd of dpcore.budget, or noise of dpcore.mechanisms")
    return mechanism


def _terms(  # noqa: PLR0913  each is a term of its own
    unit: str,
    mechanism: Declared | Noise,
    blocks: Sequence[str] | None,
    analyst: str | None,
    purpose: str | None,
    *,
    approved: bool,
    lease_seconds: int,
) -> Terms:
    return Terms(
        unit=unit,
        mechanism=mechanism,
        blocks=_names(blocks),
        analyst=analyst,
        purpose=purpose,
        approved=approved,
        lease_seconds=lease_seconds,
    )


def _names(blocks: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if blocks is None else tuple(blocks)

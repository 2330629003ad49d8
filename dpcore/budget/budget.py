"""`Budget`: an account that pays for any function before it runs."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar, Unpack, cast

from dpcore.budget import spending, steps
from dpcore.budget.connection import with_ledger
from dpcore.budget.identity import scoped, step_named, step_of_call
from dpcore.budget.spending import Spending
from dpcore.budget.terms import ReserveTerms, StepTerms, reserve_order, step_terms
from dpcore.errors import DpflowError, UsageError
from dpcore.ledger import Ledger
from dpcore.reporting.overview import RESERVE

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


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

    def spends(
        self, *, name: str | None = None, **terms: Unpack[StepTerms]
    ) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
        """Return a decorator that charges for each call of a function. It stands below `@task`.

        Args:
            name: What identifies the step instead of flow run, function and arguments. It may name arguments, as in "mean-{month}".
            terms: `unit`, one guarantee, and whatever else `StepTerms` lists.
        """
        stated = step_terms(**terms)

        def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
            generates = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
            if generates or not inspect.isfunction(function):
                raise UsageError("spends belongs directly above a function that returns its result, below @task")
            body = cast("Any", function)

            waits = not inspect.iscoroutinefunction(function)

            def begin(*args: Any, **kwargs: Any) -> Future[Spending]:
                step = step_of_call(self.account, function, name=name, arguments=(args, kwargs))
                return spending.begin(self.account, step, stated, waits=waits)

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
                        await asyncio.wrap_future(paid.store(await body(*args, **kwargs), waits=False))
                finally:
                    paid.leave()
                return paid.value

            @wraps(function)
            def called(*args: Any, **kwargs: Any) -> Any:
                with _charged(begin(*args, **kwargs)) as paid:
                    if not paid.kept:
                        paid.keep(body(*args, **kwargs))
                return paid.value

            return cast("Callable[Parameters, Result]", called if waits else awaited)

        return decorate

    @contextmanager
    def spend(self, step: str, *, name: str | None = None, **terms: Unpack[StepTerms]) -> Iterator[Spending]:
        """Charge for a block of code. It calls `keep` with its result, unless `kept` says that there is one.

        Args:
            step: What the step is called in its flow run.
            name: What identifies it instead of the flow run.
            terms: As for `spends`.
        """
        stated = step_terms(**terms)
        with _charged(
            spending.begin(self.account, step_named(self.account, step, name=name), stated, waits=True)
        ) as paid:
            yield paid

    @contextmanager
    def reserve(self, **terms: Unpack[ReserveTerms]) -> Iterator[None]:
        """Reserve for all steps of this flow run, which draw from it in any process. It is refused at once if the account cannot pay.

        What is left goes back to the account at the end of the block. Wait in the block for the tasks that were submitted in it: a step that
        begins later is paid by the account. A flow run has one reserve in each account; a retried run reserves what it had left.

        Args:
            terms: A guarantee that covers the sum of the steps', and whatever else `ReserveTerms` lists. An epsilon with a delta reserves what
                promises them in the currency of the account, as in a spec.
        """
        with scoped() as scope:
            name = spending.reserve_of(self.account, scope)

            def open_reserve(ledger: Ledger) -> None:
                order = reserve_order(ledger.account(self.account), **terms)
                claim = f"{RESERVE}{order.amount} in flow run {scope}"
                steps.open_reserve(ledger, name, order, claim=claim)

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
